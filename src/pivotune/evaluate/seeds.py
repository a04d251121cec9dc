"""The tax of several runs that differ in their seed, as one table.

Every seed has its own base, tasks and random streams, so a figure over seeds is the mean of the
seeds' own figures with their range. The forecast takes all models of all runs together.
"""

from collections.abc import Callable, Sequence

from pivotune.core.errors import DataError
from pivotune.core.estimate import Estimate, OverSeeds, over_seeds
from pivotune.core.scores import (
    CoverageScores,
    Forecast,
    Matched,
    MatchedOverSeeds,
    PolicyOverSeeds,
    TaxComparison,
    TaxFindings,
    TaxOverSeeds,
)

BASE = "base"


def join_tax(runs: Sequence[TaxFindings], forecast: Estimate) -> TaxOverSeeds:
    """One row a policy that all runs have, the base first, in the order of the first run.

    `forecast` is that of all runs' models (`tax.forecast_tax_over`). Raises `DataError` where
    the runs were measured at different K or have no model in common.
    """
    budgets = sorted({each.k for each in runs})
    if len(budgets) != 1:
        raise DataError(
            "runs that were measured at different budgets cannot be joined",
            got=f"{len(runs)} runs, K = {', '.join(map(str, budgets))}",
            expected="at least one run, and one K",
        )
    by_run = [{each.name: each for each in run.comparisons} for run in runs]
    names = [name for name in by_run[0] if all(name in run for run in by_run)]
    if not names:
        raise DataError(
            "the runs have no model in common",
            got="; ".join(", ".join(run) for run in by_run),
            fix="join runs of one recipe",
        )
    every = dict.fromkeys(name for run in by_run for name in run)
    rows = [[run[name] for run in by_run] for name in names]
    return TaxOverSeeds(
        k=budgets[0],
        seeds=len(runs),
        policies=(_base(rows[0]), *(map(_policy, rows))),
        matched=tuple(_matched(runs)),
        forecast=Forecast(runs[0].forecast.cheap_k, budgets[0], forecast),
        left_out=tuple(name for name in every if name not in names),
    )


def _base(seeds: Sequence[TaxComparison]) -> PolicyOverSeeds:
    none = over_seeds(None for _ in seeds)
    return PolicyOverSeeds(BASE, *_coverage([each.base for each in seeds]), none, none)


def _policy(seeds: Sequence[TaxComparison]) -> PolicyOverSeeds:
    return PolicyOverSeeds(
        seeds[0].name,
        *_coverage([each.post for each in seeds]),
        over_seeds(each.tax_area.value for each in seeds),
        over_seeds(each.tax_share.value for each in seeds),
        count_clear([each.tax_share for each in seeds]),
    )


def _coverage(
    seeds: Sequence[CoverageScores],
) -> tuple[OverSeeds, OverSeeds, OverSeeds, OverSeeds]:
    """First try, K tries, A(K) and S(K)."""
    return (
        over_seeds(each.curve.values[0] for each in seeds),
        over_seeds(each.curve.values[-1] for each in seeds),
        over_seeds(each.area.value for each in seeds),
        over_seeds(each.share.value for each in seeds),
    )


def _matched(runs: Sequence[TaxFindings]) -> list[MatchedOverSeeds]:
    """The pairs that all runs have."""
    by_run = [{(each.left, each.right): each for each in run.matched} for run in runs]
    pairs = [pair for pair in by_run[0] if all(pair in run for run in by_run)]
    return [_pair([run[pair] for run in by_run]) for pair in pairs]


def _pair(seeds: Sequence[Matched]) -> MatchedOverSeeds:
    def joined(difference: Callable[[Matched], Estimate]) -> OverSeeds:
        return over_seeds(difference(each).value for each in seeds)

    return MatchedOverSeeds(
        left=seeds[0].left,
        right=seeds[0].right,
        first=joined(lambda each: each.first_difference),
        last=joined(lambda each: each.last_difference),
        area=joined(lambda each: each.area_difference),
        share=joined(lambda each: each.share_difference),
        clear=count_clear([each.share_difference for each in seeds]),
    )


def count_clear(seeds: Sequence[Estimate]) -> tuple[int, int]:
    """In how many seeds the interval lies above zero, and in how many below."""
    return (
        sum(each.low is not None and each.low > 0 for each in seeds),
        sum(each.high is not None and each.high < 0 for each in seeds),
    )
