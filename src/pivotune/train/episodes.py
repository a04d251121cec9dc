"""What the methods that play have in common: groups of episodes of a step, rows, trees.

    tasks of the step --play--> groups of G episodes --advantages--> rows --a method--> rows
         --trees--> one tree an episode, or one sample a turn

A row is an episode with one signal for each of its actions. End-to-end GRPO trains the rows as
they come; the other methods change their signals, or make rows of their own.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np

from pivotune.core.errors import VerifierError
from pivotune.core.protocols import Sampler
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, Episode, JsonObject, Task
from pivotune.models.trees import Floats, TokenTree
from pivotune.train.advantages import GroupAdvantages, group_advantages
from pivotune.train.draws import draw_batch, draw_others
from pivotune.train.groups import GroupConfig, check_groups, posterior_temperatures
from pivotune.train.objective import Collected, Materials, required
from pivotune.train.trunks import (
    ActionSignal,
    action_signal,
    episode_trees,
    merge_trunks,
    share_trunks,
    turn_tree,
)
from pivotune.turns.rollout import EpisodeLimits, Play, episode_cost, run_episodes

TeacherUse = Literal["", "answers", "scores"]


class EpisodeConfig(GroupConfig, frozen=True, forbid_unknown_fields=True):
    """How a step's episodes are played. 16 tasks x 8 is published for household games."""

    max_turns: int = 30
    """An episode's limit."""
    rows: Literal["episode", "turn"] = "episode"
    """What a sample is: a whole episode, or each of its turns (for sequence-level options)."""

    @property
    def teacher_use(self) -> TeacherUse:
        """What the method's teacher model is for: nothing, answers in text, or scores of tokens."""
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeGroup:
    """G episodes of one task at one temperature, and the advantages of their rewards."""

    task: Task
    episodes: tuple[Episode, ...]
    temperature: float
    advantages: GroupAdvantages

    @property
    def rewards(self) -> list[float]:
        """Those of the episodes that have one."""
        return [each.reward for each in self.episodes if each.reward is not None]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """An episode of a group, and a signal for each of its actions."""

    group: EpisodeGroup
    number: int
    signals: tuple[ActionSignal, ...]

    @property
    def episode(self) -> Episode:
        return self.group.episodes[self.number]

    @property
    def name(self) -> str:
        return f"{self.group.task.id}/{self.number}"

    @property
    def advantage(self) -> float:
        """The one that the group gives to the whole episode."""
        return float(self.group.advantages.values[self.number])

    def with_advantages(self, advantages: Sequence[float | Floats | None]) -> "Row":
        """The row with other advantages, one of each action or of its tokens.

        Actions with None are no longer trained by policy gradient.
        """
        signals = [
            action_signal(
                turn.completion, 0.0 if given is None else given, weight=given is not None
            )
            for turn, given in zip(self.episode.turns, advantages, strict=True)
        ]
        return replace(self, signals=tuple(signals))

    def with_likelihood(self, weights: Sequence[float | Floats]) -> "Row":
        """The row with likelihood weights beside what it has."""
        given = zip(self.episode.turns, self.signals, weights, strict=True)
        signals = [
            replace(signal, likelihood=action_signal(turn.completion, 0.0, likelihood=w).likelihood)
            for turn, signal, w in given
        ]
        return replace(self, signals=tuple(signals))


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    """What a method made of a step's groups.

    `more` are trees of single actions beside those of the rows. Their trunks are context only,
    and are shared with a row's where they can be.
    """

    rows: Sequence[Row]
    more: Sequence[TokenTree] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    phases: dict[str, Cost] = field(default_factory=dict)


class Rollouts:
    """Plays the groups of a step; remembers the tallies behind their temperatures."""

    def __init__(self, materials: Materials, config: EpisodeConfig, name: str) -> None:
        self.sampler: Sampler = required(materials.sampler, "a sampler", name)
        self._tasks = required(materials.tasks, "tasks to play", name)
        self._make = required(materials.make_environment, "environments", name)
        self._seed = materials.seed
        self._config = config
        self._name = name
        check_groups(config, "episodes")
        self.temperatures = posterior_temperatures(config, materials)

    def play(self, step: int, max_turns: int | None = None) -> list[EpisodeGroup]:
        """The groups of a step's tasks, each task once; every group counts for its task.

        `max_turns` is that of the settings where none is given.
        """
        config = self._config
        drawn = draw_batch(self._tasks, config.batch, seed=self._seed, name="episodes", step=step)
        groups = self._play(list({task.id: task for task in drawn}.values()), step, max_turns)
        for number in range(config.refill):
            wanted = len(drawn) - sum(group.advantages.live for group in groups)
            others = draw_others(
                self._tasks,
                wanted,
                taken={group.task.id for group in groups},
                key=lambda task: task.id,
                seed=derive_seed(self._seed, "refill", step, number),
            )
            if not others:
                break
            groups += self._play(others, step, max_turns)
        return groups

    def _play(self, tasks: Sequence[Task], step: int, max_turns: int | None) -> list[EpisodeGroup]:
        config = self._config
        heat = dict.fromkeys((task.id for task in tasks), config.temperature)
        if self.temperatures is not None:
            heat = self.temperatures.draw(heat, step)
        episodes = run_episodes(
            self.sampler,
            [Play(task, i, heat[task.id]) for task in tasks for i in range(config.group)],
            self._make,
            temperature=config.temperature,
            seed=derive_seed(self._seed, "episodes", step),
            limits=EpisodeLimits(max_turns or config.max_turns, config.max_tokens),
        )
        check_failed_share(episodes, config.invalid_limit, f"{self._name}, step {step}")
        groups = [
            self._group(task, episodes[i * config.group : (i + 1) * config.group], heat[task.id])
            for i, task in enumerate(tasks)
        ]
        if self.temperatures is not None:
            for group in groups:
                self.temperatures.update(group.task.id, [each.reward for each in group.episodes])
        return groups

    def _group(self, task: Task, episodes: Sequence[Episode], temperature: float) -> EpisodeGroup:
        rewards = [each.reward for each in episodes]
        found = group_advantages(rewards, baseline=self._config.baseline, scale=self._config.scale)
        return EpisodeGroup(task, tuple(episodes), temperature, found)


class EpisodeObjective(ABC):
    """A method over episodes: `shape` turns a step's groups into rows with signals."""

    name: str
    Config: type[msgspec.Struct]

    def __init__(self, materials: Materials, config: Any) -> None:
        self.rollouts = Rollouts(materials, config, self.name)
        self.config: Any = config

    @abstractmethod
    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped: ...

    def max_turns(self, step: int) -> int:
        """After how many turns the episodes of a step stop."""
        limit: int = self.config.max_turns
        return limit

    def collect(self, step: int) -> Collected:
        groups = self.rollouts.play(step, self.max_turns(step))
        shaped = self.shape(groups, step)
        trees = share_trunks(row_trees(shaped.rows, self.config.rows), shaped.more)
        self.inspect(groups, trees)
        played = sum((episode_cost(each) for g in groups for each in g.episodes), Cost())
        return Collected(
            trees,
            {**episode_metrics(groups), **shaped.metrics},
            played + shaped.cost,
            shaped.phases,
        )

    def inspect(self, groups: Sequence[EpisodeGroup], trees: Sequence[TokenTree]) -> None:  # noqa: B027
        """What a method asserts of the trees that it is about to hand over."""

    def state(self) -> JsonObject:
        drawn = self.rollouts.temperatures
        return {} if drawn is None else {"ptgs": drawn.state()}

    def load_state(self, state: JsonObject) -> None:
        if self.rollouts.temperatures is not None:
            self.rollouts.temperatures.load_state(state["ptgs"])


def grpo_rows(groups: Iterable[EpisodeGroup]) -> list[Row]:
    """The valid episodes of the live groups, each action with its episode's advantage."""
    return [
        Row(
            group,
            i,
            tuple(
                action_signal(turn.completion, float(group.advantages.values[i]))
                for turn in episode.turns
            ),
        )
        for group in groups
        if group.advantages.live
        for i, episode in enumerate(group.episodes)
        if group.advantages.valid[i] and episode.turns
    ]


def all_rows(groups: Iterable[EpisodeGroup], weight: float = 1.0) -> list[Row]:
    """Every episode that did not fail, live group or not, with advantages of 0."""
    return [
        Row(
            group,
            i,
            tuple(action_signal(turn.completion, 0.0, weight=weight) for turn in episode.turns),
        )
        for group in groups
        for i, episode in enumerate(group.episodes)
        if group.advantages.valid[i] and episode.turns
    ]


def row_trees(rows: Iterable[Row], kind: Literal["episode", "turn"]) -> list[TokenTree]:
    """The trees of some rows; with a sample a turn, an episode's actions share its trunk."""
    trees: list[TokenTree] = []
    for row in rows:
        if kind == "episode":
            trees += episode_trees(row.name, row.episode, row.signals)
        else:
            turns = [
                turn_tree(f"{row.name} turn {t}", turn.completion, signal)
                for t, (turn, signal) in enumerate(zip(row.episode.turns, row.signals, strict=True))
                if signal.live
            ]
            trees += merge_trunks(turns)
    return trees


def check_failed_share(episodes: Sequence[Episode], limit: float, where: str) -> None:
    """Raise `VerifierError` when too many environments failed for the step to mean much."""
    failed = [each for each in episodes if each.reward is None]
    if len(failed) > limit * len(episodes):
        raise VerifierError(
            f"{len(failed)} of {len(episodes)} episodes failed in the environment",
            where=where,
            got=failed[0].problem,
            expected=f"at most {limit:.0%}",
            fix="mend the environment or leave these tasks out; finished steps are kept",
        )


def episode_metrics(groups: Sequence[EpisodeGroup]) -> dict[str, float]:
    """What is watched while training: rewards, live groups, lengths, temperatures."""
    episodes = [each for group in groups for each in group.episodes]
    rewards = np.array([each.reward for each in episodes if each.reward is not None], np.float64)
    said = [turn.completion for each in episodes for turn in each.turns]
    heat = np.array([group.temperature for group in groups], np.float64)
    return {
        "reward_mean": float(rewards.mean()) if len(rewards) else 0.0,
        "groups": len(groups),
        "live_share": float(np.mean([group.advantages.live for group in groups])),
        "failed": float(sum(each.reward is None for each in episodes)),
        "turns_mean": float(np.mean([len(each.turns) for each in episodes])),
        "action_tokens_mean": float(np.mean([len(each.token_ids) for each in said] or [0])),
        "clipped_share": float(np.mean([each.finish == "length" for each in said] or [False])),
        "malformed_share": float(np.mean([each.outcome.broken for each in said] or [False])),
        "temperature_mean": float(heat.mean()),
        "temperature_min": float(heat.min()),
        "temperature_max": float(heat.max()),
    }
