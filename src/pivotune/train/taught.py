"""What the methods share that compare the student's tokens with a teacher's, turn by turn.

source "model"   the method's teacher model at the student's own context
source "hint"    the student's own weights, told an action by the oracle or a model: the
                 privileged self-teacher, frozen at the step's start

gap(l) = log p_teacher(y_l) - log p_student(y_l), without gradient, at T_ref
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pivotune.core.errors import RecipeError
from pivotune.core.protocols import Sampler
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, Message
from pivotune.models.trees import Floats
from pivotune.train.episodes import EpisodeConfig, EpisodeObjective, Row, TeacherUse
from pivotune.train.gaps import Spoken, token_gaps
from pivotune.train.objective import Materials, required
from pivotune.train.teachers import TeacherConfig, check_same_tokens, open_teacher
from pivotune.turns.hints import ACTION_HINT, check_template, with_action_hint
from pivotune.turns.mistakes import Standing, standings
from pivotune.turns.rollout import contexts


class TaughtConfig(EpisodeConfig, frozen=True, forbid_unknown_fields=True):
    """Who teaches."""

    source: Literal["hint", "model"] = "hint"
    """The privileged self-teacher, or the method's `teacher_model`."""
    teacher: TeacherConfig = TeacherConfig()
    """Who names the action that the self-teacher is told."""
    hint: str = ACTION_HINT
    """The passage with {action} that the self-teacher is shown."""

    @property
    def teacher_use(self) -> TeacherUse:
        if self.source == "model":
            return "scores"
        return "answers" if self.teacher.kind == "model" else ""


Gaps = tuple[Floats | None, ...]
"""One (T,) array for each turn of a row; None where the teacher has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Taught:
    """The gaps of some rows, in their order, and what they took."""

    gaps: list[Gaps]
    metrics: dict[str, float]
    phases: dict[str, Cost]


class TaughtObjective(EpisodeObjective):
    """An objective over episodes with a teacher."""

    def __init__(self, materials: Materials, config: TaughtConfig) -> None:
        super().__init__(materials, config)
        check_template(config.hint, "action")
        self.seed = materials.seed
        self._make = required(materials.make_environment, "environments", self.name)
        self.student = self.rollouts.sampler
        self._scorer: Sampler = self.student
        if config.source == "model":
            self._scorer = scoring_teacher(materials, self.name)
        else:
            self._teacher = open_teacher(materials, config.teacher, self.name)

    def teach(self, rows: Sequence[Row], step: int) -> Taught:
        """Gaps of every turn of the rows."""
        started = time.perf_counter()
        told, cost, metrics = self._told(rows, step)
        own = [
            Spoken(state, row.episode.tools, turn.completion)
            for row in rows
            for state, turn in zip(contexts(row.episode), row.episode.turns, strict=False)
        ]
        asked = [i for i, state in enumerate(told) if state is not None]
        hinted = [
            Spoken(state, own[i].tools, own[i].completion)
            for i, state in enumerate(told)
            if state is not None
        ]
        gaps, used = token_gaps(
            self._scorer, self.student, hinted, [own[i] for i in asked], self.config.temperature
        )
        by_place = dict(zip(asked, gaps, strict=True))
        places = iter(range(len(own)))
        found = [tuple(by_place.get(next(places)) for _ in row.episode.turns) for row in rows]
        metrics["untaught_turns"] = float(sum(gap is None for each in found for gap in each))
        seconds = time.perf_counter() - started
        return Taught(found, metrics, {"teach": cost + used + Cost(seconds=seconds)})

    def _told(
        self, rows: Sequence[Row], step: int
    ) -> tuple[list[tuple[Message, ...] | None], Cost, dict[str, float]]:
        """The teacher's context of every turn of the rows, None where it has none."""
        if self.config.source == "model":
            states = [state for row in rows for state in contexts(row.episode)[:-1]]
            return list(states), Cost(), {}
        places: list[Standing | None] = []
        steps = 0
        for row in rows:
            places += standings(row.episode, self._make)
            steps += len(row.episode.turns)
        seed = derive_seed(self.seed, self.name, step)
        suggested = self._teacher.suggest([each for each in places if each is not None], seed=seed)
        actions = iter(suggested.actions)
        told: list[tuple[Message, ...] | None] = []
        for place in places:
            action = None if place is None else next(actions)
            if place is None or action is None:
                told.append(None)
            else:
                told.append(with_action_hint(place.history, action, self.config.hint))
        cost = suggested.cost + Cost(environment_steps=steps)
        problems = {f"teacher: {reason}": float(n) for reason, n in suggested.problems.items()}
        return told, cost, problems


def scoring_teacher(materials: Materials, method: str) -> Sampler:
    """The teacher model; raises `RecipeError` where it cannot score the student's tokens."""
    teacher = required(materials.teacher, "a teacher (the method's `teacher_model`)", method)
    if not teacher.abilities.scores:
        raise RecipeError(
            f"{method}: the teacher cannot score given tokens",
            got=teacher.name,
            fix="use a local policy, or an endpoint that returns prompt log-probabilities",
        )
    check_same_tokens(materials, method)
    return teacher
