"""Tables over runs of several seeds."""

from collections.abc import Callable

from pivotune.core.estimate import OverSeeds
from pivotune.core.scores import TaxOverSeeds
from pivotune.report.tables import Table, table
from pivotune.report.tax.budgets import BASE, say_tries
from pivotune.report.text import number, points, show_line, signed


def over_seeds_tables(found: TaxOverSeeds) -> list[tuple[str, Table]]:
    """Titles and tables of runs that were joined."""
    shown = [("Over seeds", over_seeds_table(found))]
    if found.matched:
        shown.append(("At equal first tries", matched_over_seeds_table(found)))
    return shown


def over_seeds_table(found: TaxOverSeeds) -> Table:
    """A row a policy: means over seeds, with their range in brackets."""
    k = found.k
    left_out = ", ".join(map(show_line, found.left_out))
    return table(
        (
            "model",
            "1 try (%)",
            f"{say_tries(k)} (%)",
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
                _range(each.tax_area, signed),
                _range(each.share, number),
                _range(each.tax_share, signed),
                "–" if each.name == BASE else "{}, {}".format(*each.clear),
            )
            for each in found.policies
        ),
        f"Means of {found.seeds} seeds, in brackets their range. Tax: base minus model, positive: "
        "headroom lost. Clear: the 95 % interval of Tax S within a seed does not hold zero."
        + (f" Left out, because a run lacks them: {left_out}." if left_out else ""),
    )


def matched_over_seeds_table(found: TaxOverSeeds) -> Table:
    """A row a pair of methods at equal first tries: differences over seeds."""
    return table(
        (
            "left minus right",
            "1 try (points)",
            f"{say_tries(found.k)} (points)",
            f"A({found.k})",
            f"S({found.k})",
            "seeds where left, right clearly has more",
        ),
        (
            (
                f"{show_line(each.left)} / {show_line(each.right)}",
                _range(each.first, points),
                _range(each.last, points),
                _range(each.area, signed),
                _range(each.share, signed),
                "{}, {}".format(*each.clear),
            )
            for each in found.matched
        ),
        "Each pair at equal first tries: the method that ends better is taken at an earlier "
        "checkpoint. Clear: by the 95 % interval of the difference in S within a seed.",
    )


def _range(found: OverSeeds, shown: Callable[[float | None], str]) -> str:
    if found.mean is None:
        return "–"
    if len(found.seeds) == 1:
        return shown(found.mean)
    return f"{shown(found.mean)} ({shown(found.low)} to {shown(found.high)})"


def _percentage(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
