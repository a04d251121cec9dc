"""The training pass: the plain path against a hand computation, the tree path against the plain."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import flex_attention

from pivotune.core.errors import DataError, ModelError, NumericsError
from pivotune.models import attention, forward
from pivotune.models.attention import flex_inputs
from pivotune.models.forward import self_check, token_logprobs, validate_tree
from pivotune.models.lean import keep_only_inputs
from pivotune.models.packing import FlatSignals, TreeLayout, tree_layout
from pivotune.models.trees import (
    Segment,
    TokenTree,
    context_signal,
    cross_entropy_signal,
    policy_gradient_signal,
)
from tiny_models import FAMILIES, tiny_model
from tree_cases import VOCABULARY, group, prompt_and_target, token_trees

Path = Literal["tree", "plain"]
PATHS: tuple[Path, Path] = ("tree", "plain")
MODELS = {family: tiny_model(family, vocabulary=VOCABULARY) for family in FAMILIES}


def gradients(model: Any, trees: list[TokenTree], **options: Any) -> list[torch.Tensor]:
    """Log-probabilities, and the gradient of a weighted mean of them in every parameter."""
    model.zero_grad()
    logprobs = token_logprobs(model, trees, **options).logprobs
    weights = torch.linspace(-1, 1, len(logprobs)) / len(logprobs)
    (logprobs * weights).sum().backward()
    return [logprobs.detach(), *(p.grad.clone() for p in model.parameters())]


@contextmanager
def flex_on_cpu() -> Iterator[None]:
    """The tree path as on a GPU, with FlexAttention, uncompiled. Its gradients are those of any
    device; on the CPU torch refuses them by a check that is left out here."""
    with pytest.MonkeyPatch.context() as patch, torch.compiler.set_stance("force_eager"):
        patch.setattr(flex_attention, "_validate_device", lambda *_tensors: None)
        patch.setattr(forward, "attention_inputs", flex_inputs)
        yield


def has_live(trees: list[TokenTree]) -> bool:
    return any(segment.signal.live.any() for tree in trees for segment in tree.segments)


@pytest.mark.parametrize("path", PATHS)
def test_a_three_token_prompt_and_a_two_token_action(path: Path) -> None:
    """The first action token is predicted at the last prompt position; nothing else is trained."""
    model = MODELS["llama"]
    prompt, action = [3, 1, 4], [15, 9]
    signal = policy_gradient_signal(1.0, [0.0, 0.0], temperature=0.7, row=0)
    trunk = Segment(np.array(prompt), context_signal(3))
    tree = TokenTree("pivot", (trunk, Segment(np.array(action), signal, 0, 3)))
    result = token_logprobs(model, [tree], path=path)
    logits = model(torch.tensor([prompt + action])).logits[0].detach() / 0.7
    expected = [
        logits[2, 15] - logits[2].exp().sum().log(),
        logits[3, 9] - logits[3].exp().sum().log(),
    ]
    assert result.logprobs.tolist() == pytest.approx([float(x) for x in expected], abs=1e-5)
    assert result.signals.segment.tolist() == [1, 1]
    assert result.signals.index.tolist() == [0, 1]


@given(token_trees())
@settings(deadline=None, max_examples=15)
def test_plain_path_equals_one_sequence_at_a_time(trees: list[TokenTree]) -> None:
    model = MODELS["qwen3"]
    with torch.no_grad():
        result = token_logprobs(model, trees, path="plain", entropy=True)
    assert result.entropies is not None
    for k in range(len(result.signals)):
        tree, segment, index = (
            int(x[k]) for x in (result.signals.tree, result.signals.segment, result.signals.index)
        )
        prompt, target = prompt_and_target(trees[tree], segment, index)
        temperature = trees[tree].segments[segment].signal.temperature
        logits = model(torch.tensor([prompt])).logits[0, -1].detach() / temperature
        probabilities = torch.softmax(logits, 0)
        assert float(result.logprobs[k]) == pytest.approx(
            float(probabilities[target].log()), abs=1e-5
        )
        entropy = -float((probabilities * probabilities.log()).sum())
        assert float(result.entropies[k]) == pytest.approx(entropy, abs=1e-4)


@given(token_trees(), st.sampled_from(sorted(FAMILIES)))
@settings(deadline=None, max_examples=40)
def test_tree_path_equals_plain_path(trees: list[TokenTree], family: str) -> None:
    if not has_live(trees):
        return
    model = MODELS[family]
    ours, plain = (gradients(model, trees, path=path) for path in PATHS)
    for tree_value, plain_value in zip(ours, plain, strict=True):
        torch.testing.assert_close(tree_value, plain_value, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@given(token_trees(), st.sampled_from(sorted(FAMILIES)))
@settings(deadline=None, max_examples=15)
def test_flex_attention_equals_plain_path(trees: list[TokenTree], family: str) -> None:
    if not has_live(trees):
        return
    model = MODELS[family]
    plain = gradients(model, trees, path="plain")
    with flex_on_cpu():
        flex = gradients(model, trees)
    for flex_value, plain_value in zip(flex, plain, strict=True):
        torch.testing.assert_close(flex_value, plain_value, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_over_several_blocks_of_its_mask() -> None:
    """A block of the mask is 128 x 128; the last one is not full."""
    trees = [group(300, [20, 31, 7], attach=250), group(90, [12, 12], seed=1)]
    plain = gradients(MODELS["qwen3"], trees, path="plain")
    for options in ({}, {"recompute": True}):
        with flex_on_cpu():
            flex = gradients(MODELS["qwen3"], trees, **options)
        for flex_value, plain_value in zip(flex, plain, strict=True):
            torch.testing.assert_close(flex_value, plain_value, rtol=1e-5, atol=1e-5)


def test_trunks_without_branches_equal_plain_rows() -> None:
    rng = np.random.default_rng(0)
    trees = []
    for number, length in enumerate(rng.integers(2, 70, 30)):
        weights = np.append(0, np.ones(length - 1, np.float32))
        ids = rng.integers(0, VOCABULARY, length)
        trees.append(TokenTree(f"row-{number}", (Segment(ids, cross_entropy_signal(weights)),)))
    ours, plain = (gradients(MODELS["qwen3"], trees, path=path) for path in PATHS)
    for tree_value, plain_value in zip(ours, plain, strict=True):
        torch.testing.assert_close(tree_value, plain_value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("path", PATHS)
def test_chunks_and_recomputation_change_nothing(path: Path) -> None:
    trees = [group(20, [6, 3, 6]), group(9, [4, 4], attach=7, seed=1)]
    model = tiny_model("qwen3", vocabulary=VOCABULARY)
    expected = gradients(model, trees, path=path)
    for options in ({"chunk": 4}, {"recompute": True}, {"chunk": 5, "recompute": True}):
        changed = gradients(model, trees, path=path, **options)
        for value, other in zip(expected, changed, strict=True):
            torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-6)
    assert not any(x.gradient_checkpointing or x.training for x in model.model.layers)


def saved_bytes(model: Any, trees: list[TokenTree], **options: Any) -> int:
    """Bytes that the backward pass keeps, weights apart."""
    kept: dict[int, int] = {}
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = token_logprobs(model, trees, **options)
    assert result.logprobs.requires_grad
    return sum(kept.values())


def test_recomputation_and_chunks_keep_less() -> None:
    trees = [group(60, [30] * 4)]
    model = tiny_model("qwen3", vocabulary=VOCABULARY)
    whole = saved_bytes(model, trees)
    assert saved_bytes(model, trees, recompute=True) < whole / 4
    # Logits of 120 tokens in float32, kept once with one chunk and never with several.
    assert saved_bytes(model, trees, chunk=30) < whole - 120 * VOCABULARY * 4 / 2


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_lean_modules_change_nothing_and_keep_less(family: str) -> None:
    trees = [group(60, [30] * 4), group(9, [4, 4], attach=7, seed=1)]
    model = tiny_model(family, vocabulary=VOCABULARY)
    expected = gradients(model, trees, path="plain")
    whole = saved_bytes(model, trees)
    keep_only_inputs(model)
    assert saved_bytes(model, trees) < 0.6 * whole
    for path in PATHS:
        for recompute in (False, True):
            found = gradients(model, trees, path=path, recompute=recompute)
            for value, other in zip(expected, found, strict=True):
                torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-5)


def test_recomputation_does_not_attend_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attended: list[tuple[torch.Tensor, torch.Tensor]] = []

    def attend(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        attended.append(original(*inputs))
        return attended[-1]

    original = attention._attend
    monkeypatch.setattr(attention, "_attend", attend)
    model = tiny_model("qwen3", vocabulary=VOCABULARY)
    gradients(model, [group(20, [6, 3, 6])], recompute=True)
    assert len(attended) == len(model.model.layers)


def test_entropies_carry_no_gradient_and_survive_chunks() -> None:
    trees = [group(8, [5, 5])]
    whole = token_logprobs(MODELS["qwen3"], trees, entropy=True).entropies
    chunked = token_logprobs(MODELS["qwen3"], trees, entropy=True, chunk=3).entropies
    assert whole is not None
    assert chunked is not None
    assert not whole.requires_grad
    torch.testing.assert_close(whole, chunked)
    assert token_logprobs(MODELS["qwen3"], trees).entropies is None


def test_bfloat16_computes_the_loss_in_float32() -> None:
    trees = [group(30, [8, 8, 8]), group(12, [5, 5], seed=1)]
    exact = token_logprobs(MODELS["qwen3"], trees).logprobs.detach()
    model = tiny_model("qwen3", vocabulary=VOCABULARY).to(torch.bfloat16)
    for path in PATHS:
        rounded = token_logprobs(model, trees, path=path).logprobs.detach()
        assert rounded.dtype == torch.float32
        assert float((rounded - exact).abs().mean()) < 0.1
    assert self_check(model, trees) < 0.25


@pytest.mark.parametrize("path", PATHS)
def test_autocast_gives_gradients_in_the_parameters_dtype(path: Path) -> None:
    trees = [group(30, [8, 8, 8])]
    model = tiny_model("qwen3", vocabulary=VOCABULARY)
    exact = gradients(model, trees, path="plain")
    with torch.autocast("cpu", torch.bfloat16):
        rounded = gradients(model, trees, path=path)
        assert self_check(model, trees) < 0.25
    for value, other in zip(exact, rounded, strict=True):
        assert other.dtype == torch.float32
        assert float((value - other).norm()) < 0.1 * float(value.norm()) + 1e-3


def test_nothing_trained_computes_nothing() -> None:
    tree = TokenTree("context", (Segment(np.arange(4), context_signal(4)),))
    result = token_logprobs(MODELS["qwen3"], [tree], entropy=True)
    assert result.logprobs.shape == (0,)
    assert len(result.signals) == 0


def leaky_layout(trees: list[TokenTree], signals: FlatSignals) -> TreeLayout:
    """The first token of the third branch also sees the first key of the second."""
    layout = tree_layout(trees, signals)
    block, (fork,) = layout.blocks[1], layout.forks
    key, query = block.start, block.start + block.lengths[0]
    leak = replace(fork, queries=np.array([query]), prefix=(*fork.prefix, (key, key + 1)))
    rest = replace(fork, queries=fork.queries[fork.queries != query])
    leave = layout.leave.copy()
    leave[key] = layout.enter[query] + 1
    return replace(layout, forks=(rest, leak), leave=leave)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("computed", [nullcontext, flex_on_cpu])
def test_a_leak_from_a_sibling_is_caught(computed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = [group(60, [9, 8, 8, 8], name="pivot-7")]
    with computed():
        clean = token_logprobs(MODELS["qwen3"], trees).logprobs
        assert self_check(MODELS["qwen3"], trees) < 1e-5
        monkeypatch.setattr(forward, "tree_layout", leaky_layout)
        leaked = token_logprobs(MODELS["qwen3"], trees)
        moved = (leaked.logprobs - clean).abs().detach().numpy()
        assert moved.max() > 1e-3
        assert set(leaked.signals.segment[moved > 1e-5].tolist()) == {3}
        with pytest.raises(NumericsError, match="pivot-7, segment 3, token"):
            self_check(MODELS["qwen3"], trees)


def test_an_unsupported_model_is_refused_on_the_tree_path_only() -> None:
    model = tiny_model("qwen2", vocabulary=VOCABULARY, attention_dropout=0.1)
    with pytest.raises(ModelError, match="plain path"):
        token_logprobs(model, [group(5, [2, 2])])
    assert len(token_logprobs(model, [group(5, [2, 2])], path="plain").logprobs) == 4


def test_checkpointing_from_elsewhere_is_refused() -> None:
    model = tiny_model("qwen3", vocabulary=VOCABULARY).train()
    for layer in model.model.layers:
        layer.gradient_checkpointing = True
    with pytest.raises(ModelError, match="recompute"):
        token_logprobs(model, [group(5, [2, 2])])


def with_branch(**changes: Any) -> TokenTree:
    tree = group(6, [3, 2], name="pivot-7")
    branch = replace(tree.segments[1], **changes)
    return replace(tree, segments=(tree.segments[0], branch, tree.segments[2]))


def with_signal(**changes: Any) -> TokenTree:
    signal = replace(group(6, [3, 2]).segments[1].signal, **changes)
    return with_branch(signal=signal)


BAD: dict[str, tuple[TokenTree, type[Exception], str]] = {
    "attach at 0": (with_branch(attach=0), DataError, "attach"),
    "attach past the end": (with_branch(attach=7), DataError, "1 to 6"),
    "parent after it": (with_branch(parent=2), DataError, "parent 2"),
    "no parent": (with_branch(parent=-1), DataError, "parent -1"),
    "id too large": (with_branch(ids=np.array([1, VOCABULARY, 2])), DataError, "vocabulary"),
    "negative id": (with_branch(ids=np.array([1, -1, 2])), DataError, "vocabulary"),
    "signal too short": (with_branch(ids=np.array([1, 2])), DataError, "does not match"),
    "nan weight": (
        with_signal(pg_weights=np.array([1, np.nan, 1], np.float32)),
        NumericsError,
        "pg_weights",
    ),
    "infinite advantage": (
        with_signal(advantages=np.array([1, np.inf, 1], np.float32)),
        NumericsError,
        "advantages",
    ),
    "infinite behaviour": (
        with_signal(behaviour=np.array([-1, -np.inf, -1], np.float32)),
        NumericsError,
        "behaviour",
    ),
    "temperature 0": (with_signal(temperature=0.0), NumericsError, "temperature"),
    "empty trunk": (
        TokenTree("pivot-7", (Segment(np.zeros(0, int), context_signal(0)),)),
        DataError,
        "empty",
    ),
    "first token trained": (
        TokenTree("pivot-7", (Segment(np.arange(2), cross_entropy_signal([1, 1])),)),
        DataError,
        "first token",
    ),
    "longer than the context": (group(30, [3], name="pivot-7"), DataError, "context"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_trees_are_refused_with_their_id(case: str) -> None:
    tree, error, word = BAD[case]
    with pytest.raises(error, match="pivot-7") as caught:
        validate_tree(tree, vocabulary=VOCABULARY, context_limit=20)
    assert word in str(caught.value)


@given(token_trees())
def test_valid_trees_pass(trees: list[TokenTree]) -> None:
    for tree in trees:
        validate_tree(tree, vocabulary=VOCABULARY, context_limit=100)


@pytest.mark.gpu
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_flex_attention_equals_the_plain_path(family: str) -> None:
    trees = [group(300, [20, 31, 7], attach=250), group(90, [12, 12], seed=1)]
    model = tiny_model(family, vocabulary=VOCABULARY).to("cuda")
    results = []
    for path in PATHS:
        model.zero_grad()
        logprobs = token_logprobs(model, trees, path=path).logprobs
        logprobs.mean().backward()
        results.append([logprobs.detach(), *(p.grad.clone() for p in model.parameters())])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-4)
