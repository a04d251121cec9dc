"""Keys and values of prompts, and of the tokens that rows have sampled after them.

A prompt's keys lie in one slot of an arena, once, however many rows continue it; a row's own
tokens lie in its tail. Letters: Y layers, S slots, B rows, K key heads, C capacity, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What the model decides about a cache."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Memory of one token's keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def empty(self, rows: int, capacity: int) -> Tensor:
        """(Y, 2, rows, K, capacity, D): keys and values of all layers.

        Zeros, since a hidden key has weight 0 and 0 times garbage may be NaN.
        """
        size = (self.layers, 2, rows, self.kv_heads, capacity, self.head_dim)
        return torch.zeros(size, dtype=self.dtype, device=self.device)


class Arena:
    """Slots of one capacity. `data` is (Y, 2, S, K, C, D)."""

    def __init__(self, shape: CacheShape, slots: int, capacity: int) -> None:
        self._shape = shape
        self.data = shape.empty(slots, capacity)

    @property
    def slots(self) -> int:
        return self.data.shape[2]

    @property
    def capacity(self) -> int:
        return self.data.shape[4]

    @property
    def tokens(self) -> int:
        """Tokens that the arena has memory for."""
        return self.slots * self.capacity

    def grow(self, slots: int, capacity: int) -> None:
        """Make room, keeping what is there."""
        slots, capacity = max(slots, self.slots), max(capacity, self.capacity)
        if (slots, capacity) != (self.slots, self.capacity):
            data = self._shape.empty(slots, capacity)
            data[:, :, : self.slots, :, : self.capacity] = self.data
            self.data = data

    def append(self, slot: int, at: int, tail: Tensor) -> None:
        """Write (Y, 2, K, t, D) after the first `at` tokens of a slot."""
        self.data[:, :, slot, :, at : at + tail.shape[3]] = tail


class Tails:
    """The sampled tokens of live rows. `data` is (Y, 2, B, K, C, D); row i is live row i."""

    def __init__(self, shape: CacheShape) -> None:
        self._shape = shape
        self.data = shape.empty(0, 0)

    def reserve(self, rows: int, capacity: int) -> None:
        """Make room, keeping what is there; doubles, so that growth costs little."""
        had_rows, had = self.data.shape[2], self.data.shape[4]
        if rows <= had_rows and capacity <= had:
            return
        rows = had_rows if rows <= had_rows else max(rows, had_rows * 5 // 4)
        capacity = had if capacity <= had else max(capacity, 2 * had, 16)
        data = self._shape.empty(rows, capacity)
        data[:, :, :had_rows, :, :had] = self.data
        self.data = data

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Put the first `length` tokens of rows in the places of others."""
        if sources and length:
            source, target = torch.tensor(sources), torch.tensor(targets)
            self.data[:, :, target, :, :length] = self.data[:, :, source, :, :length]

    def of_row(self, row: int, length: int) -> Tensor:
        """(Y, 2, K, length, D), a view."""
        return self.data[:, :, row, :, :length]
