"""One optimiser update: micro-batches through the model, gradients summed, checked and clipped.

Shapes: T = trained tokens of a micro-batch.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from pivotune.core.errors import NumericsError
from pivotune.models.forward import TreeLogprobs, token_logprobs
from pivotune.models.packing import FlatSignals, flatten_signals
from pivotune.train.batches import MicroBatch
from pivotune.train.losses import (
    FlatTargets,
    FlatTokens,
    LossConfig,
    LossSums,
    micro_batch_loss,
)

Path = Literal["tree", "plain"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A micro-batch with its tokens as tensors on the model's device."""

    trees: MicroBatch
    flat: FlatSignals
    tokens: FlatTokens

    @property
    def has_policy_gradient(self) -> bool:
        """Whether any token has a ratio; a likelihood-only micro-batch has none."""
        return bool((self.flat.pg_weights != 0).any())

    def token_name(self, position: int) -> str:
        """Says in a message which token stands at a flat position."""
        tree = self.trees[int(self.flat.tree[position])].id
        segment, index = int(self.flat.segment[position]), int(self.flat.index[position])
        return f"{tree}, segment {segment}, token {index}"


@dataclass(frozen=True, slots=True)
class UpdateSums:
    """What an update measured: its loss, and sums over its tokens."""

    loss: float
    tokens: LossSums
    entropy: float


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """How log-probabilities are computed: which path, under which autocast precision, and
    whether the backward pass computes activations again instead of keeping them."""

    path: Path
    precision: Precision
    recompute: bool = False

    def run(self, model: nn.Module, trees: MicroBatch, *, entropy: bool = False) -> TreeLogprobs:
        device = next(model.parameters()).device
        with _autocast(self.precision, device):
            return token_logprobs(
                model,
                trees,
                path=self.path,
                entropy=entropy,
                recompute=self.recompute and torch.is_grad_enabled(),
            )


def _autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def prepare(trees: MicroBatch, device: torch.device) -> Prepared:
    """Move a micro-batch's signals to the device; samples are numbered over all its trees."""
    flat = flatten_signals(trees)
    return Prepared(
        trees,
        flat,
        FlatTokens(
            pg_weights=torch.from_numpy(flat.pg_weights).to(device),
            ce_weights=torch.from_numpy(flat.ce_weights).to(device),
            advantages=torch.from_numpy(flat.advantages).to(device),
            sampled=torch.from_numpy(flat.behaviour).to(device),
            rows=torch.from_numpy(_row_numbers(flat)).to(device),
            targets=_targets(flat, device),
        ),
    )


def _targets(flat: FlatSignals, device: torch.device) -> FlatTargets | None:
    if not flat.target_ids.size:
        return None
    return FlatTargets(
        weights=torch.from_numpy(flat.kl_weights).to(device),
        probs=torch.from_numpy(flat.target_probs).to(device),
    )


def _row_numbers(flat: FlatSignals) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(T,) one number for each (tree, row) that occurs, from 0."""
    if len(flat) == 0:
        return np.zeros(0, np.int64)
    keys = flat.tree * (int(flat.row.max()) + 1) + flat.row
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = np.unique(keys, return_inverse=True)[1]
    return numbers


def score(model: nn.Module, batches: Sequence[Prepared], how: Pass) -> list[Tensor]:
    """Log-probabilities of every micro-batch without gradient."""
    with torch.no_grad():
        return [how.run(model, batch.trees).logprobs for batch in batches]


def with_reference(batches: Sequence[Prepared], logprobs: Sequence[Tensor]) -> list[Prepared]:
    """The micro-batches with the reference policy's log-probabilities."""
    pairs = zip(batches, logprobs, strict=True)
    return [replace(each, tokens=replace(each.tokens, reference=values)) for each, values in pairs]


def with_frozen(batches: Sequence[Prepared], logprobs: Sequence[Tensor]) -> list[Prepared]:
    """The micro-batches with the trainer's own log-probabilities at the start of the step."""
    pairs = zip(batches, logprobs, strict=True)
    return [replace(each, tokens=replace(each.tokens, frozen=values)) for each, values in pairs]


def backward(
    model: nn.Module, batches: Sequence[Prepared], how: Pass, config: LossConfig
) -> UpdateSums:
    """Add the update's gradient to the parameters; raises `NumericsError` on a bad loss."""
    loss_sum, sums, entropy_sum = 0.0, LossSums(), 0.0
    for batch in batches:
        trained = batch.tokens.pg_weights != 0
        result = how.run(model, batch.trees, entropy=batch.has_policy_gradient)
        loss, here = micro_batch_loss(result.logprobs, batch.tokens, config, result.targets)
        if not bool(torch.isfinite(loss)):
            raise _not_finite("the loss", batch.trees, loss)
        loss.backward()  # type: ignore[no-untyped-call]
        loss_sum += float(loss.detach())
        sums += here
        if result.entropies is not None:
            entropy_sum += float(result.entropies[trained].sum())
    return UpdateSums(loss_sum, sums, entropy_sum)


def clip(parameters: Sequence[nn.Parameter], batches: Sequence[Prepared], limit: float) -> float:
    """Scale the gradient down to `limit` in norm; its norm before. Raises on NaN and infinity."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    if not bool(torch.isfinite(norm)):
        raise _not_finite("the gradient", [tree for each in batches for tree in each.trees], norm)
    return float(norm)


def _not_finite(what: str, trees: Sequence[object], value: Tensor) -> NumericsError:
    names = sorted({str(getattr(tree, "id", "")) for tree in trees})
    return NumericsError(
        f"{what} is not finite",
        where=", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else ""),
        got=float(value.detach()),
        fix="lower the learning rate or look at these items; the last checkpoint is kept",
    )
