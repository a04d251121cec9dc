"""Tree attention against masked attention over the whole packed sequence."""

import os
from shutil import which
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from pivotune.models import attention
from pivotune.models.attention import (
    ATTENTION_NAME,
    attention_set_to,
    block_mask,
    supports_trees,
    tree_attention,
    tree_index,
)
from pivotune.models.packing import TreeLayout, flatten_signals, tree_layout
from pivotune.models.trees import TokenTree
from tiny_models import FAMILIES, tiny_model
from tree_cases import group, token_trees


def dense_mask(layout: TreeLayout) -> torch.Tensor:
    """What each slot sees, from the depth-first numbers (tested against the tree itself)."""
    seen = (layout.enter <= layout.enter[:, None]) & (layout.enter[:, None] < layout.leave)
    return torch.from_numpy(seen)


def packed(size: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Queries of four heads, keys and values of two, as the interface hands them over."""
    generator = torch.Generator().manual_seed(size)
    shapes = [(1, size, heads, 8) for heads in (4, 2, 2)]
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return [tensor.transpose(1, 2).requires_grad_() for tensor in tensors]


def both(layout: TreeLayout, dtype: torch.dtype = torch.float32) -> list[list[torch.Tensor]]:
    """Output and gradients of the tree's attention and of dense masked attention."""
    results = []
    for name in ("tree", "dense"):
        query, key, value = leaves = packed(len(layout.input_ids), dtype)
        if name == "tree":
            out, _ = tree_attention(
                torch.nn.Identity(), query, key, value, None, scaling=0.5, tree=tree_index(layout)
            )
        else:
            out = scaled_dot_product_attention(
                query, key, value, dense_mask(layout), scale=0.5, enable_gqa=True
            ).transpose(1, 2)
        weights = torch.linspace(-1, 1, out.numel()).view_as(out).to(dtype)
        grads = torch.autograd.grad((out * weights).sum(), leaves)
        results.append([out.detach(), *grads])
    return results


@pytest.mark.parametrize("pieces", [range(0), range(2, 100)], ids=["whole runs", "runs in pieces"])
@given(trees=token_trees())
@settings(deadline=None)
def test_output_and_gradients_equal_masked_attention(trees: list[TokenTree], pieces: range) -> None:
    layout = tree_layout(trees, flatten_signals(trees))
    if len(layout.input_ids) == 0:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "IN_PIECES", pieces)
        patch.setattr(attention, "PIECE", 2)
        results = both(layout)
    for ours, dense in zip(*results, strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-5, atol=1e-5)


def test_many_long_branches_at_several_depths() -> None:
    """Sizes at which the kernel works in several tiles."""
    trees = [
        group(700, [40, 90, 33, 1] * 3, name="deep", attach=650),
        group(300, [70] * 9, name="end", seed=1),
        *(group(length, [3], name=f"short-{length}") for length in (20, 31, 33, 90)),
    ]
    layout = tree_layout(trees, flatten_signals(trees))
    for ours, dense in zip(*both(layout), strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-4, atol=2e-5)


def test_bfloat16_stays_within_its_precision() -> None:
    trees = [group(400, [9, 5, 7], attach=300), group(12, [4, 4], seed=1)]
    layout = tree_layout(trees, flatten_signals(trees))
    for ours, dense in zip(*both(layout, torch.bfloat16), strict=True):
        torch.testing.assert_close(ours, dense, rtol=0.05, atol=0.05)


def test_scores_far_apart_do_not_overflow() -> None:
    """The own part and the prefix differ by hundreds in log-sum-exp."""
    layout = tree_layout([group(6, [4, 4])], flatten_signals([group(6, [4, 4])]))
    query, key, value = (tensor.detach() for tensor in packed(len(layout.input_ids)))
    key[:, :, :3] *= 300
    key.requires_grad_()
    out, _ = tree_attention(
        torch.nn.Identity(), query, key, value, None, scaling=1.0, tree=tree_index(layout)
    )
    dense = scaled_dot_product_attention(
        query, key, value, dense_mask(layout), scale=1.0, enable_gqa=True
    ).transpose(1, 2)
    torch.testing.assert_close(out, dense, rtol=1e-5, atol=1e-5)
    (grad,) = torch.autograd.grad(out.sum(), key)
    assert torch.isfinite(grad).all()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@given(token_trees(max_trees=2))
@settings(deadline=None, max_examples=10)
def test_flex_block_mask_is_the_same_mask(trees: list[TokenTree]) -> None:
    layout = tree_layout(trees, flatten_signals(trees))
    if len(layout.input_ids) == 0:
        return
    query, key, value = (tensor.detach() for tensor in packed(len(layout.input_ids)))
    mask = block_mask(layout, torch.device("cpu"))
    size = len(layout.input_ids)
    places = torch.arange(size)
    zero = torch.zeros((), dtype=torch.int64)
    sees = mask.mask_mod(zero, zero, places[:, None], places[None, :])
    assert (sees == dense_mask(layout)).all()
    out = flex_attention(query, key, value, block_mask=mask, scale=0.5, enable_gqa=True)
    dense = scaled_dot_product_attention(
        query, key, value, dense_mask(layout), scale=0.5, enable_gqa=True
    )
    torch.testing.assert_close(out, dense, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler")
def test_flex_attention_compiled_equals_masked_attention() -> None:
    """As on a GPU, but for the device: torch compiles no backward pass of it for the CPU."""
    trees = [group(300, [20, 31, 7], attach=250), group(90, [12, 12], seed=1)]
    layout = tree_layout(trees, flatten_signals(trees))
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, heads, len(layout.input_ids), 16, generator=generator) for heads in (4, 2, 2)
    )
    mask = block_mask(layout, torch.device("cpu"))
    with torch.no_grad():
        compiled: Any = torch.compile(flex_attention)
        out = compiled(query, key, value, block_mask=mask, scale=0.25, enable_gqa=True)
    dense = scaled_dot_product_attention(
        query, key, value, dense_mask(layout), scale=0.25, enable_gqa=True
    )
    torch.testing.assert_close(out, dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_supported_families(family: str) -> None:
    assert supports_trees(tiny_model(family)) is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "gpt2"}, "gpt2"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"attention_dropout": 0.1}, "dropout"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
    ],
)
def test_other_models_are_refused_by_name(changes: dict[str, Any], word: str) -> None:
    model = tiny_model("qwen2")
    for name, value in changes.items():
        setattr(model.config, name, value)
    reason = supports_trees(model)
    assert reason is not None
    assert word in reason


def test_a_sliding_window_model_is_refused() -> None:
    model = tiny_model("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert "sliding" in (supports_trees(model) or "")


def test_the_models_own_attention_comes_back() -> None:
    model = tiny_model()
    before = model.config._attn_implementation
    ids = torch.arange(6)[None]
    expected = model(ids).logits

    def fail_inside() -> None:
        with attention_set_to(model, ATTENTION_NAME):
            assert model.config._attn_implementation == ATTENTION_NAME
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert model.config._attn_implementation == before
    assert torch.equal(model(ids).logits, expected)


def test_equal_runs_need_no_padding() -> None:
    tree = group(40, [5, 5, 5])
    layout = tree_layout([tree], flatten_signals([tree]))
    index = tree_index(layout)
    assert [block.rows for block in index.blocks] == [1, 2]
    assert all(block.padded is None for block in index.blocks)
    assert np.array_equal(index.queries.numpy(), layout.forks[0].queries)
