"""oneDNN's linear layer against torch's own in float64, and where it is used."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from pivotune.models import linear
from pivotune.models.linear import LEAST_ROWS_ALONE, OneDnnLinear, speed_up_linears
from pivotune.models.policy import hash_weights
from tiny_models import tiny_model

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN"
)


def results(layer: nn.Linear, rows: torch.Tensor) -> list[torch.Tensor]:
    """Output, and gradients of the input and of every parameter, in float64."""
    rows = rows.clone().requires_grad_()
    out = layer(rows)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    grads = torch.autograd.grad((out * weights).sum(), (rows, *layer.parameters()))
    return [each.detach().double() for each in (out, *grads)]


def one_dnn(layer: nn.Linear) -> nn.Linear:
    copy = deepcopy(layer)
    copy.__class__ = OneDnnLinear
    return copy


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(128,), (1, 300), (2, 3, 64), (517,)])
def test_values_and_gradients_are_those_of_a_linear_layer(
    shape: tuple[int, ...], bias: bool
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(24, 40, bias=bias)
    rows = torch.randn(*shape, 24)
    exact = results(deepcopy(layer).double(), rows.double())
    for ours, expected in zip(results(one_dnn(layer), rows), exact, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)


def test_rows_that_do_not_lie_in_order() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(150, 40)
    rows = torch.randn(150, 200).t()
    exact = results(deepcopy(layer).double(), rows.double())
    for ours, expected in zip(results(one_dnn(layer), rows), exact, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)


def test_a_frozen_weight_gets_no_gradient() -> None:
    layer, rows = one_dnn(nn.Linear(16, 8, bias=False)), torch.randn(200, 16, requires_grad=True)
    weight = layer.weight.requires_grad_(False)
    layer(rows).sum().backward()
    assert weight.grad is None
    torch.testing.assert_close(rows.grad, weight.sum(0).expand(200, 16), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(8,), (16,), (1, 33), (1, 3, 7), (511,), (513,), (2, 300)])
def test_rows_are_filled_up_where_there_is_no_gradient(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer, rows = nn.Linear(24, 40, bias=bias), torch.randn(*shape, 24)
    with torch.inference_mode():
        exact = deepcopy(layer).double()(rows.double())
        out = one_dnn(layer)(rows)
        assert out.shape == exact.shape
        torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", ["few rows", "float64", "autocast"])
def test_anything_else_is_computed_as_ever(case: str) -> None:
    torch.manual_seed(0)
    layer, rows = (
        nn.Linear(24, 40),
        torch.randn(LEAST_ROWS_ALONE - 1 if case == "few rows" else 200, 24),
    )
    if case == "float64":
        layer, rows = layer.double(), rows.double()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        assert torch.equal(one_dnn(layer)(rows), layer(rows))


def test_a_model_keeps_its_weights_and_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("qwen2")
    before, ids = hash_weights(model), torch.arange(256)[None]
    expected = model(ids).logits
    monkeypatch.setattr(linear, "is_faster_here", lambda: True)
    speed_up_linears(model)
    assert type(model.model.layers[0].mlp.up_proj) is OneDnnLinear
    assert hash_weights(model) == before
    torch.testing.assert_close(model(ids).logits, expected, rtol=1e-5, atol=1e-4)
    assert type(deepcopy(model).lm_head) is OneDnnLinear
