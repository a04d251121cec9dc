"""Likelihood of ready token trees: pre-training, and any pool that is already in tokens."""

from collections.abc import Sequence

import msgspec

from pivotune.models.trees import TokenTree
from pivotune.train.objective import Collected, Materials, Stateless, required


class LikelihoodConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No settings: the trees of a step and their weights are the drawing function's."""


class Likelihood(Stateless):
    """Trains on `materials.draw(step)` as it is."""

    Config = LikelihoodConfig

    def __init__(self, materials: Materials, config: LikelihoodConfig) -> None:
        self._draw = required(materials.draw, "a drawing function", "likelihood")

    def collect(self, step: int) -> Collected:
        trees = self._draw(step)
        return Collected(trees, tree_lengths(trees))


def tree_lengths(trees: Sequence[TokenTree]) -> dict[str, float]:
    """Metrics on the size of a step."""
    tokens = [tree.token_count for tree in trees]
    return {"trees": len(tokens), "tree_tokens_mean": sum(tokens) / max(1, len(tokens))}
