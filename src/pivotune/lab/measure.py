"""What a base model can do: held-out games, skills, hints followed, transcripts judged.

measured = measure_base(sampler, MeasureConfig())
measured.household["1.0"].share            # success on unseen games at temperature 1
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pivotune.core.protocols import Sampler, SampleRequest
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Episode, Message, Task, ToolSpec
from pivotune.domains.household.environment import (
    HouseholdEnvironment,
    generated_task,
    task_game,
)
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.domains.skills.environment import SkillEnvironment
from pivotune.domains.skills.hints import with_hint
from pivotune.domains.skills.judging import read_judgement
from pivotune.domains.skills.suite import skill_tasks
from pivotune.lab.mixture import (
    SHOWN,
    draw_hints,
    judging_messages,
)
from pivotune.lab.noisy_expert import Doubts, play_unsurely
from pivotune.turns.rollout import EpisodeLimits, Play, run_episodes

_LIMITS = EpisodeLimits(max_turns=SHOWN.step_limit, max_tokens=32)


class MeasureConfig(msgspec.Struct, frozen=True):
    """How much is measured. `temperatures` are those of the games; 0 is greedy."""

    games: int = 200
    items: int = 100
    helpers: int = 100
    temperatures: tuple[float, ...] = (1.0, 0.4, 0.0)
    skill_temperatures: tuple[float, ...] = (1.0, 0.0)
    seed: int = 0


class Share(msgspec.Struct, frozen=True):
    """`hits` of `n`."""

    hits: int
    n: int

    @property
    def share(self) -> float:
        return self.hits / self.n if self.n else float("nan")


class Games(msgspec.Struct, frozen=True):
    """Held-out games at one temperature. `mean_turns` counts won games only; `idle` is the
    share of all actions that could not be carried out."""

    won: Share
    by_type: dict[str, Share]
    mean_turns: float
    idle: Share


class BaseMeasure(msgspec.Struct, frozen=True):
    """Games and skills by temperature (written as text), helper skills at temperature 1.

    `judged_turn` counts answers that name the right turn, `judged` those with the right better
    action besides.
    """

    household: dict[str, Games]
    skills: dict[str, dict[str, Share]]
    hints: Share
    judged_turn: Share
    judged: Share


def measure_base(sampler: Sampler, config: MeasureConfig) -> BaseMeasure:
    """Measure everything; the same seed gives the same games, items and random streams."""
    tasks = tuple(generated_task(seed, "unseen", TINY_GAMES) for seed in range(config.games))
    items = skill_tasks(n=config.items, seed=config.seed)
    judged_turn, judged = measure_judging(sampler, config)
    return BaseMeasure(
        household={
            str(heat): measure_games(sampler, tasks, heat, config.seed)
            for heat in config.temperatures
        },
        skills={
            str(heat): measure_skills(sampler, items, heat, config.seed)
            for heat in config.skill_temperatures
        },
        hints=measure_hints(sampler, config),
        judged_turn=judged_turn,
        judged=judged,
    )


def measure_games(sampler: Sampler, tasks: Sequence[Task], temperature: float, seed: int) -> Games:
    """Success on household tasks."""
    episodes = run_episodes(
        sampler,
        [Play(task) for task in tasks],
        lambda _: HouseholdEnvironment(SHOWN),
        temperature=temperature,
        seed=seed,
        limits=_LIMITS,
    )
    won = [each for each in episodes if each.reward == 1.0]
    answers = [turn.replies for each in episodes for turn in each.turns]
    idle = sum(replies[0].content.startswith(("Nothing happens", "Error")) for replies in answers)
    return Games(
        won=Share(len(won), len(episodes)),
        by_type=_by_group(episodes, lambda task: task_game(task).task_type),
        mean_turns=sum(len(each.turns) for each in won) / max(1, len(won)),
        idle=Share(idle, len(answers)),
    )


def measure_skills(
    sampler: Sampler, tasks: Sequence[Task], temperature: float, seed: int
) -> dict[str, Share]:
    """Accuracy of each skill."""
    episodes = run_episodes(
        sampler,
        [Play(task) for task in tasks],
        lambda _: SkillEnvironment(),
        temperature=temperature,
        seed=seed,
        limits=_LIMITS,
    )
    return _by_group(episodes, lambda task: str(task.payload["group"]))


def _by_group(episodes: Iterable[Episode], group: Callable[[Task], str]) -> dict[str, Share]:
    rewards: dict[str, list[float]] = defaultdict(list)
    for each in episodes:
        if each.reward is not None:
            rewards[group(each.task)].append(each.reward)
    return {name: Share(round(sum(found)), len(found)) for name, found in sorted(rewards.items())}


def measure_hints(sampler: Sampler, config: MeasureConfig) -> Share:
    """How often a hinted action, right or not, is the one taken (unseen games)."""
    rng = random.Random(derive_seed(config.seed, "measure hints"))
    requests, wanted = [], []
    for game in range(config.helpers):
        played = play_unsurely(
            generated_task(game, "unseen", TINY_GAMES), Doubts(), SHOWN, config.seed
        )
        for hint in draw_hints(played, 1, rng):
            state = with_hint(played.messages[: hint.position], hint.action)
            requests.append(_request(state, played.tools, derive_seed(config.seed, "hint", game)))
            wanted.append(hint.action)
    found = [each.message for (each,) in sampler.sample(requests)]
    followed = sum(_same(said, action) for said, action in zip(found, wanted, strict=True))
    return Share(followed, len(wanted))


def measure_judging(sampler: Sampler, config: MeasureConfig) -> tuple[Share, Share]:
    """Short unseen games judged: the right turn, and the right better action besides."""
    requests, wanted = [], []
    for game in range(config.helpers):
        question, answer = judging_messages(
            generated_task(game, "unseen", TINY_GAMES), Doubts(), config.seed
        )
        requests.append(_request((question,), (), derive_seed(config.seed, "judge", game)))
        wanted.append(read_judgement(answer))
    found = [read_judgement(each.message) for (each,) in sampler.sample(requests)]
    pairs = list(zip(found, wanted, strict=True))
    turns = sum((a and a[0]) == (b and b[0]) for a, b in pairs)
    return Share(turns, len(pairs)), Share(sum(a == b for a, b in pairs), len(pairs))


def _same(left: Message, right: Message) -> bool:
    calls = [[(call.name, call.arguments) for call in each.tool_calls] for each in (left, right)]
    return calls[0] == calls[1]


def _request(state: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> SampleRequest:
    return SampleRequest(
        messages=tuple(state),
        tools=tuple(tools),
        n=1,
        temperature=1.0,
        seed=seed,
        max_tokens=_LIMITS.max_tokens,
    )
