"""Attention over packed token trees, as a function in transformers' attention interface.

On the CPU a token's attention is computed in two parts, each by the flash kernel: its own run
(causal) and the prefix that the run continues (all tokens that continue it at once, against the
prefix keys, which stay where they are). The parts are merged by their log-sum-exp. The backward
pass gives the merged output and log-sum-exp to the kernel's own backward for either part: the
softmax weights and the row sums of dO * O are then those of the whole row, so the gradients of
the parts add up. On other devices the same layout becomes a FlexAttention block mask.

Letters in names: T packed tokens, Q queries of forks, A query heads, K key heads, D head size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import AttentionInterface, AttentionMaskInterface

from pivotune.models.packing import TreeLayout

ATTENTION_NAME = "pivotune_tree"
IN_PIECES = range(256, 4096)
PIECE = 128
"""The CPU kernel takes 512 keys at once, also those that a causal query may not see: half of the
work on a run of 512. So runs of such lengths are computed in pieces."""

SUPPORTED_TYPES = ("llama", "qwen2", "qwen3", "smollm3")

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def supports_trees(model: Any) -> str | None:
    """None where the tree path computes this model's attention, else the reason why not."""
    config = model.config
    if config.model_type not in SUPPORTED_TYPES:
        return f"model type {config.model_type} is not among {', '.join(SUPPORTED_TYPES)}"
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"its layers use {', '.join(sorted(kinds))}"
    if config.attention_dropout:
        return f"attention dropout is {config.attention_dropout}"
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope in ("dynamic", "longrope"):
        return f"{rope} rotary embeddings depend on the length of the whole batch"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class BlockIndex:
    """A `Block` on the device: slots `start` to `stop`, as `rows` rows. `padded` and `real` are
    the indices of `Block.padded_slots` and `Block.real_places`; None where nothing is padded."""

    start: int
    stop: int
    rows: int
    padded: Tensor | None
    real: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class TreeIndex:
    """A layout ready for the attention function. `queries` (Q,) are the slots of all forks one
    after the other; a fork is (first query, last query + 1, stretches of prefix slots).

    `kept`: under activation checkpointing, the output and log-sum-exp of each layer's attention,
    from the first pass to the second: a layer's dearest part, and a small part of what it keeps.
    """

    blocks: tuple[BlockIndex, ...]
    queries: Tensor
    forks: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
    kept: dict[int, tuple[Tensor, Tensor]] | None = None


def tree_index(layout: TreeLayout, *, keep: bool = False) -> TreeIndex:
    """The index tensors of a layout, computed once for all layers."""
    blocks = []
    for block in layout.blocks:
        padded = torch.from_numpy(block.padded_slots()) if block.ragged else None
        real = torch.from_numpy(block.real_places()) if block.ragged else None
        blocks.append(BlockIndex(block.start, block.stop, len(block.lengths), padded, real))
    forks = []
    start = 0
    for fork in layout.forks:
        forks.append((start, start + len(fork.queries), fork.prefix))
        start += len(fork.queries)
    queries = [torch.from_numpy(fork.queries) for fork in layout.forks]
    joined = torch.cat(queries) if queries else torch.zeros(0, dtype=torch.int64)
    return TreeIndex(tuple(blocks), joined, tuple(forks), {} if keep else None)


def block_mask(layout: TreeLayout, device: torch.device) -> BlockMask:
    """The layout for FlexAttention: a token sees those that it continues, and itself."""
    enter = torch.from_numpy(layout.enter).to(device)
    leave = torch.from_numpy(layout.leave).to(device)

    def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (enter[key] <= enter[query]) & (enter[query] < leave[key])

    size = len(layout.enter)
    return create_block_mask(
        sees, None, None, size, size, device=device, _compile=device.type == "cuda"
    )


def attention_inputs(
    layout: TreeLayout, device: torch.device, *, keep: bool = False
) -> tuple[str, dict[str, Any]]:
    """The attention that computes a layout on this device: its name, and what it is given.

    `keep`: a second pass over the layers is to find what the first one attended to (CPU only).
    """
    if device.type == "cpu":
        return ATTENTION_NAME, {"tree": tree_index(layout, keep=keep)}
    return flex_inputs(layout, device)


def flex_inputs(
    layout: TreeLayout, device: torch.device, *, keep: bool = False
) -> tuple[str, dict[str, Any]]:
    """As `attention_inputs`, for FlexAttention."""
    return "flex_attention", {"attention_mask": block_mask(layout, device)}


@contextmanager
def attention_set_to(model: Any, name: str) -> Iterator[None]:
    """Switches a Hugging Face model's attention implementation, and back at the end."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    tree: TreeIndex,
    **_unused: Any,
) -> tuple[Tensor, None]:
    """(1, A, T, D) queries, (1, K, T, D) keys and values -> (1, T, A, D)."""
    query, key = query.to(value.dtype), key.to(value.dtype)
    packed = [x.squeeze(0).transpose(0, 1).contiguous() for x in (query, key, value)]
    layer: Any = getattr(module, "layer_idx", 0)
    attended: Tensor = _TreeAttention.apply(*packed, tree, scaling, layer)  # type: ignore[no-untyped-call]
    return attended.unsqueeze(0), None


def _no_mask(*_args: Any, **_kwargs: Any) -> None:
    """The layout says what a token sees."""


AttentionInterface.register(ATTENTION_NAME, tree_attention)
AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


class _TreeAttention(torch.autograd.Function):
    """(T, A, D), (T, K, D), (T, K, D) -> (T, A, D)."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        tree: TreeIndex,
        scaling: float,
        layer: int,
    ) -> Tensor:
        kept = None if tree.kept is None else tree.kept.pop(layer, None)
        out, lse = kept or _attend(query, key, value, tree, scaling)
        if tree.kept is not None and kept is None:
            tree.kept[layer] = out.detach(), lse
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.tree, ctx.scaling = tree, scaling
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        tree, scaling, (grad_out,) = ctx.tree, ctx.scaling, grads
        grad_query = torch.empty_like(query)
        # Many forks add to the same keys: in float32 whatever the model's dtype.
        grad_key = torch.empty_like(key, dtype=torch.float32)
        grad_value = torch.empty_like(value, dtype=torch.float32)
        for block in tree.blocks:
            rows = [_rows(x, block) for x in (query, key, value, out, lse)]
            parts = _causal_gradients(_gradient_rows(grad_out, block), *rows, scaling=scaling)
            for whole, part in zip((grad_query, grad_key, grad_value), parts, strict=True):
                _put_rows(whole, part, block)
        if tree.forks:
            saved = (grad_out, query, key, value, out, lse)
            _add_fork_gradients(grad_query, grad_key, grad_value, saved, tree, scaling)
        return grad_query, grad_key.to(key.dtype), grad_value.to(value.dtype), None, None, None


def _attend(
    query: Tensor, key: Tensor, value: Tensor, tree: TreeIndex, scaling: float
) -> tuple[Tensor, Tensor]:
    """The output (T, A, D) and its log-sum-exp (T, A)."""
    out = torch.empty_like(query)
    lse = query.new_empty(query.shape[:2], dtype=torch.float32)
    for block in tree.blocks:
        rows = [_rows(x, block) for x in (query, key, value)]
        block_out, block_lse = _attend_causally(*rows, scaling=scaling)
        _put_rows(out, block_out, block)
        _put_rows(lse, block_lse, block)
    if tree.forks:
        _merge_forks(out, lse, query, key, value, tree, scaling)
    return out, lse


def _attend_causally(
    query: Tensor, key: Tensor, value: Tensor, *, scaling: float
) -> tuple[Tensor, Tensor]:
    """Rows (R, A, n, D), (R, K, n, D) twice -> the output (R, A, n, D), its log-sum-exp (R, A, n).

    In pieces: each against itself, causally, and against everything before it.
    """
    if query.shape[2] not in IN_PIECES:
        out, lse = _flash(query, key, value, 0.0, True, scale=scaling)
        return out, lse
    out = torch.empty_like(query)
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    for start in range(0, query.shape[2], PIECE):
        own, queries, keys, values = _piece(start, query, key, value)
        part, part_lse = _flash(queries, keys, values, 0.0, True, scale=scaling)
        if start:
            before = key[:, :, :start], value[:, :, :start]
            earlier, earlier_lse = _flash(queries, *before, 0.0, False, scale=scaling)
            share = torch.sigmoid(earlier_lse - part_lse).unsqueeze(-1)
            part = torch.lerp(part.float(), earlier.float(), share)
            part_lse = torch.logaddexp(part_lse, earlier_lse)
        out[own], lse[own] = part, part_lse
    return out, lse


def _causal_gradients(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    scaling: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of query, key and value, from what `_attend_causally` was given and gave."""
    if query.shape[2] not in IN_PIECES:
        whole: tuple[Tensor, Tensor, Tensor] = _flash_backward(
            grad_out, query, key, value, out, lse, 0.0, True, scale=scaling
        )
        return whole
    grad_query = torch.empty_like(query)
    grad_key, grad_value = (torch.zeros_like(x, dtype=torch.float32) for x in (key, value))
    for start in range(0, query.shape[2], PIECE):
        own, grads, queries, keys, values, *known = _piece(
            start, grad_out, query, key, value, out, lse
        )
        part, part_key, part_value = _flash_backward(
            grads, queries, keys, values, *known, 0.0, True, scale=scaling
        )
        grad_key[own] += part_key
        grad_value[own] += part_value
        if start:
            before = key[:, :, :start], value[:, :, :start]
            more, part_key, part_value = _flash_backward(
                grads, queries, *before, *known, 0.0, False, scale=scaling
            )
            part = part + more
            grad_key[:, :, :start] += part_key
            grad_value[:, :, :start] += part_value
        grad_query[own] = part
    return grad_query, grad_key, grad_value


def _piece(start: int, *rows: Tensor) -> tuple[Any, ...]:
    """The index of a piece, and the piece of each of some rows (R, heads, n, …)."""
    own = (slice(None), slice(None), slice(start, start + PIECE))
    return own, *(each[own] for each in rows)


def _merge_forks(
    out: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tree: TreeIndex,
    scaling: float,
) -> None:
    """Brings the prefix into `out` and `lse`, which hold the runs' own part."""
    query_Q = query.index_select(0, tree.queries)
    prefix_out_Q = torch.empty_like(query_Q)
    prefix_lse_Q = lse.new_empty(query_Q.shape[:2])
    for first, last, prefix in tree.forks:
        keys, values = _stretches(key, prefix), _stretches(value, prefix)
        part, part_lse = _flash(
            _row(query_Q[first:last]), _row(keys), _row(values), 0.0, False, scale=scaling
        )
        prefix_out_Q[first:last] = _unrow(part)
        prefix_lse_Q[first:last] = _unrow(part_lse)
    own_lse_Q = lse.index_select(0, tree.queries)
    merged_Q = torch.logaddexp(own_lse_Q, prefix_lse_Q)
    own_share = (own_lse_Q - merged_Q).exp_().unsqueeze(-1)
    prefix_share = (prefix_lse_Q - merged_Q).exp_().unsqueeze(-1)
    merged_out_Q = out.index_select(0, tree.queries) * own_share + prefix_out_Q * prefix_share
    out.index_copy_(0, tree.queries, merged_out_Q.to(out.dtype))
    lse.index_copy_(0, tree.queries, merged_Q)


def _add_fork_gradients(
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    tree: TreeIndex,
    scaling: float,
) -> None:
    """`saved`: the output's gradient, query, key, value, merged output and log-sum-exp."""
    grad_out, query, key, value, out, lse = saved
    grad_out_Q, query_Q, out_Q, lse_Q = (
        x.index_select(0, tree.queries) for x in (grad_out, query, out, lse)
    )
    grad_query_Q = torch.empty_like(query_Q)
    for first, last, prefix in tree.forks:
        part_query, part_key, part_value = _flash_backward(
            _row(grad_out_Q[first:last]),
            _row(query_Q[first:last]),
            _row(_stretches(key, prefix)),
            _row(_stretches(value, prefix)),
            _row(out_Q[first:last]),
            _row(lse_Q[first:last]),
            0.0,
            False,
            scale=scaling,
        )
        grad_query_Q[first:last] = _unrow(part_query)
        _add_stretches(grad_key, _unrow(part_key), prefix)
        _add_stretches(grad_value, _unrow(part_value), prefix)
    grad_query.index_add_(0, tree.queries, grad_query_Q)


def _row(packed: Tensor) -> Tensor:
    """(n, heads, …) -> (1, heads, n, …), a view."""
    return packed.transpose(0, 1).unsqueeze(0)


def _unrow(row: Tensor) -> Tensor:
    """(1, heads, n, …) -> (n, heads, …), a view."""
    return row.squeeze(0).transpose(0, 1)


def _rows(packed: Tensor, block: BlockIndex) -> Tensor:
    """(T, heads, …) -> (rows, heads, longest, …); a view where the rows are equally long."""
    if block.padded is None:
        flat = packed[block.start : block.stop]
    else:
        flat = packed.index_select(0, block.padded)
    return _as_rows(flat, block)


def _gradient_rows(grad_out: Tensor, block: BlockIndex) -> Tensor:
    """As `_rows`, with zeros at the padding: a padded query must not move a key."""
    if block.padded is None or block.real is None:
        return _rows(grad_out, block)
    flat = grad_out.new_zeros(len(block.padded), *grad_out.shape[1:])
    flat.index_copy_(0, block.real, grad_out[block.start : block.stop])
    return _as_rows(flat, block)


def _as_rows(flat: Tensor, block: BlockIndex) -> Tensor:
    return flat.view(block.rows, -1, *flat.shape[1:]).transpose(1, 2)


def _put_rows(packed: Tensor, rows: Tensor, block: BlockIndex) -> None:
    """The real places of (rows, heads, longest, …) into the block's slots."""
    flat = rows.transpose(1, 2).flatten(0, 1)
    if block.real is not None:
        flat = flat.index_select(0, block.real)
    packed[block.start : block.stop] = flat


def _stretches(packed: Tensor, prefix: tuple[tuple[int, int], ...]) -> Tensor:
    if len(prefix) == 1:
        return packed[prefix[0][0] : prefix[0][1]]
    return torch.cat([packed[start:stop] for start, stop in prefix])


def _add_stretches(packed: Tensor, part: Tensor, prefix: tuple[tuple[int, int], ...]) -> None:
    done = 0
    for start, stop in prefix:
        packed[start:stop] += part[done : done + stop - start]
        done += stop - start
