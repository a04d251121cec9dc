"""RLSD: the outcome decides the direction, the privileged self-teacher how far each token goes.

    A_l = A * ((1 - lam) + lam * clip(exp(sign(A) * gap_l), 0.8, 1.2))

lam falls linearly from `lam` to 0 over `lam_steps` steps. With lam 0 no teacher is asked, and
the step is GRPO's bit for bit.
"""

from collections.abc import Sequence

import numpy as np

from pivotune.models.trees import Floats
from pivotune.train.episodes import EpisodeGroup, Shaped, grpo_rows
from pivotune.train.taught import TaughtConfig, TaughtObjective


class RlsdConfig(TaughtConfig, frozen=True, forbid_unknown_fields=True):
    """Published numbers."""

    lam: float = 0.5
    """Weight of the teacher at the first step."""
    lam_steps: int = 50
    """Steps after which it is 0; 0: it stays."""
    low: float = 0.8
    """The factor is clipped below at it."""
    high: float = 1.2
    """The factor is clipped above at it."""


class Rlsd(TaughtObjective):
    """Scales GRPO's advantages token by token."""

    name = "rlsd"
    Config = RlsdConfig

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        config, rows = self.config, grpo_rows(groups)
        lam = config.lam * max(0.0, 1 - step / config.lam_steps) if config.lam_steps else config.lam
        if not lam:
            return Shaped(rows)
        taught = self.teach(rows, step)
        scaled = [
            row.with_advantages(
                [
                    row.advantage
                    if gap is None
                    else scaled_advantage(row.advantage, gap, lam, config)
                    for gap in gaps
                ]
            )
            for row, gaps in zip(rows, taught.gaps, strict=True)
        ]
        return Shaped(scaled, (), {**taught.metrics, "lam": lam}, phases=taught.phases)


def scaled_advantage(advantage: float, gap: Floats, lam: float, config: RlsdConfig) -> Floats:
    """(T,) advantages of one action's tokens."""
    with np.errstate(over="ignore"):
        factor = np.exp(np.sign(advantage) * gap).clip(config.low, config.high)
    scaled: Floats = (advantage * ((1 - lam) + lam * factor)).astype(np.float32)
    return scaled
