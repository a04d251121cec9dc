"""What a layer keeps in the place of a norm's output."""

import pytest
import torch
from torch import nn

from pivotune.models.linear import OneDnnLinear
from pivotune.models.normed import kept_input, kept_input_again, note_normed, scaled


@pytest.fixture
def noted() -> torch.Tensor:
    torch.manual_seed(0)
    rows, scale, weight = torch.randn(200, 24), torch.rand(200, 1), torch.randn(24)
    out = scaled(rows, scale, weight)
    note_normed(out, rows, scale, weight)
    return out


def test_it_comes_back_bit_for_bit(noted: torch.Tensor) -> None:
    kept = kept_input(noted)
    assert [tuple(each.shape) for each in kept] == [(200, 24), (200, 1), (24,)]
    assert torch.equal(kept_input_again(kept), noted)


@pytest.mark.parametrize("change", ["view", "copy", "write"])
def test_a_view_a_copy_and_a_changed_output_are_kept_themselves(
    noted: torch.Tensor, change: str
) -> None:
    out = {"view": noted.view(2, 100, 24), "copy": noted.clone(), "write": noted}[change]
    if change == "write":
        out.add_(1)
    (kept,) = kept_input(out)
    assert kept is out


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN"
)
def test_a_linear_layers_gradients_are_the_same(noted: torch.Tensor) -> None:
    layer = nn.Linear(24, 40)
    layer.__class__ = OneDnnLinear
    factors = torch.linspace(-1, 1, 200 * 40).view(200, 40)
    kept = []
    for rows in (noted, noted.clone()):
        loss = (layer(rows) * factors).sum()
        kept.append(torch.autograd.grad(loss, layer.weight)[0])
    assert torch.equal(*kept)
