"""The findings on one model, and the forecast over several, in words."""

from collections.abc import Iterator, Sequence

from pivotune.core.scores import Forecast, TaxComparison
from pivotune.report.tax.budgets import say_tries
from pivotune.report.text import percent, show_line, signed, signed_interval


def say_tax(found: TaxComparison) -> str:
    """First try and last, as half a sentence."""
    name = show_line(found.name)
    base, post = found.base.curve.values, found.post.curve.values
    return (
        f"with one try {name} solves {percent(post[0])} of the tasks, the base {percent(base[0])}; "
        f"with {say_tries(found.k)}, {percent(post[-1])} against {percent(base[-1])}."
    )


def say_findings(found: TaxComparison) -> Iterator[str]:
    """First try and last, where the base catches up, and the tax."""
    yield f"W{say_tax(found)[1:]}"
    yield _crossover_sentence(found)
    yield say_change(found)


def say_change(found: TaxComparison) -> str:
    """Whether training changed what more tries can still gain, with the tax as the measure."""
    tax, name = found.tax_share, show_line(found.name)
    if tax.value is None:
        return f"The Sharpening Tax is undefined: {tax.reason}."
    meaning = (
        f"After its first try {name} has less left to gain from more tries than the base had"
        if tax.low is not None and tax.low > 0
        else f"After its first try {name} has more left to gain from more tries than the base had"
        if tax.high is not None and tax.high < 0
        else "What more tries can still gain after the first did not clearly change"
    )
    return (
        f"{meaning} (Sharpening Tax S({found.k}): {signed(tax.value)}, 95 % interval "
        f"{signed_interval(tax) or 'undefined'})."
    )


def say_losers(comparisons: Sequence[TaxComparison]) -> str:
    """Which of several models clearly have less left to gain; empty for a single one."""
    lost = [each for each in comparisons if (low := each.tax_share.low) is not None and low > 0]
    if len(comparisons) < 2:
        return ""
    if not lost:
        return f"Under none of the {len(comparisons)} models is clearly less left."
    names = ", ".join(show_line(each.name) for each in lost)
    return f"Clearly less is left under {len(lost)} of {len(comparisons)} models: {names}."


def _crossover_sentence(found: TaxComparison) -> str:
    at = found.crossover.value
    if at is None:
        return f"The base does not catch up within {say_tries(found.k)}."
    if at == 1:
        return "The base is as good from the first try."
    return f"The base catches up at {say_tries(at)} (95 % interval {_crossover_range(found)})."


def _crossover_range(found: TaxComparison) -> str:
    ends = (found.crossover.low, found.crossover.high)
    return " to ".join(f"more than {found.k}" if end is None else f"{end:,}" for end in ends)


def forecast_sentence(found: Forecast) -> str:
    """Whether a cheap measurement would have ranked the models the same."""
    rank = found.rank_correlation
    what = (
        f"Forecast: does Tax S({found.cheap_k}) on one half of the tasks rank the models as "
        f"Tax S({found.full_k}) does on the other half?"
    )
    if rank.value is None:
        return f"{what} Undefined: {rank.reason}."
    if rank.low is None or rank.high is None:
        return f"{what} Spearman's rank correlation {signed(rank.value)}, no interval."
    return (
        f"{what} Spearman's rank correlation {signed(rank.value)} (95 % interval "
        f"{signed_interval(rank)}), where 1 is the same order."
    )
