"""The top of the page: which turns matter, what was gained, what was lost, what it cost.

Plain sentences with their figures, and the same figures as tiles.
"""

import math
from collections.abc import Iterator

import msgspec

from pivotune.core.estimate import Estimate
from pivotune.core.scores import TaxComparison, TaxFindings
from pivotune.core.types import Cost
from pivotune.report.data import PolicyScore, ReportData, SuiteScores
from pivotune.report.names import say_briefly
from pivotune.report.tax.section import main_comparison
from pivotune.report.tax.sentences import say_change, say_losers, say_tax
from pivotune.report.text import MINUS, duration, interval, percent, points, show_line
from pivotune.report.turns import TurnFigures, say_no_pivots, say_where


class Line(msgspec.Struct, frozen=True):
    """One question that the page answers first."""

    label: str
    text: str


class Tile(msgspec.Struct, frozen=True):
    """One figure of the headline."""

    name: str
    value: str
    detail: str
    tone: str = ""


def lead(data: ReportData, figures: TurnFigures | None) -> list[Line]:
    """What the run found; `figures` counts the profiled turns. What is not known is left out."""
    lines = (
        ("Which turns matter", _turns(data, figures)),
        ("What was gained", _gained(data)),
        ("What was lost", _lost(data)),
        ("What it cost", _cost(data)),
    )
    return [Line(label, " ".join(said)) for label, parts in lines if (said := list(parts))]


def introduction(data: ReportData, figures: TurnFigures | None) -> str:
    """What is compared with what, for somebody who has just opened the page."""
    said = []
    if figures:
        said.append(
            "An agent works in turns: each is one action with everything that came before it. "
            f"{figures.turns:,} turns of an expert's recorded work (the traces) were looked at."
        )
    if data.curves or data.in_domain or data.tax:
        said.append(
            "The base is the model before training; every other name is the same model after one "
            "way of training."
        )
    elif figures:
        said.append("The base is the model as it is; nothing was trained.")
    return " ".join(said)


def _turns(data: ReportData, figures: TurnFigures | None) -> Iterator[str]:
    if figures is None:
        return
    if not figures.selected:
        yield from say_no_pivots(figures, data.outcomes)
        return
    yield (
        f"{figures.selected:,} of {figures.turns:,} turns are pivots: the base, asked several "
        "times, sometimes succeeds there and sometimes fails, so practice can change the outcome. "
        f"{say_where(figures)}".rstrip()
    )


def _gained(data: ReportData) -> Iterator[str]:
    if (main := _main_score(data, "in_domain")) and main.change and data.in_domain:
        base = data.in_domain.scores[0]
        yield (
            f"At the job that was trained for, on tasks that training never saw, "
            f"{say_briefly(main.policy, data.curves)} solves {percent(main.success.value)} of "
            f"{show_line(data.in_domain.name)}, the base {percent(base.success.value)}: "
            f"{points(main.change.value)} percentage points (95 % interval "
            f"{interval(main.change, change=True) or 'undefined'})"
            f"{_unclear(main.change)}.{_most(data.in_domain, main)}"
        )
    if (tax := _tax(data)) and _gains_at_last(tax):
        yield _say_tries(tax)


def _lost(data: ReportData) -> Iterator[str]:
    if (other := _main_score(data, "out_of_domain")) and other.change and data.out_of_domain:
        yield (
            f"On {show_line(data.out_of_domain.name)}, which it was not trained for, it changed "
            f"by {points(other.change.value)} percentage points "
            f"({interval(other.change, change=True) or 'undefined'})"
            f"{_worst_group(data.out_of_domain.scores[0], other)}{_unclear(other.change)}."
        )
    if tax := _tax(data):
        if not _gains_at_last(tax):
            yield _say_tries(tax)
        yield say_change(tax)
        if data.tax and (losers := say_losers(data.tax.comparisons)):
            yield losers


def _gains_at_last(tax: TaxComparison) -> bool:
    """Whether the model is ahead of the base also when every task may be tried K times."""
    return tax.post.curve.values[-1] >= tax.base.curve.values[-1]


def _say_tries(tax: TaxComparison) -> str:
    return f"On {tax.tasks:,} tasks that were tried many times: {say_tax(tax)}"


def _cost(data: ReportData) -> Iterator[str]:
    if not data.costs:
        return
    total = _total(data)
    sampled = f" and {total.rollout_turns:,} actions sampled" if total.rollout_turns else ""
    money = (
        f", {data.prices.of(total):,.2f} {show_line(data.prices.currency, 10)}"
        if data.prices.known
        else ""
    )
    yield f"{duration(total.seconds)}{sampled}{money}, profiling and evaluation included."


def _unclear(change: Estimate) -> str:
    return ": no clear change" if _tone(change) == "even" else ""


def _most(suite: SuiteScores, main: PolicyScore) -> str:
    """The method that gained most, where that is another one."""
    changes = {
        each.policy: each.change.value
        for each in suite.scores
        if each.change and each.change.value is not None
    }
    best = max(changes, key=changes.__getitem__, default=main.policy)
    if points(changes.get(best)) == points(changes.get(main.policy)):
        return ""
    return f" {show_line(best)} gained most ({points(changes[best])})."


def _worst_group(base: PolicyScore, post: PolicyScore) -> str:
    """The skill that lost most, where one lost anything that shows."""
    changes = {
        name: after - base.groups[name]
        for name, after in post.groups.items()
        if name in base.groups
    }
    name = min(changes, key=changes.__getitem__, default="")
    if not name or round(100 * changes[name], 1) >= 0:
        return ""
    return f", most in {show_line(name, 40)} ({points(changes[name])})"


def _main_score(data: ReportData, kind: str) -> PolicyScore | None:
    suite = data.in_domain if kind == "in_domain" else data.out_of_domain
    scores = suite.scores if suite else ()
    return next((each for each in scores if each.policy == data.main), None)


def _tax(data: ReportData) -> TaxComparison | None:
    found = data.tax
    return main_comparison(found, data.main) if found and found.comparisons else None


def _total(data: ReportData) -> Cost:
    return sum((each.cost for each in data.costs), Cost())


def tiles(data: ReportData, figures: TurnFigures | None) -> Iterator[Tile]:
    """The lead's figures, large."""
    for kind, name in (("in_domain", "gained at the job"), ("out_of_domain", "other skills")):
        score = _main_score(data, kind)
        if score and score.change:
            change = score.change
            tone = _tone(change)
            yield Tile(
                name,
                f"{points(change.value)} points" if change.value is not None else "undefined",
                f"{interval(change, change=True)} ({_MEANING[tone]})" if tone else change.reason,
                tone,
            )
    if data.tax and data.tax.comparisons:
        yield _tax_tile(data.tax, data.main)
    if figures:
        yield Tile("pivots", f"{figures.selected:,}", f"of {figures.turns:,} turns")
    if data.costs:
        total = _total(data)
        yield Tile("cost", duration(total.seconds), f"{total.rollout_turns:,} actions sampled")


def _tax_tile(found: TaxFindings, main: str) -> Tile:
    tax = main_comparison(found, main).tax_share
    name = f"Sharpening Tax S({found.k})"
    if tax.value is None or tax.low is None or tax.high is None:
        return Tile(name, "undefined", show_line(tax.reason, 120))
    tone = {"good": "bad", "bad": "good"}.get(side := _tone(tax), side)
    meaning = {"good": "more tries gain more", "bad": "more tries gain less"}
    return Tile(
        name,
        f"{tax.value:+.3f}".replace("-", MINUS),
        f"{tax.low:+.3f} to {tax.high:+.3f} ({meaning.get(tone, 'no clear change')})".replace(
            "-", MINUS
        ),
        tone,
    )


_MEANING = {"good": "a gain", "bad": "a loss", "even": "no clear change"}


def _tone(change: Estimate) -> str:
    """Whether an interval of a change lies above, below or across zero; empty without one."""
    low, high = change.low, change.high
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    return "good" if low > 0 else "bad" if high < 0 else "even"
