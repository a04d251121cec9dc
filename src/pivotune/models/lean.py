"""Norms and gated MLPs that keep only their input for the backward pass.

transformers writes them as small operations, each of which keeps a tensor or two: three fifths
of all that a layer keeps. Here the backward pass computes again what it misses:
a product of a norm's input, and the first two of an MLP's three matrix products, those for a part
of the tokens at a time. What a norm gives is not kept by the layers that take it either (see
`models/normed.py`). Outputs are the same bit for bit; so are gradients up to `PART_ROWS` tokens.

Letters in names: N tokens, H hidden size, I inner size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers.activations import SiLUActivation
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RMSNorm
from transformers.models.smollm3.modeling_smollm3 import SmolLM3MLP, SmolLM3RMSNorm

from pivotune.models.linear import OneDnnLinear, product_for
from pivotune.models.normed import kept_input, kept_input_again, note_normed, scaled

NORMS = (LlamaRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm, SmolLM3RMSNorm)
MLPS = (LlamaMLP, Qwen2MLP, Qwen3MLP, SmolLM3MLP)
"""One and the same computation under four names."""

PART_ROWS = 256
"""Tokens whose inner activations an MLP's backward pass holds at once, five of them a token, on the
CPU; a GPU is faster with all of them."""


def keep_only_inputs(model: nn.Module) -> None:
    """Let the model's norms and MLPs keep little, where they are of a kind that is known."""
    for module in model.modules():
        if type(module) in NORMS:
            module.__class__ = LeanNorm
        elif type(module) in MLPS and isinstance(module.act_fn, nn.SiLU | SiLUActivation):
            module.__class__ = LeanMlp


class LeanNorm(LlamaRMSNorm):  # type: ignore[misc]
    """An RMS norm: other dtypes are computed as ever."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        out: Tensor
        if _is_plain_float32(hidden_states, self.weight):
            out, scale = _Norm.apply(hidden_states, self.weight, self.variance_epsilon)  # type: ignore[no-untyped-call]
            note_normed(out, hidden_states, scale, self.weight)
        else:
            out = super().forward(hidden_states)
        return out


class LeanMlp(LlamaMLP):  # type: ignore[misc]
    """A gated MLP: other dtypes, biases and adapted layers are computed as ever."""

    def forward(self, x: Tensor) -> Tensor:
        layers = (self.gate_proj, self.up_proj, self.down_proj)
        weights = [each.weight for each in layers if _is_plain_linear(each)]
        out: Tensor
        if len(weights) == len(layers) and _is_plain_float32(x, *weights):
            out = _Mlp.apply(x, *weights)  # type: ignore[no-untyped-call]
        else:
            out = super().forward(x)
        return out


@contextmanager
def mlp_outputs_left_out() -> Iterator[None]:
    """Lean MLPs inside note their input for the backward pass and return anything: what the second
    pass of activation checkpointing needs, since nothing in a layer keeps what comes after."""
    token = _output_is_left_out.set(True)
    try:
        yield
    finally:
        _output_is_left_out.reset(token)


_output_is_left_out = ContextVar("_output_is_left_out", default=False)


def _is_plain_linear(layer: nn.Module) -> bool:
    return type(layer) in (nn.Linear, OneDnnLinear) and layer.bias is None


def _is_plain_float32(*tensors: Tensor) -> bool:
    """Whether there is a backward pass to keep less for, in float32 throughout."""
    return (
        torch.is_grad_enabled()
        and any(each.requires_grad for each in tensors)
        and all(each.dtype == torch.float32 for each in tensors)
        and not torch.is_autocast_enabled(tensors[0].device.type)
    )


class _Norm(torch.autograd.Function):
    """y = w * x / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x_NH: Tensor, weight_H: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        scale_N1 = torch.rsqrt(x_NH.pow(2).mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x_NH, scale_N1, weight_H)
        ctx.mark_non_differentiable(scale_N1)
        return scaled(x_NH, scale_N1, weight_H), scale_N1

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """With n = x / rms(x): dw = sum_N g n, dx = (w g - n mean_H(w g n)) / rms(x)."""
        x_NH, scale_N1, weight_H = ctx.saved_tensors
        grad_NH, _ = grads
        normed_NH = x_NH * scale_N1
        product_NH = normed_NH * grad_NH
        grad_weight_H = product_NH.reshape(-1, len(weight_H)).sum(0)
        mean_N1 = (product_NH @ weight_H).div_(len(weight_H)).unsqueeze(-1)
        grad_x_NH = torch.mul(grad_NH, weight_H, out=product_NH)
        grad_x_NH.sub_(normed_NH.mul_(mean_N1)).mul_(scale_N1)
        return grad_x_NH, grad_weight_H, None


class _Mlp(torch.autograd.Function):
    """y = (silu(x Wg') * x Wu') Wd'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up, down, *kept_input(x))
        if _output_is_left_out.get():
            return torch.empty_like(x)
        multiply = product_for(x)
        return multiply(silu(multiply(x, gate)).mul_(multiply(x, up)), down)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        gate, up, down, *kept = ctx.saved_tensors
        x = kept_input_again(kept)
        x_NH, grad_NH = (each.reshape(-1, each.shape[-1]) for each in (x, *grads))
        grad_x_NH = torch.empty_like(x_NH)
        sums = [torch.zeros_like(each) for each in (gate, up, down)]
        count = -(-len(x_NH) // PART_ROWS) if x.device.type == "cpu" else 1
        parts = [each.tensor_split(max(1, count)) for each in (x_NH, grad_NH, grad_x_NH)]
        for x_part, grad_part, out in zip(*parts, strict=True):
            _add_mlp_gradients(x_part, grad_part, (gate, up, down), out, sums)
        return grad_x_NH.view_as(x), *sums


def _add_mlp_gradients(
    x_NH: Tensor,
    grad_NH: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    out_NH: Tensor,
    sums: list[Tensor],
) -> None:
    """From the output's gradient the input's, into `out_NH`, and the weights', added to `sums`."""
    (gate, up, down), multiply = weights, product_for(x_NH)
    gate_NI, up_NI = multiply(x_NH, gate), multiply(x_NH, up)
    active_NI = silu(gate_NI)
    sums[2] += multiply(grad_NH.t(), (active_NI * up_NI).t())
    grad_inner_NI = multiply(grad_NH, down.t())
    grad_up_NI = active_NI.mul_(grad_inner_NI)
    sums[1] += multiply(grad_up_NI.t(), x_NH.t())
    out_NH.copy_(multiply(grad_up_NI, up.t()))
    del active_NI, grad_up_NI
    grad_gate_NI = torch.ops.aten.silu_backward(grad_inner_NI.mul_(up_NI), gate_NI)
    out_NH += multiply(grad_gate_NI, gate.t())
    sums[0] += multiply(grad_gate_NI.t(), x_NH.t())
