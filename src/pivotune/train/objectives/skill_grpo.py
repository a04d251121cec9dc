"""Skill-GRPO: end-to-end GRPO over episodes that are played with a skill in the prompt.

    opening | user: "A skill that may help here: …" | action 1 | reply | …     GRPO's advantages

The skill stays in what is trained; the policy is evaluated without it. Public is no more than
that: retrieved skills stand in the training prompt. How they are found is not, so they are given
by group of tasks, as for Skill-SD; tasks without one are plain GRPO.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from pivotune.core.protocols import Environment, OracleView, StepResult
from pivotune.core.types import Message, Task, ToolSpec, Turn
from pivotune.train.episodes import EpisodeGroup, EpisodeObjective, Shaped, grpo_rows
from pivotune.train.objective import Materials, required
from pivotune.train.skills import SkillConfig, check_skills, skill_of
from pivotune.turns.hints import with_lesson


class SkillGrpo(EpisodeObjective):
    """GRPO on other openings."""

    name = "skill_grpo"
    Config = SkillConfig

    def __init__(self, materials: Materials, config: SkillConfig) -> None:
        check_skills(config, self.name)
        make = required(materials.make_environment, "environments", self.name)
        shown = replace(materials, make_environment=lambda task: _Skilled(make(task), self._show))
        super().__init__(shown, config)

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        return Shaped(grpo_rows(groups))

    def _show(self, task: Task, opening: tuple[Message, ...]) -> tuple[Message, ...]:
        skill = skill_of(self.config, task)
        return with_lesson(opening, skill, self.config.hint) if skill else opening


class _Skilled:
    """An environment whose opening ends in a skill."""

    def __init__(
        self,
        inner: Environment,
        show: Callable[[Task, tuple[Message, ...]], tuple[Message, ...]],
    ) -> None:
        self._inner = inner
        self._show = show

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return self._inner.tools

    def reset(self, task: Task) -> tuple[Message, ...]:
        return self._show(task, self._inner.reset(task))

    def step(self, action: Message) -> StepResult:
        return self._inner.step(action)

    def clone(self) -> Self:
        return type(self)(self._inner.clone(), self._show)

    def reward(self) -> float:
        return self._inner.reward()

    def restore(self, turn: Turn) -> None:
        self._inner.restore(turn)

    def oracle(self) -> OracleView | None:
        return self._inner.oracle()
