"""After a mistake: how often each policy still solves the task, and how fast."""

from collections.abc import Sequence

import msgspec
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pivotune.report.data import Recovered, Recovery
from pivotune.report.plots import MUTED, Plot, draw_svg, legend_above, look_of
from pivotune.report.tables import Table, table
from pivotune.report.text import interval, number, percent, show_line

_DIAGNOSIS = {
    "resample": "the base, from before its mistake",
    "correct": "the base, after the right action instead",
    "assist": "the base, after two optimal actions behind its mistake",
}


class RecoverySection(msgspec.Struct, frozen=True):
    """The section of the page."""

    says: str
    plot: Plot | None
    scores: Table


def recovery_section(found: Recovery | None, order: Sequence[str]) -> RecoverySection | None:
    """The section, or None where nothing was replayed; `order` gives every method its look."""
    if found is None or not found.policies:
        return None
    marked = (
        f" {percent(found.failed_with_mistake, 0)} of the base's failed episodes hold such a "
        "mistake."
        if found.failed_with_mistake is not None
        else ""
    )
    return RecoverySection(
        says=f"{found.states:,} states just after a pivotal mistake of the base (an action that "
        f"made the task longer than it had to be), each played on {found.replays} times." + marked,
        plot=_plot(found, order),
        scores=recovery_table(found),
    )


def recovery_table(found: Recovery) -> Table:
    """A row a policy, then the base with help."""
    rows = [(show_line(each.name), each) for each in found.policies]
    rows += [(_DIAGNOSIS.get(each.name, show_line(each.name)), each) for each in found.diagnosis]
    return table(
        ("model", "recovers", "95 % interval", "turns when it does", "optimal turns"),
        (
            (
                name,
                percent(each.rate.value),
                interval(each.rate),
                number(each.turns, 1),
                number(each.optimum, 1),
            )
            for name, each in rows
        ),
        "The share of replays that still solve the task, mean over states.",
    )


def _plot(found: Recovery, order: Sequence[str]) -> Plot | None:
    drawn = [each for each in found.policies if each.within]
    if not drawn:
        return None
    base = found.policies[0].name
    names = list(dict.fromkeys([*order, *(each.name for each in drawn)]))
    return Plot(
        "Recovered, turn by turn",
        "Share of replays that have solved the task after so many turns.",
        _plot_within(drawn, base, names),
        _within_table(drawn),
    )


def _plot_within(drawn: Sequence[Recovered], base: str, order: Sequence[str]) -> Markup:
    def draw(axes: Axes) -> None:
        for each in drawn:
            look = look_of(each.name, order)
            turns = range(len(each.within) + 1)
            axes.step(
                turns,
                [0.0, *(100 * share for share in each.within)],
                where="post",
                color=MUTED if each.name == base else look.colour,
                linestyle="-" if each.name == base else look.line,
                linewidth=1.8,
                label=show_line(each.name, 24),
            )
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlabel("turns after the mistake")
        axes.set_ylabel("replays that solved the task (%)")
        legend_above(axes)

    return draw_svg(
        "recovery",
        "Recovered by turn",
        "For each policy, the share of replays that solved the task by turns after the mistake.",
        draw,
    )


def _within_table(drawn: Sequence[Recovered]) -> Table:
    longest = max(len(each.within) for each in drawn)
    return table(
        ("turns", *(show_line(each.name) for each in drawn)),
        (
            (number(t + 1), *(percent(each.within[min(t, len(each.within) - 1)]) for each in drawn))
            for t in range(longest)
        ),
    )
