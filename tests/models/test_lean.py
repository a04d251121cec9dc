"""Norms and MLPs that keep only their input, against transformers' own."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from pivotune.models.lean import PART_ROWS, LeanMlp, LeanNorm, keep_only_inputs
from pivotune.models.linear import speed_up_linears
from tiny_models import FAMILIES, tiny_model


@pytest.fixture(params=sorted(FAMILIES))
def models(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A model whose norms and MLPs are those of transformers, and its lean copy."""
    plain = tiny_model(request.param)
    speed_up_linears(plain)  # as every policy does
    generator = torch.Generator().manual_seed(1)
    for module in plain.modules():
        if "RMSNorm" in type(module).__name__:
            nn.init.uniform_(module.weight, -1, 2, generator=generator)
    lean = deepcopy(plain)
    keep_only_inputs(lean)
    return plain, lean


def results(module: nn.Module, rows: torch.Tensor) -> list[torch.Tensor]:
    """Output, and gradients of the input and of every parameter."""
    rows = rows.detach().requires_grad_()
    out = module(rows)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    grads = torch.autograd.grad((out * weights).sum(), (rows, *module.parameters()))
    return [out.detach(), *grads]


@pytest.mark.parametrize("rows", [(1, 9, 32), (200, 32), (32,), (0, 32)])
def test_an_mlp_is_the_same_bit_for_bit(models: tuple[Any, Any], rows: tuple[int, ...]) -> None:
    plain, lean = (model.model.layers[0].mlp for model in models)
    assert type(lean) is LeanMlp
    x = torch.randn(rows, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(results(lean, x), results(plain, x), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("rows", [PART_ROWS + 1, 2 * PART_ROWS, 600])
def test_the_parts_of_an_mlps_backward_pass_add_up(models: tuple[Any, Any], rows: int) -> None:
    plain, lean = (model.model.layers[0].mlp for model in models)
    x = torch.randn(1, rows, 32, generator=torch.Generator().manual_seed(0))
    exact = results(deepcopy(plain).double(), x.double())
    (ours, *gradients), (theirs, *_) = results(lean, x), results(plain, x)
    assert torch.equal(ours, theirs)
    for gradient, expected in zip(gradients, exact[1:], strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [(1, 9, 32), (1, 200, 2, 32), (32,), (0, 32)])
def test_a_norm_has_the_same_values_and_gradients(
    models: tuple[Any, Any], rows: tuple[int, ...]
) -> None:
    plain, lean = (model.model.layers[0].input_layernorm for model in models)
    assert type(lean) is LeanNorm
    x = 3 * torch.randn(rows, generator=torch.Generator().manual_seed(0))
    exact = results(deepcopy(plain).double(), x.double())
    (ours, *gradients), (theirs, *_) = results(lean, x), results(plain, x)
    assert torch.equal(ours, theirs)
    for gradient, expected in zip(gradients, exact[1:], strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-5)


def kept_shapes(module: nn.Module, rows: torch.Tensor) -> list[tuple[int, ...]]:
    """Shapes of what a forward pass keeps, each storage once, weights left out."""
    weights = {each.data_ptr() for each in module.parameters()}
    kept: dict[int, tuple[int, ...]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept.setdefault(tensor.data_ptr(), tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = module(rows)
    del out
    return sorted(kept.values())


def test_what_takes_a_norms_output_keeps_the_norms_input(models: tuple[Any, Any]) -> None:
    layer = models[1].model.layers[0]
    normed_mlp = nn.Sequential(layer.post_attention_layernorm, layer.mlp)
    rows = torch.randn(1, 200, 32, requires_grad=True)
    assert kept_shapes(normed_mlp, rows) == [(1, 200, 1), (1, 200, 32)]


def test_a_norms_output_that_was_written_to_is_kept(models: tuple[Any, Any]) -> None:
    plain, lean = (
        nn.Sequential(layer.post_attention_layernorm, Doubled(), layer.mlp)
        for layer in (model.model.layers[0] for model in models)
    )
    x = torch.randn(1, 200, 32, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(results(lean, x), results(plain, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


class Doubled(nn.Module):
    """Writes to what it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)
