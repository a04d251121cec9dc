"""Trees as data, their runs, and where packing puts their tokens."""

import numpy as np
from hypothesis import given

from pivotune.models.packing import flatten_signals, plain_layout, split_runs, tree_layout
from pivotune.models.trees import (
    Segment,
    TokenTree,
    context_signal,
    cross_entropy_signal,
    path_ids,
    path_length,
    policy_gradient_signal,
    start_position,
)
from tree_cases import group, prompt_and_target, token_trees


def segment(ids: list[int], parent: int = -1, attach: int = 0) -> Segment:
    return Segment(np.array(ids), context_signal(len(ids)), parent, attach)


# The tree of the module's drawing.
DRAWN = TokenTree(
    "drawn",
    (
        segment([0, 1, 2, 3, 4, 5, 6]),
        segment([10, 11, 12], 0, 3),
        segment([20, 21], 0, 3),
        segment([30], 2, 1),
    ),
)


def test_paths_of_the_drawn_tree() -> None:
    assert [path_ids(DRAWN, i).tolist() for i in range(4)] == [
        [0, 1, 2, 3, 4, 5, 6],
        [0, 1, 2, 10, 11, 12],
        [0, 1, 2, 20, 21],
        [0, 1, 2, 20, 30],
    ]
    assert [start_position(DRAWN, i) for i in range(4)] == [0, 3, 3, 4]
    assert [path_length(DRAWN, i) for i in range(4)] == [7, 6, 5, 5]
    assert DRAWN.token_count == 13


def test_signals_are_live_where_a_weight_is_not_zero() -> None:
    assert not context_signal(3).live.any()
    assert cross_entropy_signal([0, 1, -0.5]).live.tolist() == [False, True, True]
    action = policy_gradient_signal(0.5, [-1.0, -2.0], temperature=0.7, row=3)
    assert action.live.all()
    assert action.advantages.tolist() == [0.5, 0.5]
    assert action.row == 3


def test_flat_signals_keep_the_order_tree_segment_index() -> None:
    trees = [group(3, [2, 0, 1], name="a"), group(2, [1], name="b", seed=1)]
    flat = flatten_signals(trees)
    assert list(zip(flat.tree, flat.segment, flat.index, strict=True)) == [
        (0, 1, 0),
        (0, 1, 1),
        (0, 3, 0),
        (1, 1, 0),
    ]
    assert flat.row.tolist() == [0, 0, 2, 0]
    expected = [trees[0].segments[1].ids, trees[0].segments[3].ids, trees[1].segments[1].ids]
    assert flat.ids.tolist() == np.concatenate(expected).tolist()


@given(token_trees())
def test_flat_signals_equal_the_segments(trees: list[TokenTree]) -> None:
    flat = flatten_signals(trees)
    live = [int(s.signal.live.sum()) for tree in trees for s in tree.segments]
    assert len(flat) == sum(live)
    for k in range(len(flat)):
        segment = trees[flat.tree[k]].segments[flat.segment[k]]
        index = flat.index[k]
        assert flat.ids[k] == segment.ids[index]
        assert flat.row[k] == segment.signal.row
        assert flat.temperature[k] == np.float32(segment.signal.temperature)
        for name in ("pg_weights", "advantages", "behaviour", "ce_weights"):
            assert getattr(flat, name)[k] == getattr(segment.signal, name)[index]


def test_no_trees_have_no_signals() -> None:
    assert len(flatten_signals([])) == 0


def test_a_trunk_and_its_longest_branch_are_one_run() -> None:
    tree = group(5, [2, 4, 3])
    split = split_runs([tree])
    assert [len(run.ids) for run in split.runs] == [9, 2, 3]
    assert split.run.tolist() == [0, 1, 0, 2]
    assert split.offset.tolist() == [0, 0, 5, 0]
    assert [run.start for run in split.runs] == [0, 5, 5]


def test_an_episode_of_chained_segments_is_one_row() -> None:
    one = cross_entropy_signal([1.0])
    tree = TokenTree(
        "episode",
        (
            segment([1, 2]),
            Segment(np.array([3]), one, 0, 2),
            segment([4, 5], 1, 1),
            Segment(np.array([6]), one, 2, 2),
        ),
    )
    layout = plain_layout([tree], flatten_signals([tree]))
    assert [batch.tolist() for batch in layout.batches] == [[[1, 2, 3, 4, 5]]]
    assert layout.predictors.tolist() == [1, 4]


@given(token_trees())
def test_plain_rows_hold_the_prompt_of_every_live_token(trees: list[TokenTree]) -> None:
    flat = flatten_signals(trees)
    layout = plain_layout(trees, flat, batch_tokens=30)
    rows = [row for batch in layout.batches for row in batch]
    ends = np.cumsum([len(row) for row in rows])
    for k, slot in enumerate(layout.predictors):
        row = int(np.searchsorted(ends, slot, side="right"))
        place = int(slot - (ends[row] - len(rows[row])))
        prompt, target = prompt_and_target(trees[flat.tree[k]], flat.segment[k], flat.index[k])
        assert rows[row][: place + 1].tolist() == prompt
        assert flat.ids[k] == target


@given(token_trees())
def test_packed_tokens_see_exactly_their_prompt(trees: list[TokenTree]) -> None:
    flat = flatten_signals(trees)
    layout = tree_layout(trees, flat)
    for k, slot in enumerate(layout.predictors):
        sees = (layout.enter <= layout.enter[slot]) & (layout.enter[slot] < layout.leave)
        seen = np.flatnonzero(sees)
        seen = seen[np.argsort(layout.position_ids[seen])]
        prompt, _ = prompt_and_target(trees[flat.tree[k]], flat.segment[k], flat.index[k])
        assert layout.position_ids[seen].tolist() == list(range(len(prompt)))
        assert layout.input_ids[seen].tolist() == prompt


@given(token_trees())
def test_blocks_and_forks_say_the_same_as_the_numbering(trees: list[TokenTree]) -> None:
    layout = tree_layout(trees, flatten_signals(trees))
    size = len(layout.input_ids)
    sees = np.zeros((size, size), bool)
    for block in layout.blocks:
        start = block.start
        for length in block.lengths:
            stop = start + length
            sees[start:stop, start:stop] = np.tri(length, dtype=bool)
            start = stop
        real = block.padded_slots()[block.real_places()]
        assert real.tolist() == list(range(block.start, block.stop))
    for fork in layout.forks:
        for start, stop in fork.prefix:
            assert not sees[fork.queries, start:stop].any()
            sees[fork.queries, start:stop] = True
    numbered = (layout.enter <= layout.enter[:, None]) & (layout.enter[:, None] < layout.leave)
    assert (sees == numbered).all()


@given(token_trees())
def test_a_packed_token_is_computed_once_and_only_if_it_matters(trees: list[TokenTree]) -> None:
    flat = flatten_signals(trees)
    layout = tree_layout(trees, flat)
    needed = set()
    for k in range(len(flat)):
        tree, place, index = int(flat.tree[k]), int(flat.segment[k]), int(flat.index[k])
        segments = trees[tree].segments
        while place >= 0:
            needed |= {(tree, place, i) for i in range(index)}
            place, index = segments[place].parent, segments[place].attach
    assert len(layout.input_ids) == len(needed)


def test_branches_cost_their_own_tokens_only() -> None:
    tree = group(100, [10] * 8)
    layout = tree_layout([tree], flatten_signals([tree]))
    # The last token of a branch predicts nothing that is trained.
    assert len(layout.input_ids) == 100 + 8 * 9
    assert len(layout.forks) == 1
    assert layout.forks[0].prefix == ((0, 100),)
    assert len(layout.forks[0].queries) == 7 * 9
