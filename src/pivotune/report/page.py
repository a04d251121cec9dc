"""The report as one HTML file: no script, nothing loaded, every foreign character escaped."""

from collections.abc import Iterator, Sequence

import msgspec

from pivotune.report import plots, tables
from pivotune.report.data import ReportData
from pivotune.report.lead import introduction, lead, tiles
from pivotune.report.names import say_verifier, who_is_who
from pivotune.report.plots import Plot
from pivotune.report.recovery import recovery_section
from pivotune.report.render import render
from pivotune.report.shown import ShownTurn, show_turn
from pivotune.report.tables import Table
from pivotune.report.tax.section import tax_section
from pivotune.report.text import duration, interval, number, percent, points, show, show_line
from pivotune.report.turns import (
    FEW,
    TurnFigures,
    advise,
    count_turns,
    say_where,
)


class Step(msgspec.Struct, frozen=True):
    """One stage in the flow of the run; `width` is its share of the longest, in percent."""

    name: str
    result: str
    used: str
    width: float


def build_page(data: ReportData) -> str:
    """The whole page; equal data give equal bytes."""
    figures = count_turns(data.turns) if data.turns else None
    details = [show_turn(each) for each in data.details]
    return render(
        "page.html",
        title=show_line(data.title),
        traces=show_line(data.traces, 200),
        introduction=introduction(data, figures),
        lead=lead(data, figures),
        tiles=list(tiles(data, figures)),
        names=who_is_who(data.curves),
        scores=_score_tables(data),
        untrained=_untrained(data),
        trade=_trade(data),
        groups=_groups(data),
        recovery=recovery_section(data.recovery, _methods(data)),
        tax=tax_section(data.tax, data.main, _methods(data)),
        figures=figures,
        shares=_shares(figures),
        turn_plots=list(_turn_plots(data, figures)),
        outcomes=tables.outcome_table(data.outcomes) if data.outcomes else None,
        advice=advise(figures, data.outcomes) if figures else [],
        selections=tables.selection_table(data.pivot_sets) if data.pivot_sets else None,
        tried=_tried(data),
        where=say_where(figures) if figures else "",
        curse=_curse(data),
        pivots=tables.pivot_table(data.turns) if figures and figures.selected else None,
        details=details,
        opened=_opened(details),
        curves=list(_curve_plots(data)),
        flow=list(_flow(data, figures)),
        costs=tables.cost_table(data.costs, data.prices) if data.costs else None,
        alternative=tables.alternative_table(data.alternatives, data.prices)
        if data.alternatives
        else None,
        facts=[(show_line(each.name), show(each.value)) for each in data.facts],
        recipe=show(data.recipe, 20_000),
    )


# Results


def _score_tables(data: ReportData) -> list[tuple[str, str, Table]]:
    shown = (("In-domain", data.in_domain), ("Out-of-domain", data.out_of_domain))
    return [
        (kind, show_line(suite.name), tables.score_table(suite)) for kind, suite in shown if suite
    ]


def _untrained(data: ReportData) -> str:
    """The methods whose best checkpoint is the one that they began with."""
    names = [show_line(curve.method) for curve in data.curves if curve.best_step == 0]
    if not names:
        return ""
    return (
        f"{', '.join(names)}: no checkpoint did better on the validation games than the start, "
        "so what is evaluated under this name is the base itself."
    )


def _trade(data: ReportData) -> Plot | None:
    if not (data.in_domain and data.out_of_domain):
        return None
    outside = {each.policy: each.change for each in data.out_of_domain.scores}
    changes = {
        each.policy: (each.change, other)
        for each in data.in_domain.scores
        if each.change
        and each.change.value is not None
        and (other := outside.get(each.policy))
        and other.value is not None
    }
    if not changes:
        return None
    rows = (
        (
            show_line(name),
            points(inside.value),
            interval(inside, change=True),
            points(other.value),
            interval(other, change=True),
        )
        for name, (inside, other) in changes.items()
    )
    return Plot(
        "Gained against lost",
        "Right is better at the job trained for; below the line something else was lost.",
        plots.plot_trade(changes, _methods(data)),
        tables.table(("method", "in-domain", "95 %", "out-of-domain", "95 %"), rows),
    )


def _groups(data: ReportData) -> Table | None:
    if data.out_of_domain is None or not data.out_of_domain.scores[0].groups:
        return None
    return tables.group_table(data.out_of_domain.scores)


# Turns


def _tried(data: ReportData) -> str:
    """How the base was tried at every turn, and what counted as a success."""
    if not data.pivot_sets:
        return "several times"
    first = data.pivot_sets[0]
    accepted = say_verifier(first.verifier)
    return f"{first.samples} times. Acceptable is {accepted}"


def _shares(figures: TurnFigures | None) -> list[tuple[str, str, str, float]]:
    """Class, label, text and percent width of the three kinds of turns."""
    if figures is None:
        return []
    parts = (
        ("fail", "always fail", figures.all_fail),
        ("mixed", "mixed", figures.live),
        ("pass", "always succeed", figures.all_pass),
    )
    return [
        (name, label, f"{count:,} ({percent(count / figures.turns)})", 100 * count / figures.turns)
        for name, label, count in parts
    ]


def _turn_plots(data: ReportData, figures: TurnFigures | None) -> Iterator[Plot]:
    if figures is None:
        return
    samples = data.pivot_sets[0].samples if data.pivot_sets else 0
    yield Plot(
        "How often the base succeeds",
        "Turns at the two ends teach nothing: every sample gets the same reward.",
        plots.plot_means(figures, samples),
        tables.mean_table(figures),
    )
    yield Plot(
        "Where the samples disagree",
        "The higher a circle, the more the samples of its turns differ in reward.",
        plots.plot_spread(figures.places),
        tables.spread_table(figures.places),
    )
    yield Plot(
        "Early or late",
        f"Share of undecided turns by position; pale: fewer than {FEW} turns.",
        plots.plot_depth(figures.by_depth),
        tables.slice_table("position", figures.by_depth),
    )
    yield Plot(
        "By kind of action",
        "Share of undecided turns by what the expert does; in brackets how many turns.",
        plots.plot_slices("kinds", "kind of action", figures.by_kind),
        tables.slice_table("action", figures.by_kind),
    )
    if figures.by_domain:
        yield Plot(
            "By domain",
            "Share of undecided turns by the kind of work; in brackets how many turns.",
            plots.plot_slices("domains", "domain", figures.by_domain),
            tables.slice_table("domain", figures.by_domain),
        )


def _opened(details: Sequence[ShownTurn]) -> int:
    """The first pivot that is shown from its opening on, else the first one; -1: there is none."""
    pivots = [i for i, each in enumerate(details) if each.badge]
    return next((i for i in pivots if not details[i].hidden), next(iter(pivots), -1))


def _curse(data: ReportData) -> str:
    """What fresh samples say of the turns that were chosen for their estimate."""
    if not data.pivot_sets or not data.pivot_sets[0].chosen:
        return ""
    first = data.pivot_sets[0]
    return (
        f"Turns chosen because an estimate from K = {first.samples} samples came out low are "
        f"partly chosen by luck. Sampled again, {first.pivots.turns:,} of them have a mean reward "
        f"of {number(first.pivots.mean)} (when chosen: {number(first.profiled_mean)}), and "
        f"{percent(first.pivots.live_share.value)} of them give both results again; of "
        f"random turns {percent(first.random.live_share.value)} do."
    )


# Training and cost

_CURVES = (
    (
        "reward_mean",
        "Reward while training",
        "mean reward",
        "The mean over all samples of a step, on the pivots.",
        1,
    ),
    (
        "reward_std",
        "Spread of the reward",
        "standard deviation",
        "Falls to 0 when all samples of a step get the same reward.",
        1,
    ),
    (
        "live_share",
        "Groups that teach",
        "groups with mixed rewards (%)",
        "A group whose rewards are all equal moves nothing.",
        100,
    ),
    (
        "validation",
        "Success on validation games",
        "success (%)",
        "The checkpoint at the highest point is the one that is evaluated.",
        100,
    ),
    (
        "temperature_mean",
        "Sampling temperature",
        "temperature",
        "The mean over a step's groups, where a rule sets it; band: coldest to hottest group.",
        1,
    ),
    (
        "entropy",
        "Entropy",
        "entropy (nats a token)",
        "How undecided the model still is about its next token.",
        1,
    ),
    (
        "kl",
        "Distance from the base",
        "KL to the base (nats a token)",
        "How far the model has moved away from where it started.",
        1,
    ),
    (
        "ce",
        "Imitation loss",
        "cross-entropy (nats a token)",
        "How surprised the model is by the actions it imitates.",
        1,
    ),
    (
        "gradient_norm",
        "Size of the updates",
        "gradient norm",
        "Before clipping.",
        1,
    ),
    (
        "malformed_share",
        "Malformed actions",
        "malformed samples (%)",
        "Samples that cannot be read as an action.",
        100,
    ),
)


def _curve_plots(data: ReportData) -> Iterator[Plot]:
    order = _methods(data)
    for key, title, label, says, scale in _CURVES:
        if any(key in curve.series for curve in data.curves):
            yield Plot(
                title,
                says,
                plots.plot_measure(key, title, label, data.curves, order, scale),
                tables.curve_table(key, data.curves),
            )


def _methods(data: ReportData) -> list[str]:
    """Every method in one order, so that it looks the same in all drawings."""
    trained = [curve.method for curve in data.curves]
    played = [each.policy for each in data.in_domain.scores] if data.in_domain else []
    return list(dict.fromkeys([*trained, *played]))


def _flow(data: ReportData, figures: TurnFigures | None) -> Iterator[Step]:
    longest = max((each.cost.seconds for each in data.costs), default=0.0)
    if not longest:
        return
    results = {"plan": "preflight"}
    traces = show_line(data.traces, 200)
    if any(each.stage == "import" for each in data.costs):
        results["import"] = traces
    elif traces:
        yield Step("import", "", traces, 0)
    if figures:
        results["profile"] = f"{figures.turns:,} turns profiled"
        results["select"] = f"{figures.selected:,} pivots, sampled again"
    for each in data.costs:
        cost = each.cost
        counts = [
            f"{value:,} {name}"
            for value, name in (
                (cost.rollout_turns, "rollout turns"),
                (cost.trained_tokens, "trained tokens"),
            )
            if value
        ]
        yield Step(
            show_line(each.stage.replace("/", " ")),
            show_line(results.get(each.stage, "")),
            ", ".join([duration(cost.seconds), *counts]),
            round(100 * cost.seconds / longest, 1),
        )
