"""SOD: on-policy distillation that trusts steps less once the student has left the teacher.

    d_k = mean |gap| in step k
    w_k = min(prod_{u<k} (d_u + eps) / (d_{u+1} + eps), 1.5)            A = w_k * gap

Known from a third-party port only. As written the product telescopes to
(d_1 + eps) / (d_k + eps): steps that differ more than the first weigh less.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pivotune.models.trees import Floats
from pivotune.train.episodes import EpisodeGroup, Shaped, all_rows
from pivotune.train.taught import Gaps, TaughtConfig, TaughtObjective


class SodConfig(TaughtConfig, frozen=True, forbid_unknown_fields=True):
    """Numbers of the port; eps is ours."""

    source: Literal["hint", "model"] = "model"
    most: float = 1.5
    """Largest weight of a step."""
    eps: float = 1e-6
    """Added to every distance."""


class Sod(TaughtObjective):
    """Weighs the gaps of each turn."""

    name = "sod"
    Config = SodConfig

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        rows = all_rows(groups)
        taught = self.teach(rows, step)
        weighed = [
            row.with_advantages(weighed_gaps(gaps, self.config))
            for row, gaps in zip(rows, taught.gaps, strict=True)
        ]
        return Shaped(weighed, (), taught.metrics, phases=taught.phases)


def weighed_gaps(gaps: Gaps, config: SodConfig) -> list[Floats | None]:
    """Gaps times the weights of their steps; steps without a gap are passed over."""
    found: list[Floats | None] = []
    product, before = 1.0, None
    for gap in gaps:
        if gap is None:
            found.append(None)
            continue
        distance = float(np.abs(gap).mean()) + config.eps
        product *= 1.0 if before is None else before / distance
        before = distance
        found.append((min(product, config.most) * gap).astype(np.float32))
    return found
