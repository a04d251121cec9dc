import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pivotune.models.packing import flatten_signals
from pivotune.models.trees import (
    Segment,
    TokenTree,
    context_signal,
    cross_entropy_signal,
    path_ids,
    policy_gradient_signal,
)
from pivotune.train.batches import normalise, pack, split_tree
from pivotune.train.losses import LossConfig
from pivotune.train.update import Pass, backward, prepare
from tiny_models import tiny_model

PLAIN = Pass("plain", "float32")


def group(name, prompt, lengths, *, seed=0, vocabulary=50, likelihood=False):
    """A trunk and one policy-gradient branch for each length, or likelihood branches."""
    draw = np.random.default_rng(seed)

    def branch(row, length):
        ids = draw.integers(0, vocabulary, length)
        if likelihood:
            return Segment(ids, cross_entropy_signal(np.ones(length)), 0, prompt)
        advantage = float(draw.normal())
        behaviour = -draw.random(length) * 6
        signal = policy_gradient_signal(advantage, behaviour, temperature=0.7, row=row)
        return Segment(ids, signal, 0, prompt)

    trunk = Segment(draw.integers(0, vocabulary, prompt), context_signal(prompt))
    return TokenTree(name, (trunk, *(branch(i, n) for i, n in enumerate(lengths))))


def step_trees():
    return [
        group("a", 5, [3, 7, 1], seed=1),
        group("b", 12, [2, 2], seed=2),
        group("c", 3, [9, 4, 4, 6], seed=3),
        group("d", 6, [5], seed=4, likelihood=True),
    ]


def gradient(model, trees, budget, config, shared=False):
    model.zero_grad()
    batches = pack(normalise(trees, config), budget, shared=shared)
    sums = backward(
        model, [prepare(batch, torch.device("cpu")) for batch in batches], PLAIN, config
    )
    flat = torch.cat([each.grad.flatten() for each in model.parameters()])
    return flat.clone(), sums, len(batches)


@pytest.mark.parametrize("normaliser", ["token", "sequence", "constant"])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_gradients_are_equal_under_any_split(normaliser, ratio):
    config = LossConfig(normaliser=normaliser, ratio=ratio, constant=30.0)
    model = tiny_model(hidden_size=16, num_hidden_layers=1, vocabulary=50)
    whole, sums, count = gradient(model, step_trees(), 10_000, config)
    assert count == 1
    sizes = set()
    for budget in (120, 60, 1):
        split, same, count = gradient(model, step_trees(), budget, config)
        sizes.add(count)
        torch.testing.assert_close(split, whole, atol=1e-6, rtol=0)
        assert same.loss == pytest.approx(sums.loss, abs=1e-6)
        assert same.tokens.tokens == sums.tokens.tokens
    assert len(sizes) == 3
    assert max(sizes) > 4


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_unequal_lengths_in_one_two_and_four_micro_batches(parts):
    model = tiny_model(hidden_size=16, num_hidden_layers=1, vocabulary=50)
    trees = [group(str(n), 4, [n], seed=n, likelihood=True) for n in (2, 3, 11, 30)]
    whole, _, _ = gradient(model, trees, 10_000, LossConfig())
    model.zero_grad()
    done = normalise(trees, LossConfig())
    batches = [prepare(tuple(done[i::parts]), torch.device("cpu")) for i in range(parts)]
    backward(model, batches, PLAIN, LossConfig())
    split = torch.cat([each.grad.flatten() for each in model.parameters()])
    torch.testing.assert_close(split, whole, atol=1e-6, rtol=0)


def test_token_mean_counts_every_trained_token_once():
    trees = normalise([group("a", 2, [3, 1]), group("b", 2, [4], likelihood=True)], LossConfig())
    flat = flatten_signals(trees)
    np.testing.assert_allclose(flat.pg_weights, [1 / 8] * 4 + [0] * 4)
    np.testing.assert_allclose(flat.ce_weights, [0] * 4 + [1 / 8] * 4)


def test_a_likelihood_weight_beside_a_policy_gradient_is_a_share_of_it():
    signal = policy_gradient_signal(1.0, [-1.0, -1.0], temperature=1.0, row=0)
    signal.ce_weights[:] = 0.01
    tree = TokenTree(
        "t", (Segment(np.arange(2), context_signal(2)), Segment(np.arange(2), signal, 0, 2))
    )
    flat = flatten_signals(normalise([tree], LossConfig()))
    np.testing.assert_allclose(flat.pg_weights, [0.5, 0.5])
    np.testing.assert_allclose(flat.ce_weights, [0.005, 0.005])


def test_sequence_mean_gives_every_sample_the_same_weight():
    trees = normalise(
        [group("a", 2, [3, 1]), group("b", 2, [4])], LossConfig(normaliser="sequence")
    )
    flat = flatten_signals(trees)
    np.testing.assert_allclose(flat.pg_weights, [1 / 9] * 3 + [1 / 3] + [1 / 12] * 4, rtol=1e-6)


def test_a_samples_weight_is_kept_in_the_sequence_mean():
    """Two samples of weight 1 and one of weight 1/4: as a mean of 9/4 samples."""
    light = group("b", 2, [4])
    light.segments[1].signal.pg_weights[:] = 0.25
    trees = normalise([group("a", 2, [3, 1]), light], LossConfig(normaliser="sequence"))
    flat = flatten_signals(trees)
    expected = [1 / 3] * 3 + [1.0] + [0.25 / 4] * 4
    np.testing.assert_allclose(flat.pg_weights, np.array(expected) / 2.25, rtol=1e-6)


def test_constant_divides_by_what_is_asked():
    config = LossConfig(normaliser="constant", constant=16.0)
    flat = flatten_signals(normalise([group("a", 2, [3])], config))
    np.testing.assert_allclose(flat.pg_weights, [1 / 16] * 3)


def test_trees_without_a_trained_token_go():
    context = TokenTree("c", (Segment(np.arange(3), context_signal(3)),))
    assert normalise([context], LossConfig()) == []


def test_packing_is_within_the_budget_and_sorted_by_length():
    trees = [group(str(n), n, [2, 2]) for n in (30, 4, 18, 7, 25)]
    for shared in (True, False):
        batches = pack(trees, 66, shared=shared)
        assert [tree.id for batch in batches for tree in batch] == ["4", "7", "18", "25", "30"]
        assert len(batches) > 1
        for batch in batches:
            rows = [len(path_ids(tree, i)) for tree in batch for i in (1, 2)]
            cost = sum(t.token_count for t in batch) if shared else len(rows) * max(rows)
            assert cost <= 66


def test_a_large_tree_is_split_and_repeats_its_trunk():
    tree = group("a", 10, [5, 5, 5, 5])
    pieces = split_tree(tree, 20, shared=True)
    assert [len(piece.segments) for piece in pieces] == [3, 3]
    assert all(piece.token_count == 20 for piece in pieces)
    assert trained_paths(pieces) == trained_paths([tree])


def test_a_trunk_over_the_budget_is_not_repeated_for_every_branch():
    tree = group("a", 100, [5, 5, 5, 5, 5])
    pieces = split_tree(tree, 50, shared=True)
    assert [piece.token_count for piece in pieces] == [125]
    assert len(split_tree(tree, 50, shared=False)) == 5


def test_a_trained_trunk_is_trained_once_and_cut_where_nobody_reads_it():
    ids = np.arange(10)
    weights = np.zeros(10)
    weights[4:] = 1.0
    trunk = Segment(ids, cross_entropy_signal(weights))
    branch = policy_gradient_signal(1.0, [-1.0] * 8, temperature=1.0, row=1)
    late = policy_gradient_signal(1.0, [-1.0] * 8, temperature=1.0, row=2)
    tree = TokenTree("t", (trunk, Segment(ids[:8], branch, 0, 3), Segment(ids[:8], late, 0, 6)))
    pieces = split_tree(tree, 14, shared=True)
    assert [[len(s.ids) for s in piece.segments] for piece in pieces] == [[10], [3, 8], [6, 8]]
    assert trained_paths(pieces) == trained_paths([tree])


def test_segments_of_one_sample_stay_together():
    parts = [policy_gradient_signal(1.0, [-1.0] * 4, temperature=1.0, row=r) for r in (0, 1, 0, 1)]
    trunk = Segment(np.arange(6), context_signal(6))
    tree = TokenTree(
        "t", (trunk, *(Segment(np.arange(4), p, 0, 2 + i) for i, p in enumerate(parts)))
    )
    pieces = split_tree(tree, 5, shared=True)
    assert [{s.signal.row for s in p.segments if s.signal.live.any()} for p in pieces] == [{0}, {1}]
    assert [len(piece.segments) for piece in pieces] == [3, 3]


def trained_paths(trees):
    """Every trained token with the sequence that predicts it."""
    return sorted(
        (tuple(path_ids(tree, i).tolist()), int(t), float(s.signal.pg_weights[t]))
        for tree in trees
        for i, s in enumerate(tree.segments)
        for t in np.flatnonzero(s.signal.live)
    )


@st.composite
def nested_trees(draw):
    count = draw(st.integers(1, 7))
    segments = [Segment(np.arange(5), context_signal(5))]
    for index in range(count):
        parent = draw(st.integers(0, index))
        length = draw(st.integers(1, 6))
        attach = draw(st.integers(1, len(segments[parent].ids)))
        ids = np.arange(length) + 10 * (index + 1)
        signal = context_signal(length)
        if draw(st.booleans()):
            signal = policy_gradient_signal(
                1.0, [-1.0] * length, temperature=1.0, row=draw(st.integers(0, 3))
            )
        segments.append(Segment(ids, signal, parent, attach))
    return TokenTree("t", tuple(segments))


@given(nested_trees(), st.integers(1, 40), st.booleans())
@settings(max_examples=100, deadline=None)
def test_splitting_keeps_every_trained_token_and_its_history(tree, budget, shared):
    assert trained_paths(split_tree(tree, budget, shared)) == trained_paths([tree])
