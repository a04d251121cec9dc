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

from pivotune.models.trees import Floats, Ints, Segment, TokenTree


@dataclass(frozen=True, slots=True, eq=False)
class FlatSignals:
    """The live tokens of some trees in the order (tree, segment, index); arrays of shape (n,).

    `tree` and `segment` count from 0 in the list and in the tree, `index` in the segment. `ids`
    are the tokens themselves; the rest is their `Signal`.
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

    def __len__(self) -> int:
        return len(self.ids)


def flatten_signals(trees: Sequence[TokenTree]) -> FlatSignals:
    """Every live token of every segment, in the order of the log-probabilities."""
    segments = [segment for tree in trees for segment in tree.segments]
    lengths = np.array([len(segment.ids) for segment in segments], np.int64)
    signals = [segment.signal for segment in segments]
    pg_weights = _join([signal.pg_weights for signal in signals], np.float32)
    ce_weights = _join([signal.ce_weights for signal in signals], np.float32)
    live = np.flatnonzero((pg_weights != 0) | (ce_weights != 0))
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
    )


def _join(arrays: Sequence[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Tokens that follow each other. `parent` is a run before this one (-1: none).

    The run sees the first `start` tokens of its parent's path; `attach` of them lie in the
    parent run itself.
    """

    ids: Ints
    parent: int
    attach: int
    start: int
    live: bool


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
        following = _following(tree)
        followers = set(following.values())
        for index, segment in enumerate(tree.segments):
            if index in followers or len(segment.ids) == 0:
                continue
            chain = [index]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            offset = 0
            for member in chain:
                run_of[base + member] = len(runs)
                offset_of[base + member] = offset
                offset += len(tree.segments[member].ids)
            runs.append(_run(tree, chain, base, runs, run_of, offset_of))
    return Runs(tuple(runs), np.array(run_of, np.int64), np.array(offset_of, np.int64))


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


def _run(
    tree: TokenTree,
    chain: Sequence[int],
    base: int,
    runs: Sequence[Run],
    run_of: Sequence[int],
    offset_of: Sequence[int],
) -> Run:
    members: list[Segment] = [tree.segments[index] for index in chain]
    ids = np.concatenate([member.ids for member in members])
    live = any(bool(member.signal.live.any()) for member in members)
    first = members[0]
    if first.parent < 0:
        return Run(ids, -1, 0, 0, live)
    parent = run_of[base + first.parent]
    attach = offset_of[base + first.parent] + first.attach
    return Run(ids, parent, attach, runs[parent].start + attach, live)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Ordinary sequences padded on the right to the longest: one batch of the plain path.

    `input_ids` (rows, length); padding is token 0 and stands after every real token, so causal
    attention needs no mask.
    """

    input_ids: Ints


@dataclass(frozen=True, slots=True, eq=False)
class PlainLayout:
    """Batches of rows, and the slot that predicts each live token.

    Slots count over the flattened batches one after the other.
    """

    batches: tuple[Rows, ...]
    predictors: Ints


def plain_layout(
    trees: Sequence[TokenTree], signals: FlatSignals, *, batch_tokens: int = 16_384
) -> PlainLayout:
    """One row for every run that is trained, longest first, `batch_tokens` slots at most a batch
    (a longer row is a batch of its own)."""
    runs = split_runs(trees)
    paths = _paths(runs.runs)
    needed = [index for index, run in enumerate(runs.runs) if run.live]
    needed.sort(key=lambda index: len(paths[index]), reverse=True)
    row_starts = np.zeros(len(runs.runs), np.int64)
    batches: list[Rows] = []
    slot = 0
    while needed:
        width = len(paths[needed[0]])
        count = max(1, batch_tokens // width)
        batch, needed = needed[:count], needed[count:]
        input_ids = np.zeros((len(batch), width), np.int64)
        for row, index in enumerate(batch):
            input_ids[row, : len(paths[index])] = paths[index]
            row_starts[index] = slot + row * width
        batches.append(Rows(input_ids))
        slot += input_ids.size
    starts = np.array([run.start for run in runs.runs], np.int64)
    segment_starts = (row_starts + starts)[runs.run] + runs.offset
    owner = _owner(trees, signals)
    return PlainLayout(tuple(batches), segment_starts[owner] + signals.index - 1)


def _paths(runs: Sequence[Run]) -> list[Ints]:
    paths: list[Ints] = []
    for run in runs:
        prefix = [] if run.parent < 0 else [paths[run.parent][: run.start]]
        paths.append(np.concatenate([*prefix, run.ids]))
    return paths


def _owner(trees: Sequence[TokenTree], signals: FlatSignals) -> Ints:
    """(n,) the segment of each live token, counted over all trees."""
    counts = np.array([len(tree.segments) for tree in trees], np.int64)
    owner: Ints = (np.cumsum(counts) - counts)[signals.tree] + signals.segment
    return owner
