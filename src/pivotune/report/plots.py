"""The page's plots as inline SVG, drawn by matplotlib.

Colours leave matplotlib as placeholders and become CSS variables, so that one drawing serves
light and dark. Text stays text. The output depends on the data only: no date, fixed ids.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any

import matplotlib as mpl
import msgspec
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from pivotune.core.estimate import Estimate
from pivotune.report.data import MethodCurves
from pivotune.report.tables import Table
from pivotune.report.text import show_line
from pivotune.report.turns import BINS, FEW, Place, Slice, TurnFigures

Draw = Callable[[Axes], None]

_INK, MUTED, _GRID, PAPER = "#010a01", "#010a02", "#010a03", "#010a04"
BACK, ACCENT = "#010a05", "#010a06"
_LINES = ("#010a11", "#010a12", "#010a13", "#010a14", "#010a15", "#010a16")
_VARIABLES = {
    _INK: "ink",
    MUTED: "muted",
    _GRID: "grid",
    PAPER: "paper",
    BACK: "back-bar",
    ACCENT: "accent",
    **{colour: f"line-{i}" for i, colour in enumerate(_LINES, 1)},
}
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
_STEPS = [1, 2, 5, 10]
_MARKERS = ("o", "s", "^", "D", "v", "P")

_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pivotune",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 11.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "text.color": _INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 11,
}


class Plot(msgspec.Struct, frozen=True):
    """A drawing, what it says in a sentence, and the numbers behind it."""

    title: str
    says: str
    svg: Markup
    numbers: Table


class Look(msgspec.Struct, frozen=True):
    """How one method is drawn everywhere: colour, line style and marker."""

    colour: str
    line: Any
    marker: str


def look_of(name: str, order: Sequence[str]) -> Look:
    """The look of the method at its place in `order`, so that all drawings agree.

    36 methods differ: every time that the colours begin again, lines and markers are one further.
    """
    place = order.index(name)
    shape = place + place // len(_LINES)
    return Look(
        _LINES[place % len(_LINES)],
        _STYLES[shape % len(_STYLES)],
        _MARKERS[shape % len(_MARKERS)],
    )


def draw_svg(name: str, title: str, description: str, draw: Draw, height: float = 3.0) -> Markup:
    """One drawing of 5.4 by `height` inches; `name` keeps its ids apart from other drawings'."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # glyphs that the measuring font lacks
        figure = Figure(figsize=(5.4, height), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        out = StringIO()
        canvas.print_svg(  # type: ignore[no-untyped-call]
            out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    return _embed(out.getvalue(), name, title, description)


def _embed(svg: str, name: str, title: str, description: str) -> Markup:
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{name}-", body)
    body = body.replace("'DejaVu Sans'", "var(--sans)")
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var(--{variable})")
    labels = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>'
    )
    start = f'<svg role="img" aria-labelledby="{name}-title {name}-desc" class="plot"'
    body = body.replace("<svg", start, 1)
    return Markup(re.sub(r"(<svg[^>]*>)", lambda found: found.group(1) + labels, body, count=1))


def plot_means(figures: TurnFigures, samples: int) -> Markup:
    """Histogram of mean rewards, the chosen turns in front."""

    def draw(axes: Axes) -> None:
        centres = [(i + 0.5) / BINS for i in range(BINS)]
        width = 0.9 / BINS
        axes.bar(centres, figures.histogram, width, color=BACK, label="all profiled turns")
        axes.bar(centres, figures.chosen_histogram, width, color=ACCENT, label="pivots")
        axes.set_xlabel(f"mean reward of {samples} samples (0 = never accepted, 1 = always)")
        axes.set_ylabel("turns")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlim(0, 1)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=_STEPS))
        axes.grid(axis="x", visible=False)
        legend_above(axes)

    return draw_svg(
        "means",
        "How often the base succeeds at each turn",
        f"Histogram of the mean reward of {figures.turns} turns; {figures.selected} are pivots.",
        draw,
    )


def plot_spread(places: Sequence[Place]) -> Markup:
    """Mean against spread; turns at the same place are one circle whose area counts them."""
    most = max(place.turns for place in places)

    def draw(axes: Axes) -> None:
        for selected, colour, label in ((False, BACK, "other turns"), (True, ACCENT, "pivots")):
            shown = [place for place in places if place.selected is selected]
            axes.scatter(
                [place.mean for place in shown],
                [place.spread for place in shown],
                s=[12 + 420 * place.turns / most for place in shown],
                color=colour,
                edgecolors=PAPER,
                linewidths=0.8,
            )
            axes.scatter([], [], s=60, color=colour, label=label)
        axes.set_xlabel("mean reward")
        axes.set_ylabel("standard deviation of the reward")
        axes.set_xlim(-0.06, 1.06)
        axes.set_ylim(-0.06, 0.58)
        legend_above(axes)

    return draw_svg(
        "spread",
        "Where the samples disagree",
        "Each circle is a group of turns with the same mean reward and spread; larger circles "
        "hold more turns.",
        draw,
    )


def plot_depth(slices: Sequence[Slice]) -> Markup:
    """Share of live turns by position in the trajectory."""

    def draw(axes: Axes) -> None:
        places = range(len(slices))
        axes.bar(places, [100 * each.live_share for each in slices], 0.8, color=_colours(slices))
        every = 1 + len(slices) // 12
        axes.set_xticks(places[::every], [each.name for each in slices[::every]])
        axes.set_xlabel("position of the turn in its trajectory (1 = first action)")
        axes.set_ylabel("turns with mixed results (%)")
        axes.set_ylim(0, 100)
        axes.grid(axis="x", visible=False)

    return draw_svg(
        "depth",
        "Undecided turns by position",
        "Share of turns at which some samples succeed and some fail, by turn number.",
        draw,
    )


def _colours(slices: Sequence[Slice]) -> list[str]:
    return [BACK if each.turns < FEW else ACCENT for each in slices]


def plot_slices(key: str, what: str, slices: Sequence[Slice]) -> Markup:
    """Share of live turns by `what` they have in common, the most frequent on top."""

    def draw(axes: Axes) -> None:
        places = list(range(len(slices)))[::-1]
        names = [f"{show_line(each.name, 22)} ({each.turns:,})" for each in slices]
        axes.barh(places, [100 * each.live_share for each in slices], 0.7, color=_colours(slices))
        axes.set_yticks(places, names)
        axes.set_xlabel("turns with mixed results (%)")
        axes.set_xlim(0, 100)
        axes.grid(axis="y", visible=False)

    return draw_svg(
        key,
        f"Undecided turns by {what}",
        f"Share of turns at which some samples succeed and some fail, by {what}; in brackets the "
        "number of turns.",
        draw,
        height=max(1.8, 0.9 + 0.28 * len(slices)),
    )


def plot_measure(
    key: str,
    title: str,
    label: str,
    curves: Sequence[MethodCurves],
    order: Sequence[str],
    scale: float = 1.0,
) -> Markup:
    """One measure over training steps, a line a method in the look of its place in `order`."""

    def draw(axes: Axes) -> None:
        for curve in curves:
            if series := curve.series.get(key):
                look = look_of(curve.method, order)
                ends = [curve.series.get(key.replace("_mean", end)) for end in ("_min", "_max")]
                if key.endswith("_mean") and ends[0] and ends[1]:
                    low, high = ([scale * v for v in each.values] for each in ends if each)
                    axes.fill_between(
                        series.steps, low, high, color=look.colour, alpha=0.15, linewidth=0
                    )
                axes.plot(
                    series.steps,
                    [scale * value for value in series.values],
                    color=look.colour,
                    linestyle=look.line,
                    marker=look.marker if len(series.steps) < 25 else "",
                    markersize=5,
                    linewidth=1.8,
                    label=show_line(curve.method, 24),
                )
        axes.set_xlabel("training step")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=_STEPS))
        legend_above(axes)

    return draw_svg(f"curve-{key.replace('_', '-')}", title, f"{title}, by training step.", draw)


def legend_above(axes: Axes) -> None:
    """A legend above the axes, in as many columns as fit."""
    assert isinstance(axes.figure, Figure)
    lengths = [len(label) for label in axes.get_legend_handles_labels()[1]]
    fitting = (columns for columns in (3, 2) if _legend_width(lengths, columns) <= 58)
    axes.figure.legend(loc="outside upper center", ncols=next(fitting, 1))


def _legend_width(lengths: Sequence[int], columns: int) -> int:
    """Characters across; matplotlib fills column by column, and a key takes about six."""
    parts = np.array_split(np.array(lengths), columns)
    return sum(int(part.max()) + 6 for part in parts if len(part))


def plot_trade(changes: Mapping[str, tuple[Estimate, Estimate]], order: Sequence[str]) -> Markup:
    """Gain in-domain against change out-of-domain, with 95 % intervals, in points."""

    def draw(axes: Axes) -> None:
        axes.axhline(0, color=MUTED, linewidth=1)
        axes.axvline(0, color=MUTED, linewidth=1)
        for name, (inside, outside) in changes.items():
            look = look_of(name, order)
            axes.errorbar(
                [100 * (inside.value or 0)],
                [100 * (outside.value or 0)],
                xerr=_arms(inside),
                yerr=_arms(outside),
                fmt=look.marker,
                color=look.colour,
                markersize=8,
                linewidth=1.8,
                capsize=3,
                label=show_line(name, 24),
            )
        axes.margins(0.15)
        axes.set_xlabel("change in-domain (points; right is better)")
        axes.set_ylabel("change out-of-domain (points)")
        legend_above(axes)

    return draw_svg(
        "trade",
        "What was gained against what was lost",
        "Change from the base in-domain (across) and out-of-domain (up) with 95 % intervals.",
        draw,
        height=3.6,
    )


def _arms(estimate: Estimate) -> list[list[float]] | None:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    return [[100 * (estimate.value - estimate.low)], [100 * (estimate.high - estimate.value)]]
