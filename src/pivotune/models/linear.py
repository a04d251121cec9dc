"""Linear layers whose products are computed by oneDNN instead of MKL, in full float32.

MKL uses only half of the vector width of AMD processors with AVX-512, and torch has no setting
that would let oneDNN compute float32 products. oneDNN takes twice as many of them a second
there (measured: 210 against 104 GFLOP/s of one core) and as many elsewhere. The weights, their
names and the layers' places in the model stay what they were.

Letters in names: N rows, I inputs, O outputs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pivotune.models.normed import kept_input, kept_input_again

LEAST_ROWS = 128
"""oneDNN prepares a kernel for every new number of rows, 0.5 ms each; in training, where each of
these takes three and hardly any number comes twice, fewer rows do not pay for that."""

LEAST_ROWS_ALONE = 8
ROWS_STEP = 16
MOST_PADDED_ROWS = 512
"""Without gradient rows are filled up to a multiple, so that the rows of a sampler, of which one
after the other finishes, need few kernels."""


def speed_up_linears(model: nn.Module) -> None:
    """Let oneDNN compute the model's linear layers where that is known to be faster."""
    if not is_faster_here():
        return
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = OneDnnLinear


def is_faster_here() -> bool:
    """Whether torch has oneDNN and the processor the vectors that MKL may leave half empty."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    has_product = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # torch promises nothing of it
    return has_onednn and has_product and "AVX512" in torch.backends.cpu.get_cpu_capability()


class OneDnnLinear(nn.Linear):
    """An `nn.Linear`: few rows, other dtypes and devices are computed as ever."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in torch)
        weight = self.weight
        tensors = (input, weight, self.bias)
        with_gradient = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in tensors
        )
        if (
            input.dtype != torch.float32
            or weight.dtype != torch.float32
            or torch.is_autocast_enabled("cpu")
            or not _is_worth_it(input, LEAST_ROWS if with_gradient else LEAST_ROWS_ALONE)
        ):
            return super().forward(input)
        if with_gradient:
            out: Tensor = _Linear.apply(*tensors)  # type: ignore[no-untyped-call]
            return out
        return _padded_product(*tensors)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight_OI, *kept_input(input_NI))
        return _product(input_NI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        weight_OI, *kept = ctx.saved_tensors
        (grad_NO,) = grads
        of_input, of_weight, of_bias = ctx.needs_input_grad
        flat_NO = grad_NO.flatten(0, -2)
        grad_weight = None
        if of_weight:
            input_NI = kept_input_again(kept)
            grad_weight = _product(flat_NO.t(), input_NI.flatten(0, -2).t())
        return (
            _product(grad_NO, weight_OI.t()) if of_input else None,
            grad_weight,
            flat_NO.sum(0) if of_bias else None,
        )


def product_for(input: Tensor) -> Callable[[Tensor, Tensor], Tensor]:  # noqa: A002
    """The product (N, I), (O, I) -> (N, O) that a layer of a policy uses for a float32 input."""
    if is_faster_here() and _is_worth_it(input, LEAST_ROWS):
        return _product
    return torch.nn.functional.linear


def _is_worth_it(input: Tensor, least: int) -> bool:  # noqa: A002
    return input.device.type == "cpu" and input.numel() >= least * input.shape[-1]


def _padded_product(input: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:  # noqa: A002
    """As `_product`, without gradient, at a number of rows that comes often."""
    input_NI = input.reshape(-1, input.shape[-1])
    rows = len(input_NI)
    filler = -rows % ROWS_STEP if rows < MOST_PADDED_ROWS else 0
    if filler:
        input_NI = torch.cat([input_NI, input_NI.new_zeros(filler, input_NI.shape[1])])
    out_NO = _product(input_NI, weight_OI, bias_O)[:rows]
    return out_NO.view(*input.shape[:-1], len(weight_OI))


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """(N, I), (O, I) -> (N, O); views are taken as they lie in memory."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], None)
    return out
