"""Skill-SD: GRPO, and the student's own opinion of its tokens when it has read a skill.

    x = log p(y_l | c, skill) - log p(y_l | c)         loss = GRPO + c * ratio * (e^x - 1 - x)

In the update whose ratio is 1, the gradient of that term is -c * x * grad log p(y_l | c): the
same as adding c * x to the advantage, which is what is done here (c 0.001). Skills are texts by
group of tasks (`payload["group"]`), "" for all others; tasks without one are plain GRPO. How the
published method finds and keeps its skills is not public: here they are given.
"""

import time
from collections.abc import Sequence

import numpy as np

from pivotune.core.types import Cost
from pivotune.train.episodes import (
    EpisodeGroup,
    EpisodeObjective,
    Row,
    Shaped,
    all_rows,
    grpo_rows,
)
from pivotune.train.gaps import Spoken, token_gaps
from pivotune.train.objective import Materials
from pivotune.train.skills import SkillConfig, check_skills, skill_of
from pivotune.turns.hints import with_lesson
from pivotune.turns.rollout import contexts


class SkillSdConfig(SkillConfig, frozen=True, forbid_unknown_fields=True):
    """The published coefficient; the rest is ours."""

    coefficient: float = 0.001
    """c; 0 builds no term."""


class SkillSd(EpisodeObjective):
    """Adds the skill's gap to the advantages."""

    name = "skill_sd"
    Config = SkillSdConfig

    def __init__(self, materials: Materials, config: SkillSdConfig) -> None:
        super().__init__(materials, config)
        if config.coefficient:
            check_skills(config, self.name)

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        if not self.config.coefficient:
            return Shaped(grpo_rows(groups))
        started = time.perf_counter()
        live = {row.name: row for row in grpo_rows(groups)}
        found: list[Row] = []
        cost = Cost()
        for row in all_rows(groups, weight=0.0):
            skill = skill_of(self.config, row.group.task)
            if skill:
                taught, used = self._taught(row, skill)
                found.append(taught)
                cost += used
            elif row.name in live:
                found.append(live[row.name])
        seconds = Cost(seconds=time.perf_counter() - started)
        return Shaped(found, (), {}, phases={"teach": cost + seconds})

    def _taught(self, row: Row, skill: str) -> tuple[Row, Cost]:
        config, tools = self.config, row.episode.tools
        states = contexts(row.episode)[:-1]
        said = [turn.completion for turn in row.episode.turns]
        own = [Spoken(state, tools, each) for state, each in zip(states, said, strict=True)]
        told = [
            Spoken(with_lesson(state, skill, config.hint), tools, each)
            for state, each in zip(states, said, strict=True)
        ]
        student = self.rollouts.sampler
        gaps, cost = token_gaps(student, student, told, own, config.temperature)
        added = [
            row.advantage if gap is None else row.advantage + np.float32(config.coefficient) * gap
            for gap in gaps
        ]
        return row.with_advantages(added), cost
