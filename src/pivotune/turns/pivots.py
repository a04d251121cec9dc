"""Which turns are worth training on: pure functions of stored profiles (PivotRL, section 3).

A selection can be made again with other numbers without sampling anything. Choosing turns by
an estimated mean below a threshold favours turns whose estimate came out low by chance: the
report therefore gives K and an estimate from fresh samples beside the selected means.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from pivotune.core.errors import NoPivots
from pivotune.core.types import Profile


class ProfileStats(msgspec.Struct, frozen=True):
    """Statistics of the valid rewards of one profile.

    `variance` is the population variance; whether rewards differ is decided by `mixed`
    (highest > lowest), never by a floating-point variance. A success is a reward of at least
    `success_at`.
    """

    n: int
    successes: int
    mean: float
    variance: float
    lowest: float
    highest: float

    @property
    def mixed(self) -> bool:
        return self.highest > self.lowest


def profile_stats(profile: Profile, success_at: float = 0.5) -> ProfileStats | None:
    """None when no sample has a valid verdict."""
    return reward_stats(profile.rewards, success_at)


def reward_stats(rewards: Sequence[float], success_at: float = 0.5) -> ProfileStats | None:
    """Statistics of one turn's valid rewards; None where there are none."""
    if not rewards:
        return None
    values = np.asarray(rewards, np.float64)
    return ProfileStats(
        n=len(rewards),
        successes=int((values >= success_at).sum()),
        mean=float(values.mean()),
        variance=float(values.var()),
        lowest=min(rewards),
        highest=max(rewards),
    )


class SelectConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How pivots are chosen.

    rule: `random` (all candidates), `mixed`, `adv` (mixed and mean below `mean_below`) or
    `gap` (mixed and expert reward minus mean above `gap_above`). The paper gives no number for
    either threshold: 0.75 and 0.25 are ours. `limit` above 0 keeps that many, drawn by the seed.
    """

    rule: str = "adv"
    mean_below: float = 0.75
    gap_above: float = 0.25
    limit: int = 0


Rule = Callable[[Profile, ProfileStats, SelectConfig], bool]


def _random(profile: Profile, stats: ProfileStats, config: SelectConfig) -> bool:
    return True


def _mixed(profile: Profile, stats: ProfileStats, config: SelectConfig) -> bool:
    return stats.mixed


def _adv(profile: Profile, stats: ProfileStats, config: SelectConfig) -> bool:
    return stats.mixed and stats.mean < config.mean_below


def _gap(profile: Profile, stats: ProfileStats, config: SelectConfig) -> bool:
    expert = profile.expert.reward
    return stats.mixed and expert is not None and expert - stats.mean > config.gap_above


RULES: dict[str, Rule] = {"random": _random, "mixed": _mixed, "adv": _adv, "gap": _gap}


class Selection(msgspec.Struct, frozen=True):
    """The chosen turn ids in profile order, and what became of every profile."""

    turn_ids: tuple[str, ...]
    counts: dict[str, int]


def select_pivots(profiles: Sequence[Profile], config: SelectConfig, seed: int) -> Selection:
    """Apply a rule; raises `NoPivots` with a histogram when it leaves nothing."""
    rule = RULES[config.rule]
    counts = {"profiled": len(profiles), "no valid sample": 0, "all equal": 0, "outside": 0}
    chosen: list[str] = []
    for profile in profiles:
        stats = profile_stats(profile)
        if stats is None:
            counts["no valid sample"] += 1
        elif rule(profile, stats, config):
            chosen.append(profile.turn_id)
        else:
            counts["all equal" if not stats.mixed else "outside"] += 1
    if not chosen:
        raise _no_pivots(profiles, config)
    if 0 < config.limit < len(chosen):
        keep = np.random.default_rng(seed).choice(len(chosen), config.limit, replace=False)
        counts["over the limit"] = len(chosen) - config.limit
        chosen = [chosen[i] for i in sorted(keep)]
    counts["selected"] = len(chosen)
    return Selection(tuple(chosen), counts)


def solved_turns(profiles: Iterable[Profile], config: SelectConfig) -> list[str]:
    """Ids of the turns that are too easy for `adv`: the mean is `mean_below` or more."""
    stats = ((each.turn_id, profile_stats(each)) for each in profiles)
    return [name for name, found in stats if found and found.mean >= config.mean_below]


def mean_histogram(profiles: Iterable[Profile], bins: int = 8) -> list[int]:
    """Counts of profile means in `bins` equal bins over [0, 1]; 1 falls into the last."""
    means = [stats.mean for stats in map(profile_stats, profiles) if stats is not None]
    counts, _ = np.histogram(means, bins=bins, range=(0.0, 1.0))
    return [int(count) for count in counts]


def _no_pivots(profiles: Sequence[Profile], config: SelectConfig) -> NoPivots:
    stats = [each for each in map(profile_stats, profiles) if each is not None]
    always = sum(not each.mixed and each.mean >= 0.5 for each in stats)
    never = sum(not each.mixed and each.mean < 0.5 for each in stats)
    if not profiles:
        advice = (
            "no expert action passes its own verifier (pivotune verify selftest shows them): "
            "choose another one, or keep them with candidates.keep_wrong_expert=true"
        )
    elif stats and always > len(stats) / 2:
        advice = "the policy can do these turns already: bring harder traces, or raise temperature"
    elif stats and never > len(stats) / 2:
        advice = (
            "the policy hardly ever succeeds: warm it up on the traces (a short SFT) and profile "
            "again, or use a more lenient verifier"
        )
    else:
        advice = "relax the rule (select.rule=mixed) or profile with more samples"
    return NoPivots(
        f"0 pivots of {len(profiles)} turns under the rule {config.rule!r}",
        got=f"means in eighths from 0 to 1: {mean_histogram(profiles)}; "
        f"{always} always accepted, {never} never",
        fix=advice,
    )
