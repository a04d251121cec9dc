"""Which items of a finite pool a step visits: shuffled epochs as a function of (seed, step)."""

from collections.abc import Callable, Sequence, Set
from functools import lru_cache
from typing import TypeVar

import numpy as np

from pivotune.core.seeds import derive_seed
from pivotune.models.trees import Ints

T = TypeVar("T")


def draw_batch(pool: Sequence[T], count: int, *, seed: int, name: str, step: int) -> list[T]:
    """The `count` items of step `step`; every item once an epoch, in a new order each time.

    Batches run on across the end of an epoch, so a pool smaller than `count` repeats in a batch.
    """
    size = len(pool)
    if size == 0:
        return []
    places = range(step * count, (step + 1) * count)
    return [pool[int(_order(seed, name, place // size, size)[place % size])] for place in places]


def draw_others(
    pool: Sequence[T], count: int, *, taken: Set[str], key: Callable[[T], str], seed: int
) -> list[T]:
    """Up to `count` items whose key is not taken, drawn without replacement by the seed."""
    free = [item for item in pool if key(item) not in taken]
    chosen = np.random.default_rng(seed).permutation(len(free))[:count]
    return [free[int(i)] for i in chosen]


@lru_cache(maxsize=16)
def _order(seed: int, name: str, epoch: int, size: int) -> Ints:
    generator = np.random.default_rng(derive_seed(seed, name, "epoch", epoch))
    return generator.permutation(size)
