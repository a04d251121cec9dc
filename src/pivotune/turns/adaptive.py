"""Profiling that stops early where the samples so far already decide (ours).

A turn is wanted when its K rewards are mixed and their mean is below a threshold (`adv`). After
some samples, the rest is predicted with a uniform prior over the turn's success rate: the number
of further successes is beta-binomial. Sampling stops when the chance of being wanted is within
`doubt` of 0 or 1.

    s of n so far, r = K - n to come:
    P(wanted) = sum over j of BetaBinomial(j; r, 1 + s, 1 + n - s) where s + j of K is wanted

`replay` says from profiles with all K samples what that would have saved, and at what agreement.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import comb, exp, lgamma

import msgspec

from pivotune.core.types import Profile


class AdaptiveConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a turn is sampled no further; all numbers are ours."""

    first: int = 4
    """Samples that every turn gets."""
    doubt: float = 0.1
    """Largest chance that stopping decides otherwise than all K samples would."""
    mean_below: float = 0.75
    """Threshold of the mean, as in the selection."""
    success_at: float = 0.5
    """A reward from which on a sample counts as a success."""

    def __post_init__(self) -> None:
        if self.first < 1 or not 0 <= self.doubt < 0.5:
            raise ValueError(
                "adaptive: first starts at 1, doubt lies between 0 and one half; got "
                f"first {self.first}, doubt {self.doubt}"
            )


class Saving(msgspec.Struct, frozen=True):
    """Samples of all turns with a fixed K, those that were needed, and the share of turns that
    are decided as with all K."""

    fixed: int
    used: int
    agreement: float

    @property
    def saved(self) -> float:
        return 1 - self.used / self.fixed if self.fixed else 0.0


def is_wanted(successes: int, n: int, mean_below: float) -> bool:
    """The rule on n binary rewards."""
    return 0 < successes < n and successes < mean_below * n


@lru_cache(maxsize=4096)
def chance_wanted(successes: int, n: int, total: int, mean_below: float) -> float:
    """The chance that all `total` samples make the turn wanted, given the first n."""
    rest = total - n
    return sum(
        _beta_binomial(more, rest, 1 + successes, 1 + n - successes)
        for more in range(rest + 1)
        if is_wanted(successes + more, total, mean_below)
    )


def _beta_binomial(k: int, n: int, a: float, b: float) -> float:
    return comb(n, k) * exp(_log_beta(k + a, n - k + b) - _log_beta(a, b))


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def is_decided(successes: int, n: int, total: int, config: AdaptiveConfig) -> bool:
    """Whether more samples are not worth it."""
    chance = chance_wanted(successes, n, total, config.mean_below)
    return min(chance, 1 - chance) <= config.doubt


def replay(profiles: Sequence[Profile], config: AdaptiveConfig) -> Saving:
    """Stop each stored profile where it would have been stopped after its first samples."""
    fixed = used = same = 0
    for profile in profiles:
        won = [reward >= config.success_at for reward in profile.rewards]
        total, first = len(won), min(config.first, len(won))
        fixed += total
        early = sum(won[:first])
        stopped = is_decided(early, first, total, config)
        used += first if stopped else total
        truth = is_wanted(sum(won), total, config.mean_below)
        chance = chance_wanted(early, first, total, config.mean_below)
        same += (chance > 0.5) == truth if stopped else 1
    return Saving(fixed, used, same / len(profiles) if profiles else 1.0)
