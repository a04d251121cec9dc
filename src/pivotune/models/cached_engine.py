"""Sampling over explicit caches: every prompt once, all rows in one decode batch.

    rows -> trunks (distinct prompts; a prompt that another one extends needs no trunk of its own)
         -> admitted while the token budget lasts, computed in packs, shared beginnings copied
         -> decoded together; finished rows leave, waiting trunks take their place

A session's slot outlives the call: the next prompt of an episode computes only what is new.

Letters in names: N tokens of a pack or live rows, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pivotune.models.attention import attention_set_to
from pivotune.models.cached_attention import (
    ATTENTION_NAME,
    Decode,
    Lanes,
    Piece,
    Place,
    Prefill,
    assign_lanes,
    block_masks,
)
from pivotune.models.kv_cache import Arena, CacheShape, Tails
from pivotune.models.kv_sessions import Session, SessionStore
from pivotune.models.rows import Ids, Row, draw_tokens

PACK_TOKENS = 2048
LOGITS_HELD = 1 << 26
MOST_ROWS = 1024
LEAST_SHARED = 16
CACHE_BYTES = 1 << 30
LEAST_FILLED = 0.8


@dataclass(slots=True, eq=False)
class Trunk:
    """One prompt to compute; its rows continue it after their `attach` tokens.

    `wanted` are the positions whose logits are needed. The first `known` tokens are in the slot
    already, or are copied from the slot of `source`.
    """

    ids: Ids
    rows: list[tuple[Row, int]] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    session_name: str = ""
    session: Session | None = None
    known: int = 0
    source: "Trunk | None" = None
    arena: Arena | None = None
    slot: int = 0

    @property
    def cost(self) -> int:
        """Tokens of cache that the trunk and its rows may fill."""
        return len(self.ids) + sum(row.limit for row, _ in self.rows)

    @property
    def longest(self) -> int:
        """Tokens of the prompt and its longest possible continuation."""
        return len(self.ids) + max(row.limit for row, _ in self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class Live:
    """A row in the decode batch. `session` is the one that keeps its tokens, if any."""

    row: Row
    place: Place
    session: Session | None

    @property
    def in_tail(self) -> int:
        """Tokens whose keys are in the tail: all but the last, which is fed next."""
        return len(self.row.tokens) - 1


class CachedEngine:
    """One model's engine; the caches of sessions live as long as it does."""

    def __init__(self, model: Any, token_budget: int | None) -> None:
        self._model = model
        config = model.config
        weight = next(model.parameters())
        head_dim = getattr(config, "head_dim", None)
        self._shape = CacheShape(
            layers=config.num_hidden_layers,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim or config.hidden_size // config.num_attention_heads,
            dtype=weight.dtype,
            device=weight.device,
        )
        self._fold = config.num_attention_heads // config.num_key_value_heads
        self._token_budget = token_budget or max(1, CACHE_BYTES // self._shape.token_bytes)
        self._most_rows = max(16, min(MOST_ROWS, LOGITS_HELD // config.vocab_size))
        self._store = SessionStore(self._shape, self._token_budget)

    @property
    def name(self) -> str:
        return "own cache, prompts once"

    @torch.inference_mode()
    def generate(self, rows: Sequence[Row], stop_ids: frozenset[int]) -> None:
        waiting = _plan(rows)
        busy = {row.session for row in rows}
        batch = _Batch(self._shape, self._fold)
        with attention_set_to(self._model, ATTENTION_NAME):
            while waiting or batch.live:
                while count := self._admissible(waiting, batch):
                    self._start(waiting[:count], batch, busy, stop_ids)
                    del waiting[:count]
                if batch.live:
                    self._step(batch, stop_ids)

    @torch.inference_mode()
    def action_logits(self, pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[tuple[int, Tensor]]:
        trunks: dict[Ids, Trunk] = {}
        askers: dict[int, list[int]] = {}
        for index, (prompt, action) in enumerate(pairs):
            trunk = trunks.setdefault(prompt + action, Trunk(prompt + action))
            trunk.wanted.extend(range(len(prompt) - 1, len(trunk.ids) - 1))
            askers.setdefault(id(trunk), []).append(index)
        for trunk in trunks.values():
            trunk.wanted = sorted(set(trunk.wanted))
        waiting = sorted(trunks.values(), key=lambda trunk: trunk.ids)
        with attention_set_to(self._model, ATTENTION_NAME):
            while waiting:
                count = _fitting(waiting, self._token_budget, self._most_rows)
                batch, waiting = waiting[:count], waiting[count:]
                self._place(batch, set())
                for trunk, logits_NV in zip(batch, self._compute(batch), strict=True):
                    for index in askers[id(trunk)]:
                        prompt, action = pairs[index]
                        first = trunk.wanted.index(len(prompt) - 1)
                        yield index, logits_NV[first : first + len(action)].float()

    def end_session(self, session: str) -> None:
        self._store.close(session)

    def forget(self) -> None:
        self._store.clear()

    def _admissible(self, waiting: Sequence[Trunk], batch: "_Batch") -> int:
        """How many trunks start now: while rows run, only when a good part has become free."""
        if not waiting:
            return 0
        free = self._token_budget - batch.tokens()
        free_rows = self._most_rows - len(batch.live)
        if batch.live:
            full = free < self._token_budget // 4 or free_rows < self._most_rows // 4
            if full or free < waiting[0].cost or free_rows < len(waiting[0].rows):
                return 0
        return _fitting(waiting, free, free_rows)

    def _start(
        self,
        trunks: Sequence[Trunk],
        batch: "_Batch",
        busy: set[str],
        stop_ids: frozenset[int],
    ) -> None:
        """Compute prompts, draw their rows' first tokens, add the rows to the batch."""
        self._place(trunks, busy)
        logits_NV = torch.cat(self._compute(trunks))
        live: list[Live] = []
        lines: list[int] = []
        offset = 0
        for trunk in trunks:
            assert trunk.arena is not None
            if trunk.session is not None:
                trunk.session.ids = trunk.ids
            keeper = trunk.session if len(trunk.rows) == 1 else None
            for row, attach in trunk.rows:
                live.append(Live(row, Place(trunk.arena, trunk.slot, attach), keeper))
                lines.append(offset + trunk.wanted.index(attach - 1))
            offset += len(trunk.wanted)
        index = torch.tensor(lines, device=logits_NV.device)
        draw_tokens(logits_NV.index_select(0, index), [one.row for one in live], stop_ids)
        batch.add(live)

    def _step(self, batch: "_Batch", stop_ids: frozenset[int]) -> None:
        """One token for every live row."""
        device = self._shape.device
        ids = [one.row.tokens[-1] for one in batch.live]
        positions = [one.place.attach + one.in_tail for one in batch.live]
        output = self._model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            cached=batch.decode(),
        )
        draw_tokens(output.logits[0], [one.row for one in batch.live], stop_ids)
        batch.remove_finished()

    def _place(self, trunks: Sequence[Trunk], busy: set[str]) -> None:
        """Give every trunk a slot and say what of it need not be computed."""
        sessions = [trunk for trunk in trunks if trunk.session_name]
        self._store.reserve({trunk.session_name: trunk.longest for trunk in sessions})
        for trunk in sessions:
            self._open_session(trunk, busy)
        arena, taken = None, 0
        plain = [trunk for trunk in trunks if trunk.session is None]
        for trunk in sorted(plain, key=lambda trunk: len(trunk.ids), reverse=True):
            length = len(trunk.ids)
            if arena is None or length < LEAST_FILLED * arena.capacity:
                fitting = sum(LEAST_FILLED * length <= len(t.ids) <= length for t in plain)
                arena, taken = Arena(self._shape, fitting, length), 0
            trunk.arena, trunk.slot = arena, taken
            taken += 1
        _share_beginnings(trunks)

    def _open_session(self, trunk: Trunk, busy: set[str]) -> None:
        session = self._store.open(trunk.session_name, trunk.longest, busy)
        if session is not None:
            trunk.session, trunk.arena, trunk.slot = session, self._store.arena, session.slot
            trunk.known = min(_common_length(session.ids, trunk.ids), trunk.wanted[0])
            session.ids = trunk.ids[: trunk.known]

    def _compute(self, trunks: Sequence[Trunk]) -> list[Tensor]:
        """Fill the slots; the logits (wanted, V) of each trunk."""
        parts: dict[int, list[Tensor]] = {id(trunk): [] for trunk in trunks}
        pack = _Pack(self._shape, self._fold)
        most_logits = LOGITS_HELD // self._model.config.vocab_size
        for trunk in sorted(trunks, key=lambda trunk: trunk.ids):
            for start in range(trunk.known, len(trunk.ids), PACK_TOKENS):
                stop = min(start + PACK_TOKENS, len(trunk.ids))
                wanted = sum(start <= position < stop for position in trunk.wanted)
                if pack.pieces and (
                    len(pack.ids) + stop - start > PACK_TOKENS
                    or len(pack.lines) + wanted > most_logits
                ):
                    pack.run(self._model, parts)
                    pack = _Pack(self._shape, self._fold)
                pack.add(trunk, start, stop)
        if pack.pieces:
            pack.run(self._model, parts)
        return [torch.cat(parts[id(trunk)]) for trunk in trunks]


class _Pack:
    """New tokens of several trunks, computed in one forward without padding."""

    def __init__(self, shape: CacheShape, fold: int) -> None:
        self._shape = shape
        self._fold = fold
        self.pieces: list[Piece] = []
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.lines: list[int] = []
        self._owners: list[tuple[Trunk, int]] = []

    def add(self, trunk: Trunk, start: int, stop: int) -> None:
        assert trunk.arena is not None
        first = len(self.ids)
        copied = trunk.source if start == trunk.known else None
        source = None
        if copied is not None and copied.arena is not None:
            source = (copied.arena, copied.slot)
        last = first + stop - start
        masks = block_masks(start, stop, self._fold, self._shape.dtype, self._shape.device)
        self.pieces.append(Piece(first, last, trunk.arena, trunk.slot, start, source, masks))
        self.ids.extend(trunk.ids[start:stop])
        self.positions.extend(range(start, stop))
        wanted = [first + p - start for p in trunk.wanted if start <= p < stop]
        self.lines.extend(wanted)
        self._owners.append((trunk, len(wanted)))

    def run(self, model: Any, parts: dict[int, list[Tensor]]) -> None:
        """Add each trunk's logits to its part."""
        keep = torch.tensor(self.lines or [0], device=self._shape.device)
        output = model(
            input_ids=torch.tensor([self.ids], device=self._shape.device),
            position_ids=torch.tensor([self.positions], device=self._shape.device),
            use_cache=False,
            logits_to_keep=keep,
            cached=Prefill(tuple(self.pieces)),
        )
        offset = 0
        for trunk, count in self._owners:
            if count:
                parts[id(trunk)].append(output.logits[0, offset : offset + count])
            offset += count


class _Batch:
    """The live rows and their tails."""

    def __init__(self, shape: CacheShape, fold: int) -> None:
        self._shape = shape
        self._fold = fold
        self._tails = Tails(shape)
        self._lanes: Lanes | None = None
        self.live: list[Live] = []

    def tokens(self) -> int:
        """Tokens of cache that are spoken for."""
        arenas = {id(one.place.arena): one.place.arena for one in self.live if not one.session}
        held = sum(arena.tokens for arena in arenas.values())
        return held + sum(one.row.limit for one in self.live)

    def add(self, live: Sequence[Live]) -> None:
        self.live.extend(live)
        self.remove_finished()
        self._lanes = None

    def decode(self) -> Decode:
        """What the attention function needs for the next step."""
        count = len(self.live)
        lengths = [one.in_tail for one in self.live]
        longest = max(lengths)
        uniform = min(lengths) == longest
        self._tails.reserve(count, longest + 1)
        if self._lanes is None:
            places = [one.place for one in self.live]
            self._lanes = assign_lanes(places, self._fold, self._shape.dtype)
        device = self._shape.device
        lengths_N = torch.tensor(lengths, device=device)
        mask = None
        if not uniform:
            hidden = torch.arange(longest + 1, device=device) > lengths_N[:, None, None, None]
            mask = torch.zeros(hidden.shape, dtype=self._shape.dtype, device=device)
            mask.masked_fill_(hidden, float("-inf"))
        rows_N = torch.arange(count, device=device)
        return Decode(self._lanes, self._tails, longest, lengths_N, rows_N, uniform, mask)

    def remove_finished(self) -> None:
        """Let finished rows go: sessions keep their tokens, the last rows fill the gaps."""
        done = [i for i, one in enumerate(self.live) if one.row.finish is not None]
        if not done:
            return
        for index in done:
            self._keep_tokens(index)
        kept = len(self.live) - len(done)
        gaps = [index for index in done if index < kept]
        movers = [i for i in range(kept, len(self.live)) if self.live[i].row.finish is None]
        self._tails.move(movers, gaps, max(self.live[i].in_tail for i in movers or [0]))
        for gap, mover in zip(gaps, movers, strict=True):
            self.live[gap] = self.live[mover]
        del self.live[kept:]
        self._lanes = None

    def _keep_tokens(self, index: int) -> None:
        one = self.live[index]
        if one.session is not None:
            if one.in_tail:
                tail = self._tails.of_row(index, one.in_tail)
                one.place.arena.append(one.place.slot, one.place.attach, tail)
            one.session.ids = (*one.row.prompt, *one.row.tokens[:-1])


def _plan(rows: Sequence[Row]) -> list[Trunk]:
    """Trunks with their rows: sessions first, then the others, long ones before short ones.

    The first prompt that names a session gets it; others with that name are on their own.
    """
    trunks: dict[tuple[Ids, str], Trunk] = {}
    prompts: dict[str, Ids] = {}
    for row in rows:
        owns = row.session and prompts.setdefault(row.session, row.prompt) == row.prompt
        name = row.session if owns else ""
        trunk = trunks.setdefault((row.prompt, name), Trunk(row.prompt, session_name=name))
        trunk.rows.append((row, len(row.prompt)))
    sessions = [trunk for trunk in trunks.values() if trunk.session_name]
    others: list[Trunk] = []
    plain = [trunk for trunk in trunks.values() if not trunk.session_name]
    for trunk in sorted(plain, key=lambda trunk: trunk.ids, reverse=True):
        if others and others[-1].ids[: len(trunk.ids)] == trunk.ids:
            others[-1].rows.extend(trunk.rows)
        else:
            others.append(trunk)
    others.sort(key=lambda trunk: len(trunk.ids), reverse=True)
    for trunk in (*sessions, *others):
        trunk.wanted = sorted({attach - 1 for _, attach in trunk.rows})
    return [*sessions, *others]


def _fitting(waiting: Sequence[Trunk], tokens: int, rows: int) -> int:
    """How many of the next trunks fit, at least one."""
    for count, trunk in enumerate(waiting):
        tokens -= trunk.cost
        rows -= len(trunk.rows)
        if count and (tokens < 0 or rows < 0):
            return count
    return len(waiting)


def _share_beginnings(trunks: Sequence[Trunk]) -> None:
    """Let a trunk copy what it has in common with the one before it in the order of ids."""
    ordered = sorted(trunks, key=lambda trunk: trunk.ids)
    for before, trunk in pairwise(ordered):
        common = min(_common_length(before.ids, trunk.ids), trunk.wanted[0])
        if common >= trunk.known + LEAST_SHARED:
            trunk.known, trunk.source = common, before


def _common_length(left: Ids, right: Ids) -> int:
    length = min(len(left), len(right))
    differ = np.flatnonzero(np.array(left[:length]) != np.array(right[:length]))
    return int(differ[0]) if len(differ) else length
