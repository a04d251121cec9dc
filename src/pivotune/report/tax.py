"""What more tries still buy: a base model and post-trained ones, as sentences, plots and tables.

Training can make the first try better and leave less for further tries: the Sharpening Tax. The
comparisons come ready from the evaluation; formulas are in `pivotune.evaluate.metrics`.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from pivotune.core.estimate import Estimate, OverSeeds
from pivotune.core.scores import (
    CLASS_NAMES,
    Classes,
    CoverageScores,
    Forecast,
    Matched,
    Reliability,
    TaxComparison,
    TaxFindings,
    TaxOverSeeds,
)
from pivotune.report.plots import (
    ACCENT,
    BACK,
    MUTED,
    PAPER,
    Plot,
    draw_svg,
    legend_above,
    look_of,
)
from pivotune.report.tables import Table, table
from pivotune.report.text import interval, number, percent, points, show_line

BASE = "base"
EITHER = "either"
DRAWN = 5
"""Post-trained models drawn beside the base; the tables hold all."""


class TaxSection(msgspec.Struct, frozen=True):
    """The section of the page: sentences on the main model, drawings, and tables."""

    says: tuple[str, ...]
    plots: tuple[Plot, ...]
    scores: Table
    router: Table
    matched: Table | None
    moves: Table
    reliability: Table
    classes: Table
    forecast: str
    main: str
    convention: str


def tax_section(found: TaxFindings | None, main: str, order: Sequence[str]) -> TaxSection | None:
    """The section, or None without comparisons; `order` gives every model its look."""
    if found is None or not found.comparisons:
        return None
    comparisons = found.comparisons
    first = main_comparison(found, main)
    looks = list(dict.fromkeys([*order, *(each.name for each in comparisons)]))
    return TaxSection(
        says=tuple(_sentences(first)),
        plots=tuple(_plots(comparisons, first, looks)),
        scores=score_table(comparisons),
        router=router_table(comparisons),
        matched=matched_table(found.matched) if found.matched else None,
        moves=moves_table(first),
        reliability=reliability_table(found.reliability),
        classes=_class_table(comparisons),
        forecast=forecast_sentence(found.forecast),
        main=show_line(first.name),
        convention=first.convention,
    )


def main_comparison(found: TaxFindings, main: str) -> TaxComparison:
    """That of the headline's model, or the first one."""
    return next((each for each in found.comparisons if each.name == main), found.comparisons[0])


def say_tax(found: TaxComparison) -> str:
    """First try and last, as half a sentence."""
    name = show_line(found.name)
    base, post = found.base.curve.values, found.post.curve.values
    return (
        f"with one try {name} solves {percent(post[0])} of the tasks, the base {percent(base[0])}; "
        f"with {_tries(found.k)}, {percent(post[-1])} against {percent(base[-1])}."
    )


def _sentences(found: TaxComparison) -> Iterator[str]:
    name = show_line(found.name)
    yield f"W{say_tax(found)[1:]}"
    yield _crossover_sentence(found)
    tax = found.tax_share
    if tax.value is None:
        yield f"The Sharpening Tax is undefined: {tax.reason}."
    elif tax.low is not None and tax.high is not None:
        meaning = (
            f"{name} has less left to gain from more tries than the base had"
            if tax.low > 0
            else f"{name} has more left to gain from more tries than the base had"
            if tax.high < 0
            else "no clear change in what more tries can still gain"
        )
        yield (
            f"Sharpening Tax S({found.k}): {_signed(tax.value)} (95 % interval "
            f"{_signed_interval(tax)}): {meaning}."
        )


def _crossover_sentence(found: TaxComparison) -> str:
    at = found.crossover.value
    if at is None:
        return f"The base does not catch up within {_tries(found.k)}."
    if at == 1:
        return "The base is as good from the first try."
    return f"The base catches up at {_tries(at)} (95 % interval {_crossover_range(found)})."


def _crossover_range(found: TaxComparison) -> str:
    ends = (found.crossover.low, found.crossover.high)
    return " to ".join(f"more than {found.k}" if end is None else f"{end:,}" for end in ends)


def _tries(k: int) -> str:
    return f"{k:,} tries" if k > 1 else "1 try"


def _signed(value: float | None) -> str:
    text = number(value)
    return f"+{text}" if value is not None and value > 0 else text


def _signed_interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{_signed(estimate.low)} to {_signed(estimate.high)}"


# Tables


def score_table(comparisons: Sequence[TaxComparison]) -> Table:
    """A row a model, the base first, with everything that the definition of the tax names."""
    first = comparisons[0]
    left_out = max(len(each.left_out) for each in comparisons)
    return table(
        (
            "policy",
            "1 try",
            f"{first.k:,} tries",
            f"A({first.k})",
            "Tax A",
            "95 % interval",
            f"S({first.k})",
            "Tax S",
            "95 % interval",
            "k*",
            "tasks",
        ),
        [
            _base_row(first),
            *(_score_row(each) for each in comparisons),
        ],
        f"Left out, because a model lacks {_tries(first.k)} there: {left_out:,}."
        if left_out
        else "",
    )


def _base_row(found: TaxComparison) -> tuple[str, ...]:
    share = number(found.base.share.value)
    return (BASE, *_coverage_cells(found.base), "–", "", share, "–", "", "–", number(found.tasks))


def _coverage_cells(scores: CoverageScores) -> tuple[str, str, str]:
    values = scores.curve.values
    return percent(values[0]), percent(values[-1]), number(scores.area.value)


def _score_row(found: TaxComparison) -> tuple[str, ...]:
    return (
        show_line(found.name),
        *_coverage_cells(found.post),
        _signed(found.tax_area.value),
        _signed_interval(found.tax_area),
        number(found.post.share.value),
        _signed(found.tax_share.value),
        _signed_interval(found.tax_share),
        f"> {found.k:,}" if found.crossover.value is None else number(found.crossover.value),
        number(found.tasks),
    )


def router_table(comparisons: Sequence[TaxComparison]) -> Table:
    """Which model to ask at each budget, and what each gains on the base there."""
    return table(
        (
            "tries a task",
            "ask",
            *(f"{show_line(each.name)} minus base (points)" for each in comparisons),
        ),
        (
            (
                number(k),
                show_line(pick_model(comparisons, k)),
                *(_gain(each.gain[k - 1]) for each in comparisons),
            )
            for k in budgets(comparisons[0].k)
        ),
        "In brackets: 95 % intervals. A model is asked where it is clearly better than the base "
        "(its interval lies above zero), the one with the largest gain if several are; the base "
        "where it is clearly better than every model; else either will do.",
    )


def _gain(gain: Estimate) -> str:
    return f"{points(gain.value)} ({interval(gain, change=True) or 'undefined'})"


def pick_model(comparisons: Sequence[TaxComparison], k: int) -> str:
    """The model that a router asks when every task may be tried k times."""
    gains = {each.name: each.gain[k - 1] for each in comparisons}
    better = [name for name, gain in gains.items() if gain.low is not None and gain.low > 0]
    if better:
        return max(better, key=lambda name: gains[name].value or 0.0)
    worse = [gain.high is not None and gain.high < 0 for gain in gains.values()]
    return BASE if all(worse) else EITHER


def budgets(k: int) -> list[int]:
    """The budgets that are shown: powers of two, and K itself."""
    powers = list(takewhile(lambda power: power < k, (2**i for i in range(64))))
    return [*powers, k]


def reliability_table(found: Sequence[Reliability]) -> Table:
    """The share of tasks that all of k tries solve, and how often two tries agree."""
    shown = budgets(len(found[0].curve.values)) if found else []
    return table(
        ("policy", *(f"all of {_tries(k)}" for k in shown), "two tries agree"),
        (
            (
                show_line(each.name),
                *(percent(each.curve.values[k - 1]) for k in shown),
                f"{percent(each.consistency.value)} ({interval(each.consistency) or '–'})",
            )
            for each in found
        ),
        f"{found[0].curve.convention}." if found else "",
    )


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
        return f"{what} Spearman's rank correlation {_signed(rank.value)}, no interval."
    return (
        f"{what} Spearman's rank correlation {_signed(rank.value)} (95 % interval "
        f"{_signed_interval(rank)}), where 1 is the same order."
    )


def matched_table(found: Sequence[Matched]) -> Table:
    """Pairs of methods where one try solves about as much: what do further tries add?"""
    k = found[0].k
    return table(
        (
            "compared (left / right)",
            "1 try (%)",
            f"{_tries(k)} (%)",
            "difference (points)",
            "95 % interval",
            f"A({k}) difference",
            f"S({k}) difference",
            "95 % interval",
        ),
        (_matched_row(each) for each in found),
        "The method that ends better is taken at the checkpoint whose first-try success comes "
        "nearest to the other's. Differences are left minus right: above zero, left gains more "
        "from further tries.",
    )


def _matched_row(found: Matched) -> tuple[str, ...]:
    names = [
        show_line(name) + ("" if step is None else f" after step {step:,}")
        for name, step in zip((found.left, found.right), found.steps, strict=True)
    ]
    pairs = (" / ".join(f"{100 * rate:.1f}" for rate in side) for side in (found.first, found.last))
    last = found.last_difference
    return (
        " / ".join(names),
        *pairs,
        points(last.value),
        interval(last, change=True),
        _signed(found.area_difference.value),
        _signed(found.share_difference.value),
        _signed_interval(found.share_difference),
    )


def over_seeds_table(found: TaxOverSeeds) -> Table:
    """A row a policy: means over seeds, with their range in brackets."""
    k = found.k
    left_out = ", ".join(map(show_line, found.left_out))
    return table(
        (
            "policy",
            "1 try (%)",
            f"{_tries(k)} (%)",
            f"A({k})",
            "Tax A",
            f"S({k})",
            "Tax S",
            "seeds with clear loss, gain",
        ),
        (
            (
                show_line(each.name),
                _range(each.first, _percentage),
                _range(each.last, _percentage),
                _range(each.area, number),
                _range(each.tax_area, _signed),
                _range(each.share, number),
                _range(each.tax_share, _signed),
                "–" if each.name == BASE else "{}, {}".format(*each.clear),
            )
            for each in found.policies
        ),
        f"Means of {found.seeds} seeds, in brackets their range. Tax: base minus policy, positive: "
        "headroom lost. Clear: the 95 % interval of Tax S within a seed does not hold zero."
        + (f" Left out, because a run lacks them: {left_out}." if left_out else ""),
    )


def matched_over_seeds_table(found: TaxOverSeeds) -> Table:
    """A row a pair of methods at equal first tries: differences over seeds."""
    return table(
        (
            "left minus right",
            "1 try (points)",
            f"{_tries(found.k)} (points)",
            f"A({found.k})",
            f"S({found.k})",
            "seeds where left, right clearly has more",
        ),
        (
            (
                f"{show_line(each.left)} / {show_line(each.right)}",
                _range(each.first, points),
                _range(each.last, points),
                _range(each.area, _signed),
                _range(each.share, _signed),
                "{}, {}".format(*each.clear),
            )
            for each in found.matched
        ),
        "Each pair at equal first tries: the method that ends better is taken at an earlier "
        "checkpoint. Clear: by the 95 % interval of the difference in S within a seed.",
    )


def over_seeds_tables(found: TaxOverSeeds) -> list[tuple[str, Table]]:
    """Titles and tables of runs that were joined."""
    shown = [("Over seeds", over_seeds_table(found))]
    if found.matched:
        shown.append(("At equal first tries", matched_over_seeds_table(found)))
    return shown


def _percentage(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _range(found: OverSeeds, shown: Callable[[float | None], str]) -> str:
    if found.mean is None:
        return "–"
    if len(found.seeds) == 1:
        return shown(found.mean)
    return f"{shown(found.mean)} ({shown(found.low)} to {shown(found.high)})"


def moves_table(found: TaxComparison) -> Table:
    """How many tasks went from each class under the base to each class afterwards."""
    name = show_line(found.name)
    return table(
        ("solved by the base", *(f"{each} by {name}" for each in CLASS_NAMES)),
        (
            (before, *(number(count) for count in row))
            for before, row in zip(CLASS_NAMES, found.moves, strict=True)
        ),
    )


# Plots


def _plots(
    comparisons: Sequence[TaxComparison], first: TaxComparison, order: Sequence[str]
) -> Iterator[Plot]:
    drawn = [first, *(each for each in comparisons if each is not first)][:DRAWN]
    yield Plot(
        "Tasks solved when there are more tries",
        "A task counts as solved when at least one of k tries solves it. Bands: 95 % intervals"
        + (" (of the base and the first model)." if len(drawn) > 2 else "."),
        _plot_coverage(drawn, order),
        _curve_table(drawn),
    )
    yield Plot(
        "The tax, model by model",
        "Right of zero, training has used up headroom that the base had.",
        _plot_tax(comparisons),
        score_table(comparisons),
    )
    if len(comparisons) > 1:
        yield Plot(
            "First try against what is left",
            "Compare models of about equal first-try success: the lower one has less to gain.",
            _plot_matched(comparisons, order),
            score_table(comparisons),
        )
    floor = min(first.base.curve.values[0], first.post.curve.values[0])
    for key, name, scores in (
        ("area-base", "the base", first.base),
        ("area-post", show_line(first.name, 24), first.post),
    ):
        yield Plot(
            f"Headroom of {name}",
            f"The filled area A({first.k}) = {number(scores.area.value)} is what more tries add.",
            _plot_area(key, name, scores, floor),
            _area_table(scores),
        )
    yield Plot(
        "Always, given compute, never",
        "Tasks that every try solves, that some tries solve, and that no try solves.",
        _plot_classes(drawn),
        _class_table(comparisons),
    )


def _curve_table(drawn: Sequence[TaxComparison]) -> Table:
    curves = [(BASE, drawn[0].base.curve), *((each.name, each.post.curve) for each in drawn)]
    return table(
        ("tries", *(show_line(name) for name, _ in curves)),
        (
            (
                number(k),
                *(
                    f"{percent(curve.values[k - 1])} ({100 * curve.low[k - 1]:.1f} to "
                    f"{100 * curve.high[k - 1]:.1f})"
                    for _, curve in curves
                ),
            )
            for k in budgets(drawn[0].k)
        ),
    )


def _area_table(scores: CoverageScores) -> Table:
    values = scores.curve.values
    return table(
        ("tries", "solved", "missing to the last"),
        (
            (number(k), percent(values[k - 1]), percent(values[-1] - values[k - 1]))
            for k in budgets(len(values))
        ),
    )


def _class_table(comparisons: Sequence[TaxComparison]) -> Table:
    rows = [(BASE, comparisons[0].base.classes)]
    rows += [(show_line(each.name), each.post.classes) for each in comparisons]
    return table(
        ("policy", *CLASS_NAMES),
        ((name, *(number(count) for count in _class_counts(classes))) for name, classes in rows),
    )


def _class_counts(classes: Classes) -> tuple[int, int, int]:
    return classes.always, classes.given_compute, classes.never


def _plot_coverage(drawn: Sequence[TaxComparison], order: Sequence[str]) -> Markup:
    def draw(axes: Axes) -> None:
        _draw_curve(axes, drawn[0].base, BASE, MUTED, "-", band=True)
        for each in drawn:
            look, name = look_of(each.name, order), show_line(each.name, 24)
            # More bands than three hide one another; the numbers below have all intervals.
            band = each is drawn[0] or len(drawn) <= 2
            _draw_curve(axes, each.post, name, look.colour, look.line, band=band)
        _tries_axis(axes, drawn[0].k)
        axes.set_ylabel("tasks solved by at least one try (%)")
        legend_above(axes)

    return draw_svg(
        "coverage",
        "Tasks solved by at least one of k tries",
        "Coverage curves of the base and of the post-trained models over the number of tries.",
        draw,
        height=3.4,
    )


def _draw_curve(
    axes: Axes, scores: CoverageScores, name: str, colour: str, style: Any, *, band: bool
) -> None:
    ks = range(1, len(scores.curve.values) + 1)
    if band:
        low, high = (
            [100 * value for value in side] for side in (scores.curve.low, scores.curve.high)
        )
        axes.fill_between(ks, low, high, color=colour, alpha=0.15, linewidth=0)
    values = [100 * value for value in scores.curve.values]
    axes.plot(ks, values, color=colour, linestyle=style, linewidth=1.8, label=name)


def _tries_axis(axes: Axes, k: int) -> None:
    """Doublings at equal distances, labelled with plain numbers."""
    if k > 1:
        axes.set_xscale("log", base=2)
    powers = [power for power in budgets(k) if power & (power - 1) == 0]
    axes.xaxis.set_major_locator(FixedLocator(powers[:: 1 + len(powers) // 9]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("tries a task (k)")


def _plot_area(key: str, name: str, scores: CoverageScores, floor: float) -> Markup:
    values = [100 * value for value in scores.curve.values]

    def draw(axes: Axes) -> None:
        ks = range(1, len(values) + 1)
        axes.fill_between(ks, values, values[-1], color=BACK, alpha=0.6, linewidth=0)
        axes.plot(ks, values, color=ACCENT, linewidth=2)
        axes.axhline(values[-1], color=MUTED, linewidth=1, linestyle=":")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlabel("tries a task (k)")
        axes.set_ylabel("tasks solved (%)")
        axes.set_ylim(max(0.0, 100 * floor - 5), 100)

    return draw_svg(
        key,
        f"Headroom of {name}",
        "The coverage curve and the area between it and its last value.",
        draw,
    )


def _plot_tax(comparisons: Sequence[TaxComparison]) -> Markup:
    shown = [each for each in comparisons if each.tax_share.value is not None][:12]

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, linewidth=1)
        for place, each in enumerate(reversed(shown)):
            tax = each.tax_share
            if tax.low is not None and tax.high is not None:
                axes.plot([tax.low, tax.high], [place, place], color=ACCENT, linewidth=2)
            axes.plot([tax.value or 0.0], [place], "o", color=ACCENT, markersize=8)
        axes.set_yticks(range(len(shown)), [show_line(each.name, 24) for each in reversed(shown)])
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"Tax S({comparisons[0].k}) = base minus model (right: headroom lost)")

    return draw_svg(
        "tax",
        "Sharpening Tax by model",
        "The share of headroom lost by each model, with 95 % intervals.",
        draw,
        height=max(1.8, 1.1 + 0.34 * len(shown)),
    )


def _plot_matched(comparisons: Sequence[TaxComparison], order: Sequence[str]) -> Markup:
    def draw(axes: Axes) -> None:
        base = comparisons[0].base
        shown = [(BASE, base, MUTED, "X")]
        for each in comparisons:
            look = look_of(each.name, order)
            shown.append((show_line(each.name, 24), each.post, look.colour, look.marker))
        for name, scores, colour, marker in shown:
            share = scores.share
            if share.value is None:
                continue
            x = 100 * scores.curve.values[0]
            if share.low is not None and share.high is not None:
                axes.plot([x, x], [share.low, share.high], color=colour, linewidth=1.5)
            axes.plot([x], [share.value], marker, color=colour, markersize=8, label=name)
        axes.margins(x=0.15, y=0.15)
        axes.set_xlabel("tasks solved at the first try (%)")
        axes.set_ylabel(f"S({comparisons[0].k}): share left that tries add")
        legend_above(axes)

    return draw_svg(
        "matched",
        "First-try success against the share of headroom",
        "Each model as a point: success at the first try, and S(K) with its interval.",
        draw,
        height=3.4,
    )


def _plot_classes(drawn: Sequence[TaxComparison]) -> Markup:
    rows = [(BASE, drawn[0].base.classes)]
    rows += [(show_line(each.name, 24), each.post.classes) for each in drawn]
    looks = ((BACK, ""), (ACCENT, ""), (PAPER, "////"))

    def draw(axes: Axes) -> None:
        places = list(range(len(rows)))[::-1]
        left = [0.0] * len(rows)
        for index, (name, (colour, hatch)) in enumerate(zip(CLASS_NAMES, looks, strict=True)):
            widths = [100 * _class_counts(each)[index] / each.tasks for _, each in rows]
            axes.barh(
                places, widths, 0.62, left, color=colour, hatch=hatch, edgecolor=BACK, label=name
            )
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks(places, [name for name, _ in rows])
        axes.set_xlim(0, 100)
        axes.set_xlabel("tasks (%)")
        axes.grid(visible=False)
        legend_above(axes)

    return draw_svg(
        "classes",
        "Tasks solved always, given compute, never",
        "Stacked bars: the share of tasks in each of three classes, by model.",
        draw,
        height=1.6 + 0.36 * len(rows),
    )
