"""AgentOPSD: the teacher says which turns moved the belief in success; GRPO weighs them by it.

    e_k = sum of the gaps of turn k            c_k = 0.95 c_{k-1} + e_k
    B_k = sigmoid(logit(s) + c_k)              s: the group's success, clipped to [1e-3, 1 - 1e-3]
    q_k = sign(A) (B_k - B_{k-1})              z: the z-score of q in the episode
    w_k = clip(1 + 0.2 z, 0.8, 1.2)            A_k = A ((1 - lam) + lam w_k)

With lam 0 no teacher is asked, and the step is GRPO's bit for bit.
"""

from collections.abc import Sequence

import numpy as np

from pivotune.train.episodes import EpisodeGroup, Shaped, grpo_rows
from pivotune.train.taught import Gaps, TaughtConfig, TaughtObjective


class AgentOpsdConfig(TaughtConfig, frozen=True, forbid_unknown_fields=True):
    """Published numbers."""

    lam: float = 0.5
    """Share of the turns' weights in the advantage."""
    memory: float = 0.95
    """What evidence is multiplied by from turn to turn."""
    slope: float = 0.2
    """Weight of a z-score; the factor stays within 1 - slope and 1 + slope."""


class AgentOpsd(TaughtObjective):
    """Weighs GRPO's advantages turn by turn."""

    name = "agent_opsd"
    Config = AgentOpsdConfig

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        config, rows = self.config, grpo_rows(groups)
        if not config.lam:
            return Shaped(rows)
        taught = self.teach(rows, step)
        weighed = []
        for row, gaps in zip(rows, taught.gaps, strict=True):
            weights = turn_weights(gaps, float(np.mean(row.group.rewards)), row.advantage, config)
            share = 1 - config.lam + config.lam * weights
            weighed.append(row.with_advantages([float(row.advantage * each) for each in share]))
        return Shaped(weighed, (), taught.metrics, phases=taught.phases)


def turn_weights(
    gaps: Gaps, success: float, advantage: float, config: AgentOpsdConfig
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """w_k of an episode's turns; a turn without a gap brings no evidence."""
    start = np.clip(success, 1e-3, 1 - 1e-3)
    odds = np.log(start / (1 - start))
    evidence, beliefs = 0.0, [float(start)]
    for gap in gaps:
        evidence = config.memory * evidence + (0.0 if gap is None else float(gap.sum()))
        with np.errstate(over="ignore"):
            beliefs.append(float(1 / (1 + np.exp(-(odds + evidence)))))
    moved = np.sign(advantage) * np.diff(beliefs)
    z = (moved - moved.mean()) / (moved.std() + 1e-6)
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] = (1 + config.slope * z).clip(
        1 - config.slope, 1 + config.slope
    )
    return weights
