"""TCOD: distillation from a teacher model on the first turns only, more of them as time goes on.

    turns played and trained   k = min(k_0 + floor(n / eta), T_max)      n: the step, eta 2
    loss of a token            KL(teacher || student) at the student's own contexts

The teacher's distribution is its K most likely tokens and one tail for all the rest. No reward
is used. k_0 = 1 and K = 8 are ours.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pivotune.core.errors import RecipeError
from pivotune.core.protocols import TokenScores
from pivotune.core.types import Cost
from pivotune.models.trees import Targets
from pivotune.train.episodes import (
    EpisodeConfig,
    EpisodeGroup,
    EpisodeObjective,
    Row,
    Shaped,
    TeacherUse,
    all_rows,
)
from pivotune.train.gaps import Spoken, score_actions
from pivotune.train.objective import Materials
from pivotune.train.taught import scoring_teacher
from pivotune.turns.rollout import contexts


class TcodConfig(EpisodeConfig, frozen=True, forbid_unknown_fields=True):
    """`max_turns` is T_max."""

    first_turns: int = 1
    """k_0: turns of the first step."""
    eta: int = 2
    """Steps after which one more turn is played."""
    top_k: int = 8
    """Tokens of the teacher's distribution that are named."""

    @property
    def teacher_use(self) -> TeacherUse:
        return "scores"


class Tcod(EpisodeObjective):
    """Matches distributions; there is no policy gradient."""

    name = "tcod"
    Config = TcodConfig

    def __init__(self, materials: Materials, config: TcodConfig) -> None:
        super().__init__(materials, config)
        if min(config.first_turns, config.eta, config.top_k) < 1:
            raise RecipeError("tcod: first_turns, eta and top_k start at 1")
        self._teacher = scoring_teacher(materials, self.name)

    def max_turns(self, step: int) -> int:
        now: int = self.config.first_turns + step // self.config.eta
        return min(now, super().max_turns(step))

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        started = time.perf_counter()
        rows = all_rows(groups, weight=0.0)
        spoken = [
            Spoken(state, row.episode.tools, turn.completion)
            for row in rows
            for state, turn in zip(contexts(row.episode), row.episode.turns, strict=False)
        ]
        # Both sides of the divergence are at the row's own temperature.
        scores, cost = score_actions(self._teacher, spoken, None, self.config.top_k)
        each = iter(scores)
        matched = [_matched(row, [next(each) for _ in row.episode.turns]) for row in rows]
        metrics = {
            "turn_limit": float(self.max_turns(step)),
            "untaught_turns": float(sum(score is None for score in scores)),
        }
        seconds = Cost(seconds=time.perf_counter() - started)
        return Shaped(matched, (), metrics, phases={"teach": cost + seconds})


def _matched(row: Row, scores: Sequence[TokenScores | None]) -> Row:
    """The row with the teacher's distributions; turns without them are not trained."""
    pairs = zip(row.signals, scores, strict=True)
    signals = [s if score is None else replace(s, targets=targets_of(score)) for s, score in pairs]
    return replace(row, signals=tuple(signals))


def targets_of(score: TokenScores) -> Targets:
    """The named tokens with their probabilities, each token with weight 1."""
    return Targets(
        np.array(score.top_ids, np.int64),
        np.exp(np.array(score.top_logprobs, np.float64)).astype(np.float32),
        np.ones(len(score.logprobs), np.float32),
    )
