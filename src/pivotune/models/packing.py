"""Where the tokens of a list of trees stand in what the model computes. numpy only.

A *run* is a chain of segments laid end to end: a segment is followed by the longest child that
attaches at its full length, so that a trunk and one of its branches, or the turns of an episode,
are one run. Every non-empty segment belongs to exactly one run.

    trunk ──── branch 1          run 0 (trunk, branch 1)
          └─── branch 2          run 1, parent run 0, attach len(trunk)

The plain path computes one row per run; the tree path computes the tokens of each run once.
Both say, for every token that is trained, the slot whose hidden state predicts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pivotune.models.trees import Floats, Ints, Segment, Signal, TokenTree


@dataclass(frozen=True, slots=True, eq=False)
class FlatSignals:
    """The live tokens of some trees in the order (tree, segment, index); arrays of shape (n,).

    `tree` and `segment` count from 0 in the list and in the tree, `index` in the segment. `ids`
    are the tokens themselves; the rest is their `Signal`. `target_ids` and `target_probs` have
    shape (n, K), K = 0 where no tree has targets.
    """

    tree: Ints
    segment: Ints
    index: Ints
    ids: Ints
    pg_weights: Floats
    advantages: Floats
    behaviour: Floats
    ce_weights: Floats
    temperature: Floats
    row: Ints
    kl_weights: Floats
    target_ids: Ints
    target_probs: Floats

    def __len__(self) -> int:
        return len(self.ids)


def flatten_signals(trees: Sequence[TokenTree]) -> FlatSignals:
    """Every live token of every segment, in the order of the log-probabilities."""
    segments = [segment for tree in trees for segment in tree.segments]
    lengths = np.array([len(segment.ids) for segment in segments], np.int64)
    signals = [segment.signal for segment in segments]
    pg_weights = _join([signal.pg_weights for signal in signals], np.float32)
    ce_weights = _join([signal.ce_weights for signal in signals], np.float32)
    kl_weights, target_ids, target_probs = _join_targets(signals, lengths)
    live = np.flatnonzero((pg_weights != 0) | (ce_weights != 0) | (kl_weights != 0))
    owner = np.repeat(np.arange(len(segments)), lengths)[live]
    starts = np.cumsum(lengths) - lengths
    tree_of = np.repeat(np.arange(len(trees)), [len(tree.segments) for tree in trees])
    segment_of = _join([np.arange(len(tree.segments)) for tree in trees], np.int64)
    temperatures = np.array([signal.temperature for signal in signals], np.float32)
    rows = np.array([signal.row for signal in signals], np.int64)
    return FlatSignals(
        tree=tree_of[owner],
        segment=segment_of[owner],
        index=live - starts[owner],
        ids=_join([segment.ids for segment in segments], np.int64)[live],
        pg_weights=pg_weights[live],
        advantages=_join([signal.advantages for signal in signals], np.float32)[live],
        behaviour=_join([signal.behaviour for signal in signals], np.float32)[live],
        ce_weights=ce_weights[live],
        temperature=temperatures[owner],
        row=rows[owner],
        kl_weights=kl_weights[live],
        target_ids=target_ids[live],
        target_probs=target_probs[live],
    )


def _join_targets(signals: Sequence[Signal], lengths: Ints) -> tuple[Floats, Ints, Floats]:
    """Weights (n,), ids and probabilities (n, K) of all tokens; K is the largest."""
    total = int(lengths.sum())
    widest = max((each.targets.ids.shape[1] for each in signals if each.targets), default=0)
    weights = np.zeros(total, np.float32)
    ids, probs = np.zeros((total, widest), np.int64), np.zeros((total, widest), np.float32)
    start = 0
    for signal, length in zip(signals, lengths.tolist(), strict=True):
        if signal.targets is not None:
            here, width = slice(start, start + length), signal.targets.ids.shape[1]
            weights[here] = signal.targets.weights
            ids[here, :width] = signal.targets.ids
            probs[here, :width] = signal.targets.probs
        start += length
    return weights, ids, probs


def _join(arrays: Sequence[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Tokens that follow each other. `parent` is a run before this one (-1: none).

    The run sees the first `start` tokens of its parent's path; `attach` of them lie in the
    parent run itself. `last_live` is the index of its last live token (-1: none): the tokens
    from there on predict nothing that is trained.
    """

    ids: Ints
    parent: int
    attach: int
    start: int
    last_live: int


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The runs of a list of trees, and where each segment lies in them.

    `run` (-1: an empty segment) and `offset` have shape (segments of all trees,).
    """

    runs: tuple[Run, ...]
    run: Ints
    offset: Ints


def split_runs(trees: Sequence[TokenTree]) -> Runs:
    """The runs of all trees; parents stand before their children."""
    runs: list[Run] = []
    run_of: list[int] = []
    offset_of: list[int] = []
    for tree in trees:
        base = len(run_of)
        run_of += [-1] * len(tree.segments)
        offset_of += [0] * len(tree.segments)
        for chain in _chains(tree):
            offset = 0
            for index in chain:
                run_of[base + index] = len(runs)
                offset_of[base + index] = offset
                offset += len(tree.segments[index].ids)
            first = tree.segments[chain[0]]
            parent = run_of[base + first.parent] if first.parent >= 0 else -1
            attach = offset_of[base + first.parent] + first.attach if parent >= 0 else 0
            start = runs[parent].start + attach if parent >= 0 else 0
            runs.append(_run([tree.segments[i] for i in chain], parent, attach, start))
    return Runs(tuple(runs), np.array(run_of, np.int64), np.array(offset_of, np.int64))


def _chains(tree: TokenTree) -> list[list[int]]:
    """The segments of each run."""
    following = _following(tree)
    followers = set(following.values())
    chains: list[list[int]] = []
    for index, segment in enumerate(tree.segments):
        if index in followers or len(segment.ids) == 0:
            continue
        chain = [index]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        chains.append(chain)
    return chains


def _following(tree: TokenTree) -> dict[int, int]:
    """For a segment the longest non-empty child that attaches at its very end, where any does."""
    following: dict[int, int] = {}
    for index, segment in enumerate(tree.segments):
        parent = segment.parent
        if parent < 0 or len(segment.ids) == 0 or segment.attach < len(tree.segments[parent].ids):
            continue
        best = following.get(parent)
        if best is None or len(segment.ids) > len(tree.segments[best].ids):
            following[parent] = index
    return following


def _run(members: Sequence[Segment], parent: int, attach: int, start: int) -> Run:
    ids = np.concatenate([member.ids for member in members])
    live = np.flatnonzero(np.concatenate([member.signal.live for member in members]))
    return Run(ids, parent, attach, start, int(live[-1]) if len(live) else -1)


@dataclass(frozen=True, slots=True, eq=False)
class PlainLayout:
    """Batches of rows, and the slot that predicts each live token.

    A batch is (rows, length), padded on the right with token 0: padding stands after every real
    token, so causal attention needs no mask. Slots count over the flattened batches one after
    the other.
    """

    batches: tuple[Ints, ...]
    predictors: Ints


def plain_layout(
    trees: Sequence[TokenTree], signals: FlatSignals, *, batch_tokens: int = 16_384
) -> PlainLayout:
    """One row for every run that is trained, longest first, `batch_tokens` slots at most a batch
    (a longer row is a batch of its own)."""
    split = split_runs(trees)
    paths = _paths(split.runs)
    needed = {
        i: run.start + run.last_live for i, run in enumerate(split.runs) if run.last_live >= 0
    }
    queue = sorted(needed, key=lambda index: needed[index], reverse=True)
    row_starts = np.zeros(len(split.runs), np.int64)
    batches: list[Ints] = []
    slot = 0
    while queue:
        width = needed[queue[0]]
        count = max(1, batch_tokens // width)
        members, queue = queue[:count], queue[count:]
        batch = np.zeros((len(members), width), np.int64)
        for row, index in enumerate(members):
            batch[row, : needed[index]] = paths[index][: needed[index]]
            row_starts[index] = slot + row * width
        batches.append(batch)
        slot += batch.size
    starts = np.array([run.start for run in split.runs], np.int64)
    segment_starts = (row_starts + starts)[split.run] + split.offset
    return PlainLayout(tuple(batches), segment_starts[_owners(trees, signals)] + signals.index - 1)


def _paths(runs: Sequence[Run]) -> list[Ints]:
    paths: list[Ints] = []
    for run in runs:
        prefix = [] if run.parent < 0 else [paths[run.parent][: run.start]]
        paths.append(np.concatenate([*prefix, run.ids]))
    return paths


def _owners(trees: Sequence[TokenTree], signals: FlatSignals) -> Ints:
    """(n,) the segment of each live token, counted over all trees."""
    counts = np.array([len(tree.segments) for tree in trees], np.int64)
    owners: Ints = (np.cumsum(counts) - counts)[signals.tree] + signals.segment
    return owners


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Runs of similar length, one after the other from slot `start`, longest first."""

    start: int
    lengths: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.start + sum(self.lengths)

    @property
    def ragged(self) -> bool:
        return self.lengths[-1] < self.lengths[0]

    def padded_slots(self) -> Ints:
        """(rows * longest,) the slot at each place; padding repeats the run's last token."""
        lengths = np.array(self.lengths, np.int64)
        starts = self.start + np.cumsum(lengths) - lengths
        places = np.minimum(np.arange(self.lengths[0]), lengths[:, None] - 1)
        slots: Ints = (starts[:, None] + places).ravel()
        return slots

    def real_places(self) -> Ints:
        """(tokens,) the places that are not padding, in slot order."""
        lengths = np.array(self.lengths, np.int64)
        return np.flatnonzero((np.arange(self.lengths[0]) < lengths[:, None]).ravel())


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """All tokens that continue one prefix: `queries` (n,) slots, all seeing the same keys.

    `prefix` are (start, stop) stretches of slots in the order of the path.
    """

    queries: Ints
    prefix: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class TreeLayout:
    """All trees as one packed sequence of N slots, each token of a tree in one of them.

    A token sees the earlier tokens of its own run (`blocks`) and the prefix that its run
    continues (`forks`). The same in two numbers a slot: token q sees token k exactly if
    enter[k] <= enter[q] < leave[k], where tokens are numbered in depth-first order.
    `predictors` as in `PlainLayout`.
    """

    input_ids: Ints
    position_ids: Ints
    predictors: Ints
    blocks: tuple[Block, ...]
    forks: tuple[Fork, ...]
    enter: Ints
    leave: Ints


def tree_layout(trees: Sequence[TokenTree], signals: FlatSignals) -> TreeLayout:
    """The packed sequence of the tokens that predict a live token or are seen by one that does."""
    split = split_runs(trees)
    runs, used = split.runs, _used_lengths(split.runs)
    order = sorted((i for i in range(len(runs)) if used[i]), key=lambda i: used[i], reverse=True)
    blocks = _blocks([used[i] for i in order])
    slots = np.zeros(len(runs) + 1, np.int64)
    slots[order] = np.cumsum([0, *(used[i] for i in order)])[:-1]
    input_ids = [runs[i].ids[: used[i]] for i in order]
    positions = [runs[i].start + np.arange(used[i]) for i in order]
    enter, leave = _depth_first(runs, used)
    owners = _owners(trees, signals)
    own = slots[split.run[owners]] + split.offset[owners] + signals.index - 1
    at_start = split.offset[owners] + signals.index == 0
    before = np.array([slots[run.parent] + run.attach - 1 for run in runs], np.int64)
    return TreeLayout(
        input_ids=_join(input_ids, np.int64),
        position_ids=_join(positions, np.int64),
        predictors=np.where(at_start, before[split.run[owners]], own),
        blocks=blocks,
        forks=_forks(runs, used, slots),
        enter=_join([enter[i] for i in order], np.int64),
        leave=_join([leave[i] for i in order], np.int64),
    )


def _used_lengths(runs: Sequence[Run]) -> list[int]:
    """How many tokens of each run have to be computed."""
    used = [max(run.last_live, 0) for run in runs]
    for index in reversed(range(len(runs))):
        run = runs[index]
        if run.parent >= 0 and (used[index] or run.last_live >= 0):
            used[run.parent] = max(used[run.parent], run.attach)
    return used


def _blocks(lengths: Sequence[int]) -> tuple[Block, ...]:
    """Runs are padded to the longest of their block; a run much shorter starts the next one."""
    blocks: list[Block] = []
    members: list[int] = []
    start = 0
    for length in lengths:
        if members and length < min(0.75 * members[0], members[0] - 16):
            blocks.append(Block(start, tuple(members)))
            start += sum(members)
            members = []
        members.append(length)
    if members:
        blocks.append(Block(start, tuple(members)))
    return tuple(blocks)


def _forks(runs: Sequence[Run], used: Sequence[int], slots: Ints) -> tuple[Fork, ...]:
    members: dict[tuple[int, int], list[int]] = {}
    for index, run in enumerate(runs):
        if run.parent >= 0 and used[index]:
            members.setdefault((run.parent, run.attach), []).append(index)
    forks: list[Fork] = []
    for (parent, attach), indices in members.items():
        queries = [slots[index] + np.arange(used[index]) for index in indices]
        forks.append(Fork(np.concatenate(queries), _prefix(runs, slots, parent, attach)))
    return tuple(forks)


def _prefix(
    runs: Sequence[Run], slots: Ints, index: int, length: int
) -> tuple[tuple[int, int], ...]:
    """The slots of the path that ends after `length` tokens of a run."""
    run, slot = runs[index], int(slots[index])
    earlier = _prefix(runs, slots, run.parent, run.attach) if run.parent >= 0 else ()
    return (*earlier, (slot, slot + length))


def _depth_first(runs: Sequence[Run], used: Sequence[int]) -> tuple[list[Ints], list[Ints]]:
    """`enter` and `leave` of the used tokens of every run: the token's number in depth-first
    order and the first number after everything that continues it."""
    sizes = list(used)
    hanging = [np.zeros(length + 1, np.int64) for length in used]
    for index in reversed(range(len(runs))):
        run = runs[index]
        if run.parent >= 0 and sizes[index]:
            hanging[run.parent][run.attach] += sizes[index]
            sizes[run.parent] += sizes[index]
    first = np.zeros(len(runs), np.int64)
    filled = [np.zeros(length + 1, np.int64) for length in used]
    total = 0
    enter: list[Ints] = []
    leave: list[Ints] = []
    for index, run in enumerate(runs):
        if run.parent < 0:
            first[index], total = total, total + sizes[index]
        elif sizes[index]:
            earlier = filled[run.parent]
            first[index] = enter[run.parent][run.attach - 1] + 1 + earlier[run.attach]
            earlier[run.attach] += sizes[index]
        places = np.arange(used[index])
        below = np.cumsum(hanging[index])[: used[index]]
        enter.append(first[index] + places + below)
        leave.append(np.full(used[index], first[index] + sizes[index]))
    return enter, leave
