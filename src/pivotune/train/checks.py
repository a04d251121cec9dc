"""What must hold before the first update: sampler, trainer, reference and fast path agree."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pivotune.core.errors import NumericsError
from pivotune.train.losses import kl_estimate
from pivotune.train.update import Prepared

REFERENCE_KL_LIMIT = 1e-6


def check_ratio(batches: Sequence[Prepared], logprobs: Sequence[Tensor], tolerance: float) -> None:
    """Raise unless the trainer's log-probabilities equal the recorded sampling ones.

    Tokens without a recorded log-probability have ratio 1 by definition.
    """
    for batch, values in zip(batches, logprobs, strict=True):
        tokens = batch.tokens
        compared = (tokens.pg_weights != 0) & ~torch.isnan(tokens.sampled)
        gap = torch.where(compared, (values - tokens.sampled).abs(), 0.0)
        if len(gap) == 0 or float(gap.max()) <= tolerance:
            continue
        worst = int(gap.argmax())
        raise NumericsError(
            "the trainer's policy is not the one that sampled: the first ratio is not 1",
            where=batch.token_name(worst),
            got=f"log-probability {float(values[worst]):.6f}, sampled at "
            f"{float(tokens.sampled[worst]):.6f}",
            expected=f"equal within {tolerance:g}",
            fix="sample from the weights that are trained, at the temperature that is recorded "
            "and without top-k or top-p; for a sampler of lower precision set "
            "train.loss.importance_cap",
        )


def check_reference(
    batches: Sequence[Prepared], logprobs: Sequence[Tensor], reference_hash: str | None
) -> None:
    """Raise unless the reference, which has the same weights, gives the same log-probabilities."""
    total, count = 0.0, 0
    for batch, values in zip(batches, logprobs, strict=True):
        trained = batch.tokens.pg_weights != 0
        if batch.tokens.reference is not None and bool(trained.any()):
            kl = kl_estimate(values, batch.tokens.reference, "k3")[trained].double()
            total, count = total + float(kl.sum()), count + int(trained.sum())
    if count and not total / count < REFERENCE_KL_LIMIT:
        raise NumericsError(
            "the KL to the reference policy is not 0 before the first update",
            where=f"reference {reference_hash}",
            got=f"{total / count:.3g}",
            expected=f"below {REFERENCE_KL_LIMIT:g}",
            fix="the reference must be the policy that training begins with, adapter included",
        )
