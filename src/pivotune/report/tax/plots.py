"""The drawings: curves over tries, the tax of each model, headroom, and the three classes."""

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from pivotune.core.scores import CLASS_NAMES, CoverageScores, TaxComparison
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
from pivotune.report.tax.budgets import BASE, budgets
from pivotune.report.tax.tables import (
    class_counts,
    class_table,
    coverage_table,
    headroom_table,
    score_table,
)
from pivotune.report.text import number, show_line

DRAWN = 5
"""Post-trained models drawn beside the base; the tables hold all."""


def tax_plots(
    comparisons: Sequence[TaxComparison], first: TaxComparison, order: Sequence[str]
) -> Iterator[Plot]:
    """All drawings; those of one model show `first`, and `order` gives every model its look."""
    drawn = [first, *(each for each in comparisons if each is not first)][:DRAWN]
    yield Plot(
        "Tasks solved when there are more tries",
        "A task counts as solved when at least one of k tries solves it. Bands: 95 % intervals"
        + (f" (of the base and {show_line(first.name, 24)})." if len(drawn) > 2 else "."),
        _plot_coverage(drawn, order),
        coverage_table(drawn),
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
            headroom_table(scores),
        )
    yield Plot(
        "Always, given compute, never",
        "Tasks that every try solves, that some tries solve, and that no try solves.",
        _plot_classes(drawn),
        class_table(comparisons),
    )


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
            widths = [100 * class_counts(each)[index] / each.tasks for _, each in rows]
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
