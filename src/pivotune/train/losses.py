"""The loss terms, as pure functions of flat vectors.

Shapes: T = trained tokens of a micro-batch, in the flat order of `models.forward`.

A step's weights already carry the global denominator (`train.batches`), so a micro-batch's loss
is a plain sum and the micro-batches of a step add up to the step's loss:

    sum_t  pg_t * [ -min(w A, clip(w, 1 - low, 1 + high) A) * c + beta * KL_t ]  -  ce_t * log p_t
         + kl_t * KL(teacher_t || pi_t)

w = pi / pi_old, c = the truncated weight between sampler and trainer (1 where it is off).
"""

from dataclasses import dataclass
from typing import Literal

import msgspec
import torch
from torch import Tensor

KlEstimator = Literal["k1", "k2", "k3"]

_LEAST_TAIL = 1e-6  # a smaller rest of a distribution is rounding
_LOG_RATIO_LIMIT = 20.0  # exp stays finite in float32; far outside every clip range


class LossConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the policy-gradient term is built.

    Clip 0.2 / 0.28, token mean and k3 are published settings; beta 0 means that no reference is
    kept or computed.
    """

    clip_low: float = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = 0.28
    """The ratio is clipped above at 1 + clip_high."""
    ratio: Literal["token", "sequence"] = "token"
    """One ratio a token, or the geometric mean over a sample's tokens (GSPO)."""
    normaliser: Literal["token", "sequence", "constant"] = "token"
    """Mean over all trained tokens, mean of the samples' means, or sum / `constant`."""
    constant: float = 1.0
    """The denominator where the normaliser is "constant" (Dr.GRPO), in tokens."""
    beta: float = 0.0
    """Weight of the KL to the reference policy."""
    kl: KlEstimator = "k3"
    """Estimator of that KL; see `kl_estimate` for what its gradient is."""
    importance_cap: float | None = None
    """Correct a sampler that differs from the trainer by min(pi_old / pi_sampler, cap)."""


@dataclass(frozen=True, slots=True, eq=False)
class FlatTargets:
    """A teacher's distributions: `weights` (T,) of the forward KL, `probs` (T, K) of K tokens."""

    weights: Tensor
    probs: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class FlatTokens:
    """The trained tokens of a micro-batch; every tensor has shape (T,).

    `sampled`: log-probs under the policy that sampled (NaN: as the policy is at this step).
    `frozen`: the trainer's own log-probs at the start of the step, None while the weights are
    still those. `reference`: log-probs of the reference policy, None where beta is 0. `rows`
    numbers the samples from 0, for the sequence ratio.
    """

    pg_weights: Tensor
    ce_weights: Tensor
    advantages: Tensor
    sampled: Tensor
    rows: Tensor
    frozen: Tensor | None = None
    reference: Tensor | None = None
    targets: FlatTargets | None = None


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over tokens, so that micro-batches add; `tokens` counts policy-gradient tokens."""

    tokens: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    ce_tokens: float = 0.0
    ce: float = 0.0
    forward_kl_tokens: float = 0.0
    forward_kl: float = 0.0

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(
            self.tokens + other.tokens,
            self.ratio + other.ratio,
            max(self.ratio_max, other.ratio_max),
            self.clipped + other.clipped,
            self.kl + other.kl,
            self.ce_tokens + other.ce_tokens,
            self.ce + other.ce,
            self.forward_kl_tokens + other.forward_kl_tokens,
            self.forward_kl + other.forward_kl,
        )


def clipped_surrogate(ratio_T: Tensor, advantages_T: Tensor, low: float, high: float) -> Tensor:
    """(T,) -min(w A, clip(w, 1 - low, 1 + high) A)."""
    clipped = ratio_T.clamp(1.0 - low, 1.0 + high)
    return -torch.minimum(ratio_T * advantages_T, clipped * advantages_T)


def kl_estimate(logprobs_T: Tensor, reference_T: Tensor, kind: KlEstimator) -> Tensor:
    """(T,) estimates of KL(pi || ref) at tokens sampled from pi, with x = log ref - log pi.

    As a loss, the gradient with respect to log pi is
    k1 = -x:           1, zero in expectation under pi: logs well, trains nothing;
    k2 = x^2 / 2:      -x, in expectation the gradient of the reverse KL(pi || ref);
    k3 = e^x - 1 - x:  1 - e^x, in expectation the gradient of the forward KL(ref || pi).
    """
    x = reference_T - logprobs_T
    if kind == "k1":
        return -x
    if kind == "k2":
        return 0.5 * x * x
    x = x.clamp(max=_LOG_RATIO_LIMIT)
    return torch.expm1(x) - x


def named_forward_kl(logprobs_TK: Tensor, probs_TK: Tensor) -> Tensor:
    """(T,) KL(teacher || student) over K named tokens and one tail that holds all others.

    `logprobs_TK` are the student's at the teacher's tokens. By the log-sum inequality this is
    at most the divergence over the whole vocabulary, and equal to it where K covers that.
    """
    named = probs_TK > 0
    terms = torch.where(named, torch.xlogy(probs_TK, probs_TK) - probs_TK * logprobs_TK, 0.0)
    tail = (1.0 - probs_TK.sum(-1)).clamp(min=0.0)
    others = 1.0 - torch.where(named, logprobs_TK.exp(), 0.0).sum(-1)
    tail_term = torch.xlogy(tail, tail) - tail * others.clamp(min=_LEAST_TAIL).log()
    return terms.sum(-1) + torch.where(tail > _LEAST_TAIL, tail_term, 0.0)


def sequence_mean(values_T: Tensor, rows_T: Tensor, mask_T: Tensor) -> Tensor:
    """(T,) each token gets the mean of `values_T` over the masked tokens of its row."""
    count = int(rows_T.max()) + 1 if len(rows_T) else 0
    zeros = values_T.new_zeros(count)
    sums = zeros.index_add(0, rows_T, torch.where(mask_T, values_T, 0.0))
    sizes = zeros.index_add(0, rows_T, mask_T.to(values_T.dtype))
    return (sums / sizes.clamp(min=1.0))[rows_T]


def importance_weight(old_T: Tensor, sampled_T: Tensor, cap: float) -> Tensor:
    """(T,) min(pi_old / pi_sampler, cap), without gradient; 1 where `sampled_T` is NaN."""
    log_weight = torch.nan_to_num(old_T - sampled_T, nan=0.0)
    return log_weight.clamp(max=_LOG_RATIO_LIMIT).exp().clamp(max=cap).detach()


def policy_ratio(logprobs_T: Tensor, tokens: FlatTokens, config: LossConfig) -> Tensor:
    """(T,) pi / pi_old with gradient; 1 at tokens that the policy-gradient term leaves out.

    pi_old is what sampled. Where that is not recorded, or where the importance cap separates
    sampler and trainer, it is the trainer's own policy at the start of the step.
    """
    start = logprobs_T.detach() if tokens.frozen is None else tokens.frozen
    trained = tokens.pg_weights != 0
    use_start = torch.isnan(tokens.sampled)
    if config.importance_cap is not None:
        use_start = torch.ones_like(use_start)
    old = torch.where(use_start, start, tokens.sampled)
    log_ratio = torch.where(trained, logprobs_T - old, 0.0)
    if config.ratio == "sequence":
        log_ratio = sequence_mean(log_ratio, tokens.rows, trained)
    return log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT).exp()


def micro_batch_loss(
    logprobs_T: Tensor, tokens: FlatTokens, config: LossConfig, targets_TK: Tensor | None = None
) -> tuple[Tensor, LossSums]:
    """The micro-batch's share of the step's loss, and the sums for the live metrics.

    `targets_TK`: the student's log-probs at the teacher's tokens, where there are targets.
    """
    loss = -(tokens.ce_weights * logprobs_T).sum()
    trained = tokens.pg_weights != 0
    sums = _likelihood_sums(logprobs_T, tokens.ce_weights)
    if tokens.targets is not None and targets_TK is not None:
        divergence = named_forward_kl(targets_TK, tokens.targets.probs)
        matched = tokens.targets.weights != 0
        loss = loss + (tokens.targets.weights * torch.where(matched, divergence, 0.0)).sum()
        sums += LossSums(
            forward_kl_tokens=float(matched.sum()),
            forward_kl=float(divergence.detach()[matched].sum()),
        )
    if not bool(trained.any()):
        return loss, sums
    ratio = policy_ratio(logprobs_T, tokens, config)
    terms = clipped_surrogate(ratio, tokens.advantages, config.clip_low, config.clip_high)
    if config.importance_cap is not None:
        start = logprobs_T.detach() if tokens.frozen is None else tokens.frozen
        terms = terms * importance_weight(start, tokens.sampled, config.importance_cap)
    kl = torch.zeros_like(terms)
    if tokens.reference is not None:
        kl = kl_estimate(logprobs_T, tokens.reference, config.kl)
        terms = terms + config.beta * kl
    loss = loss + (tokens.pg_weights * torch.where(trained, terms, 0.0)).sum()
    return loss, sums + _ratio_sums(ratio, kl, tokens.advantages, trained, config)


def _likelihood_sums(logprobs_T: Tensor, ce_weights_T: Tensor) -> LossSums:
    chosen = ce_weights_T != 0
    count, total = torch.stack([chosen.sum(), -logprobs_T.detach()[chosen].sum()]).tolist()
    return LossSums(ce_tokens=count, ce=total)


def _ratio_sums(
    ratio_T: Tensor, kl_T: Tensor, advantages_T: Tensor, trained_T: Tensor, config: LossConfig
) -> LossSums:
    """A token is clipped where the minimum takes the clipped side, so its gradient is zero."""
    ratio = ratio_T.detach()[trained_T]
    advantages = advantages_T[trained_T]
    over = (ratio > 1.0 + config.clip_high) & (advantages > 0)
    under = (ratio < 1.0 - config.clip_low) & (advantages < 0)
    kl = kl_T.detach()[trained_T].sum()
    values = [trained_T.sum(), ratio.sum(), ratio.max(), (over | under).sum(), kl]
    return LossSums(*torch.stack([value.double() for value in values]).tolist())
