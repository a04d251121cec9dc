"""SDAR: GRPO plus a gated pull of the student's log-probability towards the teacher's.

    loss = GRPO + c * sg[sigmoid(k * gap)] * (log p_teacher - log p_student)     c 0.01, k 5

The gradient goes through the student's term only, so the pull is a likelihood weight of
c * sigmoid(k * gap) on every token: strong where the teacher likes it better. Dead groups are
pulled too. What is public of the method is this formula; who teaches is a setting.
"""

from collections.abc import Sequence

import numpy as np

from pivotune.models.trees import Floats
from pivotune.train.episodes import EpisodeGroup, Row, Shaped, all_rows, grpo_rows
from pivotune.train.taught import TaughtConfig, TaughtObjective


class SdarConfig(TaughtConfig, frozen=True, forbid_unknown_fields=True):
    """Published numbers."""

    coefficient: float = 0.01
    """c; 0 builds no term."""
    sharpness: float = 5.0
    """k of the gate."""


class Sdar(TaughtObjective):
    """Adds likelihood weights to GRPO's rows."""

    name = "sdar"
    Config = SdarConfig

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        config = self.config
        live = {row.name: row for row in grpo_rows(groups)}
        if not config.coefficient:
            return Shaped(list(live.values()))
        rows = [live.get(row.name, row) for row in all_rows(groups, weight=0.0)]
        taught = self.teach(rows, step)
        pulled: list[Row] = []
        for row, gaps in zip(rows, taught.gaps, strict=True):
            weights = [0.0 if gap is None else gate(gap, config) for gap in gaps]
            pulled.append(row.with_likelihood(weights))
        return Shaped(pulled, (), taught.metrics, phases=taught.phases)


def gate(gap: Floats, config: SdarConfig) -> Floats:
    """(T,) c * sigmoid(k * gap)."""
    with np.errstate(over="ignore"):
        weights: Floats = (config.coefficient / (1 + np.exp(-config.sharpness * gap))).astype(
            np.float32
        )
    return weights
