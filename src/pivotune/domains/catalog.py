"""The domains by name: how to make their environments, tasks, expert traces and verifiers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pivotune.core.errors import DataError, RecipeError
from pivotune.core.protocols import Environment, Verifier
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Task, Trajectory
from pivotune.domains.household.environment import (
    EnvironmentConfig,
    HouseholdEnvironment,
    generated_task,
    task_dialect,
)
from pivotune.domains.household.expert import ExpertConfig
from pivotune.domains.household.generator import TINY_GAMES, Split
from pivotune.domains.household.progress import ProgressVerifier
from pivotune.domains.household.traces import record
from pivotune.domains.lm_eval.harness import lm_eval_environment, lm_eval_tasks
from pivotune.domains.reasoning.gym import SPLITS as REASONING_SPLITS
from pivotune.domains.reasoning.gym import ReasoningEnvironment, reasoning_tasks
from pivotune.domains.skills.environment import SkillEnvironment
from pivotune.domains.skills.suite import SKILLS, skill_tasks, task_item
from pivotune.domains.tool_use.bfcl import SPLITS as BFCL_SPLITS
from pivotune.domains.tool_use.bfcl import bfcl_tasks
from pivotune.domains.tool_use.environment import BfclEnvironment, truth_trajectories

TaskMaker = Callable[[str, int, int], tuple[Task, ...]]
"""(split, number, seed) -> that many different tasks; the same arguments, the same tasks."""

ExpertMaker = Callable[[int, int, float], Iterator[Trajectory]]
"""(number of games, seed, noise) -> recorded trajectories on the training split."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What a domain offers; `expert` is None and `verifiers` empty where it has none.

    `splits` None: any name may be one, and `tasks` says which are.
    """

    name: str
    make_environment: Callable[[Task], Environment]
    tasks: TaskMaker
    splits: tuple[str, ...] | None
    expert: ExpertMaker | None = None
    verifiers: dict[str, Callable[[], Verifier]] = field(default_factory=dict)


def _household_environment(task: Task) -> Environment:
    # Other people's traces carry their own task ids; a household task names its game.
    return HouseholdEnvironment(EnvironmentConfig(dialect=task_dialect(task)))


def _household_tasks(split: str, n: int, seed: int) -> tuple[Task, ...]:
    kind = _household_split(split)
    return tuple(generated_task(derive_seed(seed, split, i), kind, TINY_GAMES) for i in range(n))


def _household_split(split: str) -> Split:
    if split == "train":
        return "train"
    if split == "seen":
        return "seen"
    return "unseen"


def _household_expert(n: int, seed: int, noise: float) -> Iterator[Trajectory]:
    for task in _household_tasks("train", n, seed):
        yield record(task, ExpertConfig(noise=noise), EnvironmentConfig(), seed)


def _skill_tasks(split: str, n: int, seed: int) -> tuple[Task, ...]:
    """`n` tasks in all, the same number of every skill (the last skills lack a remainder)."""
    each = -(-n // len(SKILLS))
    return skill_tasks(n=each, split="train" if split == "train" else "eval", seed=seed)[:n]


def _skill_expert(n: int, seed: int, noise: float) -> Iterator[Trajectory]:
    """Right answers to training items; there are no wrong ones, so `noise` changes nothing."""
    for task in _skill_tasks("train", n, seed):
        item = task_item(task)
        messages = (*item.messages, item.answer)
        yield Trajectory(item.id, task.domain, task, item.tools, messages, reward=1.0)


DOMAINS: dict[str, Domain] = {
    "household": Domain(
        name="household",
        make_environment=_household_environment,
        tasks=_household_tasks,
        splits=("train", "seen", "unseen"),
        expert=_household_expert,
        verifiers={"progress": ProgressVerifier},
    ),
    "skills": Domain(
        name="skills",
        make_environment=lambda task: SkillEnvironment(),
        tasks=_skill_tasks,
        splits=("train", "eval"),
        expert=_skill_expert,
    ),
    "reasoning": Domain(
        name="reasoning",
        make_environment=lambda task: ReasoningEnvironment(),
        tasks=reasoning_tasks,
        splits=REASONING_SPLITS,
    ),
    "bfcl": Domain(
        name="bfcl",
        make_environment=lambda task: BfclEnvironment(),
        tasks=bfcl_tasks,
        splits=BFCL_SPLITS,
        expert=lambda n, seed, noise: iter(truth_trajectories(n, seed)),
    ),
    "lm_eval": Domain(
        name="lm_eval",
        make_environment=lm_eval_environment,
        tasks=lm_eval_tasks,
        splits=None,
    ),
}


def find_domain(name: str) -> Domain:
    """Raises `RecipeError` for a name that is no domain."""
    if name not in DOMAINS:
        raise RecipeError("unknown domain", got=name, expected=f"one of {', '.join(DOMAINS)}")
    return DOMAINS[name]


def make_environment(task: Task) -> Environment:
    """An unset environment for a task of any domain."""
    if task.domain not in DOMAINS:
        raise DataError(
            f"the domain {task.domain!r} has no environment here",
            where=task.id,
            fix="choose a verifier that needs none (tool_call), or one of the domains "
            + ", ".join(DOMAINS),
        )
    return DOMAINS[task.domain].make_environment(task)


def suite_tasks(suite: str, n: int, seed: int) -> tuple[Task, ...]:
    """Tasks of a suite written `domain:split`."""
    name, _, split = suite.partition(":")
    domain = find_domain(name)
    if domain.splits is not None and split not in domain.splits:
        raise RecipeError(
            f"the domain {name!r} has no such split",
            got=suite,
            expected=", ".join(f"{name}:{each}" for each in domain.splits),
        )
    return domain.tasks(split, n, seed)
