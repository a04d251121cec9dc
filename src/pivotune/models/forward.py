"""The training pass: log-probabilities of the trained tokens of token trees.

`token_logprobs(model, trees)` runs the model over a micro-batch of trees and returns one
float32 log-probability for every live token, with gradients, in the order of `flatten_signals`.
Two paths give the same numbers: `tree` computes every token of a tree once, `plain` computes
one ordinary row per root-to-leaf sequence and is the one that is obviously right.

Letters in names: N live tokens, H hidden size, V vocabulary, B rows, L row length.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from pivotune.core.errors import DataError, ModelError, NumericsError
from pivotune.models.attention import (
    attention_inputs,
    attention_set_to,
    supports_trees,
)
from pivotune.models.lean import mlp_outputs_left_out
from pivotune.models.packing import FlatSignals, flatten_signals, plain_layout, tree_layout
from pivotune.models.trees import Segment, Signal, Targets, TokenTree, path_ids, path_length

TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.5}
"""How far the two paths' log-probabilities may be apart in a run. Measured on random models of
16 layers: up to 2e-5 in float32; up to 0.3, 0.05 in the mean, in bfloat16, which keeps 8 bits of
every hidden value on either path. Small float32 models agree to 1e-5."""

LOGITS_PER_CHUNK = 1 << 25
"""Logits held at once where the caller names no chunk: 128 MB in float32."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeLogprobs:
    """What a pass returns: `logprobs` (N,) float32 with gradients, `entropies` (N,) without.

    All are at the tokens' temperatures; `signals` holds what else is known of the same tokens.
    `targets` (N, K), with gradients, are log-probs of the targets' tokens, None where K is 0.
    """

    logprobs: Tensor
    entropies: Tensor | None
    signals: FlatSignals
    targets: Tensor | None = None


def validate_tree(tree: TokenTree, *, vocabulary: int, context_limit: int) -> None:
    """Raises `DataError` or `NumericsError`, naming the tree, for a tree that cannot be trained.

    Empty branches are legal.
    """
    if not tree.segments or len(tree.segments[0].ids) == 0:
        raise DataError("the trunk is empty", where=tree.id, expected="at least one token")
    for index, segment in enumerate(tree.segments):
        _validate_place(tree, index, segment)
        _validate_tokens(f"{tree.id}, segment {index}", segment, vocabulary)
        length = path_length(tree, index)
        if length > context_limit:
            raise DataError(
                "the sequence is longer than the context",
                where=f"{tree.id}, segment {index}",
                got=f"{length} tokens",
                expected=f"at most {context_limit}",
                fix="leave the turn out, or declare a window of the history",
            )
    if tree.segments[0].signal.live[0]:
        raise DataError(
            "the first token of a trunk is predicted by nothing and cannot be trained",
            where=tree.id,
            fix="give it weight 0",
        )


def _validate_place(tree: TokenTree, index: int, segment: Segment) -> None:
    if index == 0:
        if segment.parent >= 0:
            raise DataError("the trunk has a parent", where=tree.id, got=segment.parent)
        return
    where = f"{tree.id}, segment {index}"
    if not 0 <= segment.parent < index:
        raise DataError(
            "a branch must come after its parent",
            where=where,
            got=f"parent {segment.parent}",
            expected=f"0 to {index - 1}",
        )
    parent_length = len(tree.segments[segment.parent].ids)
    if not 1 <= segment.attach <= parent_length:
        raise DataError(
            f"a branch attaches at a position that segment {segment.parent} does not have",
            where=where,
            got=f"attach {segment.attach}",
            expected=f"1 to {parent_length}",
        )


def _validate_tokens(where: str, segment: Segment, vocabulary: int) -> None:
    ids, signal = segment.ids, segment.signal
    outside = (ids < 0) | (ids >= vocabulary)
    if outside.any():
        raise DataError(
            "a token id outside the model's vocabulary",
            where=where,
            got=int(ids[outside][0]),
            expected=f"0 to {vocabulary - 1}",
            fix="use the tokenizer that belongs to the model",
        )
    arrays = {
        "pg_weights": signal.pg_weights,
        "advantages": signal.advantages,
        "behaviour": signal.behaviour,
        "ce_weights": signal.ce_weights,
    }
    for name, values in arrays.items():
        if values.shape != ids.shape:
            raise DataError(
                f"{name} does not match the tokens",
                where=where,
                got=f"shape {values.shape}",
                expected=f"{ids.shape}",
            )
        bad = np.isinf(values) if name == "behaviour" else ~np.isfinite(values)
        if bad.any():
            raise NumericsError(
                f"{name} is not a finite number",
                where=f"{where}, token {int(np.flatnonzero(bad)[0])}",
                got=float(values[bad][0]),
            )
    if signal.targets is not None:
        _validate_targets(where, signal.targets, len(ids), vocabulary)
    if not (np.isfinite(signal.temperature) and signal.temperature > 0):
        raise NumericsError(
            "a temperature that log-probabilities do not exist at",
            where=where,
            got=signal.temperature,
            expected="a finite number above 0",
        )


def _validate_targets(where: str, targets: Targets, length: int, vocabulary: int) -> None:
    shapes = (targets.ids.shape[:1], targets.probs.shape[:1], targets.weights.shape)
    sums = targets.probs.sum(1)
    good = (
        shapes == ((length,),) * 3
        and targets.ids.shape == targets.probs.shape
        and bool(((targets.ids >= 0) & (targets.ids < vocabulary)).all())
        and bool((targets.probs >= 0).all() and (sums <= 1 + 1e-3).all())
        and bool(np.isfinite(targets.weights).all())
    )
    if not good:
        raise DataError(
            "targets that are no distributions over the model's tokens",
            where=where,
            got=f"shapes {shapes}, sums up to {float(sums.max(initial=0)):.4g}",
            expected=f"{length} rows of token ids with probabilities that sum to at most 1",
        )


def token_logprobs(
    model: nn.Module,
    trees: Sequence[TokenTree],
    *,
    path: Literal["tree", "plain"] = "tree",
    entropy: bool = False,
    chunk: int | None = None,
    recompute: bool = False,
) -> TreeLogprobs:
    """Log-probabilities of all live tokens of all trees, in one graph.

    `chunk` is the number of tokens whose logits are held at once. `recompute` keeps only the
    layers' inputs, on the CPU's tree path also what attention gave, and computes the rest again in
    the backward pass (activation checkpointing).
    The trees are taken as valid (see `validate_tree`).
    Without a live token nothing is computed and `logprobs` has no gradient. Raises `ModelError`
    where `path` is "tree" and the model cannot take it (see `supports_trees`).
    """
    base = _base_model(model)
    signals = flatten_signals(trees)
    device = next(base.parameters()).device
    if len(signals) == 0:
        hidden_NH = torch.zeros(0, base.config.hidden_size, dtype=base.dtype, device=device)
    elif path == "tree":
        hidden_NH = _tree_hidden(base, trees, signals, device, recompute)
    else:
        hidden_NH = _plain_hidden(base, trees, signals, device, recompute)
    targets = torch.from_numpy(signals.ids).to(device)
    plain_softmax = bool((signals.temperature == 1).all())
    temperature = None if plain_softmax else torch.from_numpy(signals.temperature).to(device)
    others = torch.from_numpy(signals.target_ids).to(device) if signals.target_ids.size else None
    logprobs, entropies, other_logprobs = _apply_head(
        base.get_output_embeddings(), hidden_NH, targets, others, temperature, entropy, chunk
    )
    return TreeLogprobs(logprobs, entropies, signals, other_logprobs)


def _base_model(model: nn.Module) -> Any:
    """The Hugging Face causal LM under an adapter wrapper."""
    wrapped: Any = model
    base = wrapped.get_base_model() if hasattr(wrapped, "get_base_model") else wrapped
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(base.config, name, None) is not None:
            raise ModelError(
                f"logits that are changed after the output layer ({name}) are not supported",
                where=type(base).__name__,
            )
    return base


def _tree_hidden(
    base: Any,
    trees: Sequence[TokenTree],
    signals: FlatSignals,
    device: torch.device,
    recompute: bool,
) -> Tensor:
    """(N, H) the hidden state that predicts each live token, each token computed once."""
    reason = supports_trees(base)
    if reason is not None:
        raise ModelError(
            "the tree path does not support this model",
            where=type(base).__name__,
            got=reason,
            fix="use the plain path",
        )
    layout = tree_layout(trees, signals)
    inputs = {
        "input_ids": torch.from_numpy(layout.input_ids).to(device)[None],
        "position_ids": torch.from_numpy(layout.position_ids).to(device)[None],
    }
    name, seen = attention_inputs(layout, device, keep=recompute)
    with attention_set_to(base, name), _recomputing(base, recompute, name):
        output = base.base_model(**inputs, **seen, use_cache=False)
    predictors = torch.from_numpy(layout.predictors).to(device)
    hidden_NH: Tensor = output.last_hidden_state[0].index_select(0, predictors)
    return hidden_NH


def _plain_hidden(
    base: Any,
    trees: Sequence[TokenTree],
    signals: FlatSignals,
    device: torch.device,
    recompute: bool,
) -> Tensor:
    """(N, H) the hidden state that predicts each live token, one row per sequence."""
    layout = plain_layout(trees, signals)
    pieces, order, slot = [], [], 0
    for batch in layout.batches:
        input_ids = torch.from_numpy(batch).to(device)
        with _recomputing(base, recompute, base.config._attn_implementation):
            output = base.base_model(input_ids=input_ids, use_cache=False)
        here = np.flatnonzero((layout.predictors >= slot) & (layout.predictors < slot + batch.size))
        index = torch.from_numpy(layout.predictors[here] - slot).to(device)
        pieces.append(output.last_hidden_state.flatten(0, 1).index_select(0, index))
        order.append(here)
        slot += batch.size
    back = np.argsort(np.concatenate(order))
    return torch.cat(pieces).index_select(0, torch.from_numpy(back).to(device))


@contextmanager
def _recomputing(base: Any, wanted: bool, attention: str) -> Iterator[None]:
    """Activation checkpointing for one forward pass; the second one, during the backward pass,
    uses the same attention and leaves out what only a layer's output needs."""
    layers = [layer for layer in base.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if any(layer.gradient_checkpointing for layer in layers):
        raise ModelError(
            "the model has activation checkpointing of its own on",
            where=type(base).__name__,
            expected="checkpointing left to this pass, which knows its attention",
            fix="turn it off in the model and ask for `recompute`",
        )
    if not wanted:
        yield
        return
    modes = [layer.training for layer in layers]
    for layer in layers:
        # transformers checkpoints layers in training mode only. This sets the layer, not what
        # is in it, so dropout stays as it is.
        layer.gradient_checkpointing = layer.training = True
        layer._gradient_checkpointing_func = partial(
            checkpoint,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), _second_pass(base, attention)),
        )
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.gradient_checkpointing, layer.training = False, mode


@contextmanager
def _second_pass(base: Any, attention: str) -> Iterator[None]:
    with attention_set_to(base, attention), mlp_outputs_left_out():
        yield


def _apply_head(
    head: nn.Linear,
    hidden_NH: Tensor,
    targets: Tensor,
    others_NK: Tensor | None,
    temperature: Tensor | None,
    entropy: bool,
    chunk: int | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Chunk by chunk; with more than one chunk the logits are computed again in the backward."""
    count = len(targets)
    size = chunk or max(1, LOGITS_PER_CHUNK // head.weight.shape[0])
    if count <= size:
        return _chunk_logprobs(head, hidden_NH, targets, others_NK, temperature, entropy)
    found: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
    for start in range(0, count, size):
        part = slice(start, start + size)
        found.append(
            checkpoint(
                _chunk_logprobs,
                head,
                hidden_NH[part],
                targets[part],
                None if others_NK is None else others_NK[part],
                None if temperature is None else temperature[part],
                entropy,
                use_reentrant=False,
            )
        )
    logprobs, entropies, others = zip(*found, strict=True)
    return (
        torch.cat(logprobs),
        torch.cat(entropies) if entropy else None,
        None if others_NK is None else torch.cat(others),
    )


def _chunk_logprobs(
    head: nn.Linear,
    hidden_NH: Tensor,
    targets: Tensor,
    others_NK: Tensor | None,
    temperature: Tensor | None,
    entropy: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    logits_NV = head(hidden_NH).float()
    if temperature is not None:
        logits_NV = logits_NV / temperature[:, None]
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    chosen = logprobs_NV.gather(1, targets[:, None]).squeeze(1)
    others = None if others_NK is None else logprobs_NV.gather(1, others_NK)
    if not entropy:
        return chosen, None, others
    with torch.no_grad():
        entropies = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
    return chosen, entropies, others


def self_check(model: nn.Module, trees: Sequence[TokenTree]) -> float:
    """The largest difference of a log-probability between the two paths, on two rows.

    The rows are the last trained segments of the two trees with the most segments (two segments
    where there is one tree); the tree path computes the whole trees. Raises `NumericsError`
    where the difference is over `TOLERANCE` of the dtype that is computed in.
    """
    chosen = sorted(trees, key=lambda tree: len(tree.segments), reverse=True)[:2]
    rows = [(tree, index) for tree in chosen for index in _trained(tree)[-2 // len(chosen) :]]
    dtype = _computing_dtype(next(model.parameters()))
    with torch.no_grad():
        plain = token_logprobs(model, [_as_row(tree, i) for tree, i in rows], path="plain")
        fast = token_logprobs(model, chosen, path="tree")
    worst, done = 0.0, 0
    for tree, index in rows:
        place = chosen.index(tree)
        here = np.flatnonzero((fast.signals.tree == place) & (fast.signals.segment == index))
        ours = fast.logprobs[torch.from_numpy(here).to(fast.logprobs.device)]
        difference = (ours - plain.logprobs[done : done + len(here)]).abs()
        done += len(here)
        token = int(difference.argmax())
        largest = float(difference[token])
        worst = max(worst, largest)
        if not largest <= TOLERANCE[dtype]:
            raise NumericsError(
                "the tree path differs from the plain path",
                where=f"{tree.id}, segment {index}, token {int(fast.signals.index[here[token]])}",
                got=f"log-probabilities {largest:.3g} apart",
                expected=f"at most {TOLERANCE[dtype]:g} in {str(dtype).removeprefix('torch.')}",
                fix="train on the plain path",
            )
    return worst


def _computing_dtype(parameter: Tensor) -> torch.dtype:
    kind = parameter.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else parameter.dtype


def _trained(tree: TokenTree) -> list[int]:
    return [i for i, segment in enumerate(tree.segments) if segment.signal.live.any()]


def _as_row(tree: TokenTree, index: int) -> TokenTree:
    """The sequence that ends with a segment as a tree of its own; only the segment is trained."""
    ids, signal = path_ids(tree, index), tree.segments[index].signal
    before = len(ids) - len(signal.ce_weights)
    weights = np.concatenate([np.zeros(before, np.float32), signal.live.astype(np.float32)])
    zeros = np.zeros_like(weights)
    row = Segment(ids, Signal(zeros, zeros, zeros, weights, signal.temperature))
    return TokenTree(tree.id, (row,))
