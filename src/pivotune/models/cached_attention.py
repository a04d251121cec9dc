"""Attention over explicit caches, as a function in transformers' attention interface.

Prompts are computed in packs of pieces without padding. A piece is a run of new tokens of one
slot: they see each other causally, and whatever the slot already holds before them. In decoding,
every live row has one query; rows that continue the same slot are folded into the query
dimension, so that a prompt's keys are read once for all of them. Each row's own tokens are a
second part, merged by log-sum-exp.

Letters in names: N tokens of a pack or live rows, A query heads, K key heads, Q = A / K, D head
size, S slots of a call, R lanes (places for rows) of a slot, L keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from pivotune.models.kv_cache import Arena, Tails

ATTENTION_NAME = "pivotune_cached"
CALL_COST = 2000
MIN_LANES = 4
PREFILL_BLOCK = 128

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Slots `first` to `last` (excluded) of a pack: tokens `start`… of an arena's slot.

    `source` (arena, slot) already holds the first `start` tokens; they are copied from there.
    `masks` are those of the piece's blocks (see `block_masks`).
    """

    first: int
    last: int
    arena: Arena
    slot: int
    start: int
    source: tuple[Arena, int] | None
    masks: tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Prefill:
    """A pack of pieces, in an order in which sources come before their copies."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """What a row continues: the first `attach` tokens of a slot."""

    arena: Arena
    slot: int
    attach: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One kernel call: slots `first` to `last` of an arena, their first `keys` tokens.

    `lanes` (S * R,) names the row in each lane; `mask` is (S, 1, 1 or R * Q, L) or None.
    """

    arena: Arena
    first: int
    last: int
    keys: int
    lanes: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """All calls of a batch; `back` (N,) finds each row's lane among the calls' lanes in turn."""

    calls: tuple[Call, ...]
    back: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Decode:
    """One step: tails hold `lengths` (N,) tokens of each row, `uniform` where all are equal.

    The step's own key goes to place `lengths`. `mask` is (N, 1, 1, longest + 1) or None.
    """

    lanes: Lanes
    tails: Tails
    longest: int
    lengths: Tensor
    rows: Tensor
    uniform: bool
    mask: Tensor | None


def cached_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    cached: "Prefill | Decode",
    **_unused: Any,
) -> tuple[Tensor, None]:
    """(1, A, N, D) queries, (1, K, N, D) keys and values -> (1, N, A, D)."""
    layer: Any = module.layer_idx
    query, key = query.to(value.dtype), key.to(value.dtype)
    if isinstance(cached, Prefill):
        return _attend_pieces(query, key, value, cached, layer, scaling), None
    return _attend_rows(query, key, value, cached, layer, scaling), None


def _no_mask(*_args: Any, **_kwargs: Any) -> None:
    """Pieces and lanes say what a token sees."""


AttentionInterface.register(ATTENTION_NAME, cached_attention)
AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


def attend(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention and its log-sum-exp in float32: (S, K, n, D) and (S, K, n).

    `mask` is added to the scores.
    """
    if query.device.type == "cpu":
        out, lse = _flash(query, key, value, 0.0, False, attn_mask=mask, scale=scaling)
        return out, lse
    return attend_by_matmul(query, key, value, scaling, mask)


def attend_by_matmul(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`attend` on devices other than the CPU."""
    scores = torch.matmul(query, key.transpose(2, 3)).float() * scaling
    if mask is not None:
        scores = scores + mask
    lse = scores.logsumexp(-1)
    weights = (scores - lse.unsqueeze(-1)).exp().to(value.dtype)
    return torch.matmul(weights, value), lse


def merge(out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> Tensor:
    """The attention over two disjoint sets of keys from the attention over each."""
    share = torch.sigmoid(lse - other_lse).unsqueeze(-1)
    return torch.lerp(other.float(), out.float(), share).to(out.dtype)


def _attend_pieces(
    query: Tensor, key: Tensor, value: Tensor, prefill: Prefill, layer: int, scaling: float
) -> Tensor:
    _, A, N, D = query.shape
    K = key.shape[1]
    out = query.new_empty(1, N, A, D)
    for piece in prefill.pieces:
        part = slice(piece.first, piece.last)
        keys, values = (
            piece.arena.data[layer, 0, piece.slot],
            piece.arena.data[layer, 1, piece.slot],
        )
        start, stop = piece.start, piece.start + piece.last - piece.first
        if piece.source is not None:
            arena, slot = piece.source
            keys[:, :start] = arena.data[layer, 0, slot, :, :start]
            values[:, :start] = arena.data[layer, 1, slot, :, :start]
        keys[:, start:stop] = key[0, :, part]
        values[:, start:stop] = value[0, :, part]
        queries = query[0, :, part].view(K, A // K, stop - start, D)
        out[0, part] = _attend_causally(queries, keys, values, piece, scaling)
    return out


def _attend_causally(
    query: Tensor, keys: Tensor, values: Tensor, piece: Piece, scaling: float
) -> Tensor:
    """(K, Q, n, D) queries of a piece over its slot's (K, C, D) -> (n, A, D).

    Block by block, each against the keys up to its end: nothing after a block is computed.
    """
    K, Q, n, D = query.shape
    out = query.new_empty(n, K, Q, D)
    for first, mask in zip(range(0, n, PREFILL_BLOCK), piece.masks, strict=True):
        last = min(first + PREFILL_BLOCK, n)
        size, seen = last - first, piece.start + last
        folded = query[:, :, first:last].reshape(1, K, Q * size, D)
        block, _ = attend(folded, keys[None, :, :seen], values[None, :, :seen], scaling, mask)
        out[first:last] = block.view(K, Q, size, D).permute(2, 0, 1, 3)
    return out.view(n, K * Q, D)


def block_masks(
    start: int, stop: int, fold: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor | None, ...]:
    """For each block of a piece (1, 1, fold * size, seen): what comes after a token is hidden."""
    masks: list[Tensor | None] = []
    for first in range(start, stop, PREFILL_BLOCK):
        seen = min(first + PREFILL_BLOCK, stop)
        size = seen - first
        if size == 1:
            masks.append(None)
            continue
        mask = torch.zeros(size, seen, dtype=dtype, device=device)
        mask[:, first:] = mask.new_full((size, size), float("-inf")).triu_(1)
        masks.append(mask.expand(fold, size, seen).reshape(1, 1, fold * size, seen))
    return tuple(masks)


def _attend_rows(
    query: Tensor, key: Tensor, value: Tensor, step: Decode, layer: int, scaling: float
) -> Tensor:
    _, A, N, D = query.shape
    K = key.shape[1]
    query_NA = query[0].transpose(0, 1).reshape(N, K, A // K, D)
    tail_keys, tail_values = step.tails.data[layer]
    new_key, new_value = key[0].transpose(0, 1), value[0].transpose(0, 1)
    if step.uniform:
        tail_keys[:N, :, step.longest] = new_key
        tail_values[:N, :, step.longest] = new_value
    else:
        tail_keys[step.rows, :, step.lengths] = new_key
        tail_values[step.rows, :, step.lengths] = new_value
    seen = step.longest + 1
    own, own_lse = attend(
        query_NA, tail_keys[:N, :, :seen], tail_values[:N, :, :seen], scaling, step.mask
    )
    trunk, trunk_lse = _attend_trunks(query_NA, step.lanes, layer, scaling)
    return merge(own, own_lse, trunk, trunk_lse).view(1, N, A, D)


def _attend_trunks(
    query_N: Tensor, lanes: Lanes, layer: int, scaling: float
) -> tuple[Tensor, Tensor]:
    """(N, K, Q, D) queries -> the same over the rows' prompts, and (N, K, Q)."""
    _, K, Q, D = query_N.shape
    outs, lses = [], []
    for call in lanes.calls:
        S = call.last - call.first
        R = len(call.lanes) // S
        folded = query_N.index_select(0, call.lanes).view(S, R, K, Q, D).transpose(1, 2)
        keys, values = call.arena.data[layer, :, call.first : call.last, :, : call.keys]
        out, lse = attend(folded.reshape(S, K, R * Q, D), keys, values, scaling, call.mask)
        outs.append(out.view(S, K, R, Q, D).transpose(1, 2).reshape(S * R, K, Q, D))
        lses.append(lse.view(S, K, R, Q).transpose(1, 2).reshape(S * R, K, Q))
    out_N = outs[0] if len(outs) == 1 else torch.cat(outs)
    lse_N = lses[0] if len(lses) == 1 else torch.cat(lses)
    return out_N.index_select(0, lanes.back), lse_N.index_select(0, lanes.back)


@dataclass(slots=True, eq=False)
class _Run:
    """Neighbouring slots that one call will take: rows by slot, and the most keys any sees."""

    arena: Arena
    rows: dict[int, list[int]]
    first: int
    last: int
    lanes: int
    keys: int

    def absorb(self, other: "_Run") -> bool:
        """Take over the run after this one if one call costs no more than two."""
        if other.arena is not self.arena:
            return False
        shared = len(self.rows.get(other.first, ())) + len(other.rows[other.first])
        lanes = max(self.lanes, other.lanes, shared)
        keys = max(self.keys, other.keys)
        apart = _call_cost(self.last - self.first, self.lanes, self.keys) + _call_cost(
            other.last - other.first, other.lanes, other.keys
        )
        if _call_cost(other.last - self.first, lanes, keys) > apart:
            return False
        for slot, members in other.rows.items():
            self.rows.setdefault(slot, []).extend(members)
        self.last, self.lanes, self.keys = other.last, lanes, keys
        return True


def _call_cost(slots: int, lanes: int, keys: int) -> int:
    """In units of one lane and one key; empty slots in between count."""
    return CALL_COST + slots * max(lanes, MIN_LANES) * keys


def assign_lanes(places: Sequence[Place], fold: int, dtype: torch.dtype) -> Lanes:
    """Group rows into few calls with little padding; `fold` is Q.

    Rows of one slot and prefix belong together; neighbours join where one call costs less.
    """
    arenas: dict[int, int] = {}
    groups: dict[tuple[int, int, int], list[int]] = {}
    for row, place in enumerate(places):
        arena = arenas.setdefault(id(place.arena), len(arenas))
        groups.setdefault((arena, place.slot, place.attach), []).append(row)
    runs: list[_Run] = []
    for (_, slot, attach), rows in sorted(groups.items()):
        arena_of = places[rows[0]].arena
        run = _Run(arena_of, {slot: rows}, slot, slot + 1, len(rows), attach)
        if not runs or not runs[-1].absorb(run):
            runs.append(run)
    back = np.zeros(len(places), np.int64)
    calls, offset = [], 0
    for run in runs:
        call = _make_call(run, places, fold, dtype, back, offset)
        calls.append(call)
        offset += len(call.lanes)
    device = places[0].arena.data.device
    return Lanes(tuple(calls), torch.from_numpy(back).to(device))


def _make_call(
    run: _Run,
    places: Sequence[Place],
    fold: int,
    dtype: torch.dtype,
    back: npt.NDArray[np.int64],
    offset: int,
) -> Call:
    """The call of a run; writes where its rows' lanes are into `back`."""
    size = (run.last - run.first, run.lanes)
    rows_SR = np.full(size, run.rows[run.first][0], np.int64)
    attach_SR = np.full(size, run.keys, np.int64)
    for slot, rows in run.rows.items():
        line = slot - run.first
        rows_SR[line, : len(rows)] = rows
        attach_SR[line] = places[rows[0]].attach
        attach_SR[line, : len(rows)] = [places[row].attach for row in rows]
        back[rows] = offset + line * run.lanes + np.arange(len(rows))
    device = run.arena.data.device
    mask = _lane_mask(attach_SR, run.keys, fold, dtype)
    return Call(
        run.arena,
        run.first,
        run.last,
        run.keys,
        torch.from_numpy(rows_SR.reshape(-1)).to(device),
        None if mask is None else mask.to(device),
    )


def _lane_mask(
    attach_SR: npt.NDArray[np.int64], keys: int, fold: int, dtype: torch.dtype
) -> Tensor | None:
    """Hides the keys after each lane's prefix; one line a slot where its lanes agree."""
    if (attach_SR == keys).all():
        return None
    if (attach_SR == attach_SR[:, :1]).all():
        lengths = torch.from_numpy(attach_SR[:, :1])
    else:
        lengths = torch.from_numpy(attach_SR).repeat_interleave(fold, dim=1)
    hidden = torch.arange(keys) >= lengths[:, None, :, None]
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
