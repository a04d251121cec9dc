"""One step's trees -> normalised weights -> micro-batches under a token budget.

Normalising comes first: every token's weight is divided by the denominator of the whole update,
so micro-batch losses are plain sums and any split of the update gives the same gradient.

    trees --normalise--> trees whose weights sum to a mean --pack--> micro-batches (tuples)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pivotune.models.trees import Floats, Segment, Signal, TokenTree, context_signal
from pivotune.train.losses import LossConfig

MicroBatch = tuple[TokenTree, ...]


def normalise(trees: Sequence[TokenTree], config: LossConfig) -> list[TokenTree]:
    """Divide all weights by the update's denominator; trees without a trained token go.

    A token counts with its policy-gradient weight, or with 1 where its likelihood or a teacher's
    distribution is trained: all terms share one denominator, so a likelihood weight of 0.01
    beside a policy gradient is a hundredth of it. "sequence": a sample is (tree, row), its
    tokens are averaged, then the samples, which count with their tokens' mean weight;
    "constant": the sum is divided by `config.constant`.
    """
    trained = [tree for tree in trees if any(each.signal.live.any() for each in tree.segments)]
    if config.normaliser == "sequence":
        rows = [_row_counts(tree) for tree in trained]
        samples = sum(weight / tokens for each in rows for weight, tokens in each.values())
        return [
            _scaled(tree, {row: 1.0 / (samples * tokens) for row, (_, tokens) in counts.items()})
            for tree, counts in zip(trained, rows, strict=True)
        ]
    total = config.constant
    if config.normaliser == "token":
        total = sum(float(_counts(each.signal).sum()) for tree in trained for each in tree.segments)
    return [_scaled(tree, 1.0 / total) for tree in trained]


def _counts(signal: Signal) -> Floats:
    """(T,) what each token adds to the denominator."""
    others = signal.ce_weights != 0
    if signal.targets is not None:
        others = others | (signal.targets.weights != 0)
    counts: Floats = np.maximum(np.abs(signal.pg_weights), others.astype(np.float32))
    return counts


def _row_counts(tree: TokenTree) -> dict[int, tuple[float, int]]:
    """What each sample's tokens add to the denominator together, and how many they are."""
    counts: dict[int, tuple[float, int]] = {}
    for segment in tree.segments:
        counted = _counts(segment.signal)
        if counted.any():
            weight, tokens = counts.get(segment.signal.row, (0.0, 0))
            more = int(np.count_nonzero(counted))
            counts[segment.signal.row] = (weight + float(counted.sum()), tokens + more)
    return counts


def _scaled(tree: TokenTree, scale: float | dict[int, float]) -> TokenTree:
    return TokenTree(tree.id, tuple(_scaled_segment(each, scale) for each in tree.segments))


def _scaled_segment(segment: Segment, scale: float | dict[int, float]) -> Segment:
    signal = segment.signal
    if not signal.live.any():
        return segment
    factor = np.float32(scale[signal.row] if isinstance(scale, dict) else scale)
    targets = signal.targets
    scaled = replace(
        signal,
        pg_weights=signal.pg_weights * factor,
        ce_weights=signal.ce_weights * factor,
        targets=targets and replace(targets, weights=targets.weights * factor),
    )
    return replace(segment, signal=scaled)


def pack(trees: Iterable[TokenTree], budget: int, *, shared: bool) -> list[MicroBatch]:
    """Micro-batches of similar length whose cost stays within `budget` tokens.

    `shared`: the trees run with every token computed once; otherwise as padded rows, one per
    root-to-leaf path. A tree over the budget is split into several that repeat the trunk. The
    order is deterministic.
    """
    pieces = [
        piece
        for tree in trees
        for piece in (
            [tree] if _tree_cost(tree, shared) <= budget else split_tree(tree, budget, shared)
        )
    ]
    sizes = [_Shape.of(piece) for piece in pieces]
    order = sorted(range(len(pieces)), key=lambda i: (sizes[i].longest, sizes[i].tokens, i))
    batches: list[MicroBatch] = []
    current: list[TokenTree] = []
    tokens = rows = 0
    for i in order:
        tokens, rows = tokens + sizes[i].tokens, rows + sizes[i].rows
        cost = tokens if shared else rows * sizes[i].longest
        if current and cost > budget:
            batches.append(tuple(current))
            current, tokens, rows = [], sizes[i].tokens, sizes[i].rows
        current.append(pieces[i])
    return [*batches, tuple(current)] if current else batches


@dataclass(frozen=True, slots=True)
class _Shape:
    """How large a tree is: tokens once each, root-to-leaf rows, the longest of these."""

    tokens: int
    rows: int
    longest: int

    @classmethod
    def of(cls, tree: TokenTree) -> "_Shape":
        starts: list[int] = []
        parents: set[int] = set()
        for segment in tree.segments:
            start = starts[segment.parent] + segment.attach if segment.parent >= 0 else 0
            starts.append(start)
            parents.add(segment.parent)
        ends = [start + len(each.ids) for start, each in zip(starts, tree.segments, strict=True)]
        leaves = len(tree.segments) - len(parents - {-1})
        return cls(sum(len(each.ids) for each in tree.segments), leaves, max(ends))


def _tree_cost(tree: TokenTree, shared: bool) -> int:
    shape = _Shape.of(tree)
    return shape.tokens if shared else shape.rows * shape.longest


def computed_tokens(tree: TokenTree, *, shared: bool) -> int:
    """Tokens that the model computes for a tree, padding not counted."""
    return tree.token_count if shared else tree.row_token_count


def split_tree(tree: TokenTree, budget: int, shared: bool) -> list[TokenTree]:
    """Several trees with the same trained tokens, each within the budget where that is possible.

    Samples stay whole (segments of one policy-gradient row go together, for the sequence
    ratio), every trained segment is trained in one piece only, and what nobody trains or reads
    is left out: a trunk is cut behind its last branch. Where a sample with its trunk is over
    the budget by itself, a quarter more than it takes is allowed, so that a long trunk is not
    computed again for every short branch.
    """
    pieces: list[TokenTree] = []
    chosen: set[int] = set()
    samples = _samples(tree)
    largest = max((_tree_cost(_piece(tree, each), shared) for each in samples), default=0)
    limit = budget if largest <= budget else largest + largest // 4
    for unit in samples:
        wider = _piece(tree, chosen | unit)
        if chosen and _tree_cost(wider, shared) > limit:
            pieces.append(_piece(tree, chosen))
            chosen = set()
        chosen |= unit
    return [*pieces, _piece(tree, chosen)] if chosen else pieces


def _samples(tree: TokenTree) -> list[set[int]]:
    """Trained segments that must stay together, in order of their first one."""
    units: dict[tuple[str, int], set[int]] = {}
    for index, segment in enumerate(tree.segments):
        if segment.signal.live.any():
            in_row = bool((segment.signal.pg_weights != 0).any())
            key = ("row", segment.signal.row) if in_row else ("segment", index)
            units.setdefault(key, set()).add(index)
    return list(units.values())


def _piece(tree: TokenTree, trained: set[int]) -> TokenTree:
    """The trained segments and all that they read, which is context here."""
    needed: dict[int, int] = {}
    for index in sorted(trained, reverse=True):
        needed[index] = len(tree.segments[index].ids)
    for index in range(len(tree.segments) - 1, 0, -1):
        if index in needed:
            segment = tree.segments[index]
            needed[segment.parent] = max(needed.get(segment.parent, 0), segment.attach)
    numbers = {index: number for number, index in enumerate(sorted(needed))}
    return TokenTree(
        tree.id,
        tuple(
            _part(tree.segments[index], needed[index], index in trained, numbers)
            for index in sorted(needed)
        ),
    )


def _part(segment: Segment, length: int, trained: bool, numbers: dict[int, int]) -> Segment:
    parent = numbers[segment.parent] if segment.parent >= 0 else -1
    if trained:
        return replace(segment, parent=parent)
    signal = replace(
        context_signal(length), temperature=segment.signal.temperature, row=segment.signal.row
    )
    return Segment(segment.ids[:length], signal, parent, segment.attach)
