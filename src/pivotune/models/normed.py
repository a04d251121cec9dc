"""What an RMS norm gives is cheap to compute again, so that the layers which take it keep what it
was computed from, which the norm keeps anyway.

A norm notes that on its output; a layer with a backward pass of its own finds the note there.
Views and copies have none and are kept as they are.

Letters in names: N tokens, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Normed:
    """y = weight * x * scale for x (N, H), scale (N, 1) and weight (H,).

    `version` is y's when it was noted: y may be written to later.
    """

    x: Tensor
    scale: Tensor
    weight: Tensor
    version: int


def scaled(x_NH: Tensor, scale_N1: Tensor, weight_H: Tensor) -> Tensor:
    """The output of a norm."""
    return (x_NH * scale_N1).mul_(weight_H)


def note_normed(out_NH: Tensor, x_NH: Tensor, scale_N1: Tensor, weight_H: Tensor) -> None:
    """Notes on a norm's output what it was computed from."""
    noted: Any = out_NH
    noted.normed = Normed(x_NH.detach(), scale_N1, weight_H.detach(), out_NH._version)


def kept_input(x: Tensor) -> tuple[Tensor, ...]:
    """What a layer keeps for its backward pass in the place of its input."""
    normed: Normed | None = getattr(x, "normed", None)
    if normed is None or normed.version != x._version:
        return (x,)
    return normed.x, normed.scale, normed.weight


def kept_input_again(kept: Sequence[Tensor]) -> Tensor:
    """The input, bit for bit."""
    return kept[0] if len(kept) == 1 else scaled(*kept)
