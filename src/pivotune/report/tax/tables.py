"""Tables of models against their base, also the numbers behind the drawings."""

from collections.abc import Mapping, Sequence

from pivotune.core.estimate import Estimate
from pivotune.core.scores import (
    CLASS_NAMES,
    Classes,
    CoverageScores,
    Evaluated,
    Matched,
    Reliability,
    TaxComparison,
)
from pivotune.report.tables import Table, table
from pivotune.report.tax.budgets import BASE, budgets, pick_model, say_tries
from pivotune.report.text import (
    interval,
    number,
    percent,
    points,
    show_line,
    signed,
    signed_interval,
)


def score_table(comparisons: Sequence[TaxComparison]) -> Table:
    """A row a model, the base first, with everything that the definition of the tax names."""
    first = comparisons[0]
    left_out = max(len(each.left_out) for each in comparisons)
    return table(
        (
            "model",
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
        f"Left out, because a model lacks {say_tries(first.k)} there: {left_out:,}."
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
        signed(found.tax_area.value),
        signed_interval(found.tax_area),
        number(found.post.share.value),
        signed(found.tax_share.value),
        signed_interval(found.tax_share),
        f"> {found.k:,}" if found.crossover.value is None else number(found.crossover.value),
        number(found.tasks),
    )


def evaluated_table(found: Mapping[str, Evaluated]) -> Table:
    """A row a model by itself: the first try, the best of more, and all of them."""
    k = max(len(each.coverage.values) for each in found.values())
    shown = budgets(k)[1:]
    return table(
        (
            "model",
            "success",
            "95 % interval",
            *(f"pass@{n}" for n in shown),
            *((f"pass^{k}",) if k > 1 else ()),
            "always / given compute / never",
            "tasks",
        ),
        (
            (
                show_line(name),
                percent(each.success.value),
                interval(each.success),
                *(percent(each.coverage.values[n - 1]) for n in shown),
                *((percent(each.reliability.values[-1]),) if k > 1 else ()),
                f"{each.classes.always} / {each.classes.given_compute} / {each.classes.never}",
                number(each.success.tasks),
            )
            for name, each in found.items()
        ),
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


def matched_table(found: Sequence[Matched]) -> Table:
    """Pairs of methods where one try solves about as much: what do further tries add?"""
    k = found[0].k
    return table(
        (
            "compared (left / right)",
            "1 try (%)",
            f"{say_tries(k)} (%)",
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
        signed(found.area_difference.value),
        signed(found.share_difference.value),
        signed_interval(found.share_difference),
    )


def reliability_table(found: Sequence[Reliability]) -> Table:
    """The share of tasks that all of k tries solve, and how often two tries agree."""
    shown = budgets(len(found[0].curve.values)) if found else []
    return table(
        ("model", *(f"all of {say_tries(k)}" for k in shown), "two tries agree"),
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


def class_table(comparisons: Sequence[TaxComparison]) -> Table:
    """How many tasks every try solves, some tries solve, and no try solves."""
    rows = [(BASE, comparisons[0].base.classes)]
    rows += [(show_line(each.name), each.post.classes) for each in comparisons]
    return table(
        ("model", *CLASS_NAMES),
        ((name, *(number(count) for count in class_counts(classes))) for name, classes in rows),
    )


def class_counts(classes: Classes) -> tuple[int, int, int]:
    """In the order of `CLASS_NAMES`."""
    return classes.always, classes.given_compute, classes.never


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


def coverage_table(drawn: Sequence[TaxComparison]) -> Table:
    """Tasks solved within each budget, a column a policy, the base first."""
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


def headroom_table(scores: CoverageScores) -> Table:
    """What is solved within each budget, and what more tries still add."""
    values = scores.curve.values
    return table(
        ("tries", "solved", "missing to the last"),
        (
            (number(k), percent(values[k - 1]), percent(values[-1] - values[k - 1]))
            for k in budgets(len(values))
        ),
    )
