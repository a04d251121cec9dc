"""What more tries still buy: the page's section on a base model and post-trained ones.

Training can make the first try better and leave less for further tries: the Sharpening Tax. The
comparisons come ready from the evaluation; formulas are in `pivotune.evaluate.metrics`.
"""

from collections.abc import Sequence

import msgspec

from pivotune.core.scores import TaxComparison, TaxFindings
from pivotune.report.plots import Plot
from pivotune.report.tables import Table
from pivotune.report.tax.plots import tax_plots
from pivotune.report.tax.sentences import forecast_sentence, say_findings
from pivotune.report.tax.tables import (
    class_table,
    matched_table,
    moves_table,
    reliability_table,
    router_table,
    score_table,
)
from pivotune.report.text import show_line


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
        says=tuple(say_findings(first)),
        plots=tuple(tax_plots(comparisons, first, looks)),
        scores=score_table(comparisons),
        router=router_table(comparisons),
        matched=matched_table(found.matched) if found.matched else None,
        moves=moves_table(first),
        reliability=reliability_table(found.reliability),
        classes=class_table(comparisons),
        forecast=forecast_sentence(found.forecast),
        main=show_line(first.name),
        convention=first.convention,
    )


def main_comparison(found: TaxFindings, main: str) -> TaxComparison:
    """That of the headline's model, or the first one."""
    return next((each for each in found.comparisons if each.name == main), found.comparisons[0])
