"""Rewards of a group -> advantages. A group is G actions sampled at one state.

    A_i = (r_i - mean r) / (std r + eps)        population std (ddof 0)

Whether a group is live is decided by max - min over its valid rewards, never by a variance:
eight times 0.1 + 0.2 has a tiny floating one. Samples whose verdict is invalid leave the group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["std", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class GroupAdvantages:
    """`values` (G,) float64, 0 for invalid samples; `valid` (G,); not `live`: leave it out."""

    values: npt.NDArray[np.float64]
    valid: npt.NDArray[np.bool_]
    live: bool


def group_advantages(
    rewards: Sequence[float | None],
    *,
    baseline: Baseline = "mean",
    scale: Scale = "std",
    eps: float = 1e-6,
) -> GroupAdvantages:
    """Advantages of one group; None is an invalid sample.

    `leave_one_out` compares each reward with the mean of the others (G / (G - 1) times the
    plain difference); `scale="none"` leaves the division out (Dr.GRPO).
    """
    valid = np.array([reward is not None for reward in rewards], bool)
    values = np.zeros(len(rewards), np.float64)
    kept = np.array([reward for reward in rewards if reward is not None], np.float64)
    if len(kept) < 2 or kept.max() == kept.min():
        return GroupAdvantages(values, valid, live=False)
    centred = kept - kept.mean()
    if baseline == "leave_one_out":
        centred = centred * (len(kept) / (len(kept) - 1))
    values[valid] = centred / (kept.std() + eps) if scale == "std" else centred
    return GroupAdvantages(values, valid, live=True)
