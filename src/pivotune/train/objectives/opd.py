"""On-policy distillation: the student's own episodes, a teacher model's opinion of every token.

    A(l) = log p_teacher(y_l | c) - log p_student(y_l | c)      without gradient, at T_ref

No reward is used. The surrogate's gradient is that of the reverse KL(student || teacher).
"""

from collections.abc import Sequence
from typing import Literal

from pivotune.train.episodes import EpisodeGroup, Row, Shaped, all_rows
from pivotune.train.taught import Taught, TaughtConfig, TaughtObjective


class OpdConfig(TaughtConfig, frozen=True, forbid_unknown_fields=True):
    """The teacher is the method's `teacher_model`."""

    source: Literal["hint", "model"] = "model"


def gap_rows(rows: Sequence[Row], taught: Taught) -> list[Row]:
    """The gap as the only advantage; turns without one are not trained."""
    pairs = zip(rows, taught.gaps, strict=True)
    return [row.with_advantages(gaps) for row, gaps in pairs]


class Opd(TaughtObjective):
    """All episodes are trained, whatever their group's rewards."""

    name = "opd"
    Config = OpdConfig

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        rows = all_rows(groups)
        taught = self.teach(rows, step)
        return Shaped(gap_rows(rows, taught), (), taught.metrics, phases=taught.phases)
