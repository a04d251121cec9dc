"""Tables of the page: headings and rows of ready text, also for the numbers behind each plot."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pivotune.core.ledger import Alternative, Prices
from pivotune.core.types import Cost
from pivotune.report.data import (
    MethodCurves,
    PivotSet,
    PolicyScore,
    StageCost,
    SuiteScores,
    TurnPoint,
)
from pivotune.report.text import duration, interval, number, percent, points, show_line
from pivotune.report.turns import BINS, Place, Slice, TurnFigures

LISTED_PIVOTS = 40


class Table(msgspec.Struct, frozen=True):
    """Text for cells; the first column names the row. `note` stands below."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> Table:
    """A table of strings."""
    return Table(tuple(head), tuple(tuple(row) for row in rows), note)


def markdown(shown: Table) -> str:
    """The table for a Markdown file; the first column is text, the others are numbers."""

    def line(cells: Iterable[str]) -> str:
        escaped = (
            " ".join(cell.replace("\\", "\\\\").replace("|", "\\|").split()) for cell in cells
        )
        return f"| {' | '.join(escaped)} |"

    rule = ("---", *("---:" for _ in shown.head[1:]))
    lines = [line(shown.head), line(rule), *map(line, shown.rows)]
    return "\n".join([*lines, *(["", shown.note] if shown.note else [])]) + "\n"


def score_table(suite: SuiteScores) -> Table:
    """Change and success of every policy on one suite."""
    reasons = (each.success.reason for each in suite.scores)
    return table(
        ("model", "change (points)", "95 % interval", "success", "95 % interval", "tasks"),
        (
            (
                show_line(each.policy),
                points(each.change.value) if each.change else "–",
                interval(each.change, change=True),
                percent(each.success.value),
                interval(each.success),
                number(each.success.tasks),
            )
            for each in suite.scores
        ),
        "; ".join(dict.fromkeys(show_line(reason, 200) for reason in reasons if reason)),
    )


def group_table(scores: Sequence[PolicyScore]) -> Table:
    """Success by skill, and in brackets the change from the first policy, the base."""
    base, *others = scores
    return table(
        ("skill", *(show_line(each.policy) for each in scores)),
        (
            (
                show_line(name),
                percent(share),
                *(_with_change(each.groups.get(name), share) for each in others),
            )
            for name, share in base.groups.items()
        ),
        "In brackets: points of change from the base.",
    )


def _with_change(share: float | None, base: float) -> str:
    return percent(share) if share is None else f"{percent(share)} ({points(share - base)})"


def mean_table(figures: TurnFigures) -> Table:
    """The histogram of means."""
    return table(
        ("mean reward", "turns", "pivots"),
        (
            (f"{i / BINS:.3f} to {(i + 1) / BINS:.3f}", number(turns), number(chosen))
            for i, (turns, chosen) in enumerate(
                zip(figures.histogram, figures.chosen_histogram, strict=True)
            )
        ),
    )


def slice_table(name: str, slices: Sequence[Slice]) -> Table:
    """Counts and live share of groups of turns."""
    return table(
        (name, "turns", "mixed results", "share", "pivots"),
        (
            (
                show_line(each.name),
                number(each.turns),
                number(each.live),
                percent(each.live_share),
                number(each.selected),
            )
            for each in slices
        ),
    )


def spread_table(places: Sequence[Place]) -> Table:
    """How many turns share a mean and a spread."""
    return table(
        ("mean reward", "standard deviation", "turns", "pivots"),
        (
            (
                f"{place.mean:.3f}",
                f"{place.spread:.3f}",
                number(place.turns),
                number(place.turns if place.selected else 0),
            )
            for place in places
        ),
    )


def selection_table(sets: Sequence[PivotSet]) -> Table:
    """Every selection, with the estimate that chose it and the one from fresh samples.

    A turn is mixed (its group is live) where its samples differ in reward.
    """
    return table(
        (
            "verifier, rule",
            "pivots of turns",
            "mean when chosen",
            "mean, fresh samples",
            "mixed again",
            "95 % interval",
            "random turns mixed",
            "95 % interval",
        ),
        (
            (
                show_line(f"{each.verifier}, {each.rule}"),
                f"{each.chosen:,} of {each.profiled:,}",
                number(each.profiled_mean),
                number(each.pivots.mean),
                percent(each.pivots.live_share.value),
                interval(each.pivots.live_share),
                percent(each.random.live_share.value),
                interval(each.random.live_share),
            )
            for each in sets
        ),
        "; ".join(
            f"{each.wrong_expert:,} turns were left out under {show_line(each.verifier)}: it "
            "rejects the expert's own action there"
            for each in sets
            if each.wrong_expert
        ),
    )


def pivot_table(shown: Sequence[TurnPoint]) -> Table:
    """The pivots with the lowest means first, at most `LISTED_PIVOTS`."""
    pivots = sorted((each for each in shown if each.selected), key=lambda each: each.mean)
    left = len(pivots) - LISTED_PIVOTS
    return table(
        ("turn", "position", "expert's action", "mean reward", "spread"),
        (
            (
                show_line(each.turn_id, 60),
                number(each.depth + 1),
                show_line(each.kind, 30),
                number(each.mean),
                number(each.spread),
            )
            for each in pivots[:LISTED_PIVOTS]
        ),
        f"{left:,} more pivots are in the run folder." if left > 0 else "",
    )


def outcome_table(outcomes: Mapping[str, int]) -> Table:
    """What the samples turned out to be."""
    total = sum(outcomes.values())
    return table(
        ("the sample is", "samples", "share"),
        (
            (_OUTCOMES.get(name, name), number(count), percent(count / total))
            for name, count in sorted(outcomes.items(), key=lambda item: -item[1])
        ),
    )


_OUTCOMES = {
    "ok": "an action that can be carried out",
    "no_call": "text where a tool call was expected",
    "unexpected_call": "a call where text was expected",
    "malformed": "malformed: cannot be read as a call",
    "truncated": "cut off by the token limit",
    "empty": "empty",
}


def curve_table(key: str, curves: Sequence[MethodCurves]) -> Table:
    """One measure by step, a column a method."""
    shown = [curve for curve in curves if key in curve.series]
    steps = sorted({step for curve in shown for step in curve.series[key].steps})
    columns = [dict(zip(c.series[key].steps, c.series[key].values, strict=True)) for c in shown]
    return table(
        ("step", *(show_line(curve.method) for curve in shown)),
        (
            (
                number(step),
                *(number(column[step], 4) if step in column else "–" for column in columns),
            )
            for step in steps
        ),
    )


def cost_table(costs: Sequence[StageCost], prices: Prices = Prices()) -> Table:  # noqa: B008
    """What every stage used, and the sum; columns that are zero throughout are left out."""
    total = sum((each.cost for each in costs), Cost())
    fields = [name for name in _COSTS if getattr(total, name)]
    rows = [(each.stage, each.cost) for each in costs] + [("total", total)]
    return table(
        ("stage", *(_COSTS[name] for name in fields), *_money_head(prices)),
        (
            (
                show_line(stage),
                *(_amount(name, getattr(cost, name)) for name in fields),
                *([_money(prices.of(cost))] if prices.known else []),
            )
            for stage, cost in rows
        ),
        f"Prices for a million tokens: prompt {prices.prompt:g}, sampled {prices.sampled:g}, "
        f"trained {prices.trained:g} {show_line(prices.currency, 10)}."
        if prices.known
        else "",
    )


def alternative_table(found: Sequence[Alternative], prices: Prices) -> Table:
    """Each local method beside the end-to-end one that it stands in for."""
    fields = ("rollout_turns", "prompt_tokens", "sampled_tokens", "seconds")
    rows = []
    for each in found:
        name = show_line(each.method)
        for label, cost, times in (
            (f"{name}, profiling counted", each.local, 1.0),
            (f"{name}, episodes instead (estimate)", each.end_to_end, each.times_fewer_turns),
        ):
            amounts = [_amount(field, getattr(cost, field)) for field in fields]
            money = [_money(prices.of(cost))] if prices.known else []
            rows.append((label, *amounts, f"{times:.1f} ×", *money))
    first = found[0]
    return table(
        ("sampling", *(_COSTS[name] for name in fields), "turns", *_money_head(prices)),
        rows,
        f"The estimate plays an episode for every single action that was sampled, each as long "
        f"and as dear as the base's mean episode ({first.turns_an_episode:.1f} turns, over "
        f"{first.episodes:,} episodes). Training on what was sampled is in neither row.",
    )


def _money_head(prices: Prices) -> list[str]:
    return [f"price ({show_line(prices.currency, 10)})"] if prices.known else []


def _money(value: float) -> str:
    return f"{value:,.4f}" if value < 1 else f"{value:,.2f}"


_COSTS = {
    "rollout_turns": "rollout turns",
    "prompt_tokens": "prompt tokens",
    "sampled_tokens": "sampled tokens",
    "trained_tokens": "trained tokens",
    "environment_steps": "environment steps",
    "verifier_calls": "verifier calls",
    "judge_calls": "judge calls",
    "judge_tokens": "judge tokens",
    "seconds": "time",
}


def _amount(name: str, value: float) -> str:
    return duration(value) if name == "seconds" else number(value)
