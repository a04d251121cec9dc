"""The figures of a finished run by name, as `summary.json`, the page and the terminal say them."""

from collections.abc import Mapping, Sequence

import msgspec

from pivotune.core.errors import StoreError
from pivotune.core.estimate import Estimate
from pivotune.core.scores import TaxFindings
from pivotune.core.tally import Tally
from pivotune.core.types import Cost
from pivotune.evaluate.metrics import mean_difference, mean_success
from pivotune.evaluate.suites import Outcome, Suite, tallies
from pivotune.pipeline.costs import LevelCosts, count_level_costs
from pivotune.pipeline.evaluation import policies, read_outcomes, suites
from pivotune.pipeline.profiling import SelectReport, read_selection, wanted_selections
from pivotune.pipeline.recovery import RecoveryResult, read_recovery
from pivotune.pipeline.run import BASE, Run
from pivotune.pipeline.tax import read_tax
from pivotune.report.data import MethodCurves, TurnPoint
from pivotune.report.turns import TurnFigures, count_turns

Groups = dict[str, dict[str, Tally]]
"""Tallies by task within groups of equal weight (skills; one group for household games)."""


class Score(msgspec.Struct, frozen=True):
    """Share of successes with its 95 % interval over `tasks` tasks; `change` is from the base,
    paired by task."""

    success: float
    low: float
    high: float
    tasks: int
    change: float
    change_low: float
    change_high: float
    groups: dict[str, float]


class PivotSummary(msgspec.Struct, frozen=True):
    """What profiling found under one verifier and rule.

    `profiled_…` are of the profile that chose the pivots; the other shares and means come from
    fresh samples of `fresh_turns` turns.
    """

    verifier: str
    rule: str
    profiled: int
    pivots: int
    live_share_pivots: float
    live_share_random: float
    fresh_mean_pivots: float
    fresh_mean_random: float = float("nan")
    profiled_mean_pivots: float = float("nan")
    profiled_live_share_pivots: float = float("nan")
    fresh_turns: int = 0


class Summary(msgspec.Struct, frozen=True):
    """Every figure of the page. Costs are by stage, or `stage/part`.

    `turns` and `outcomes` are over the turns profiled under the first verifier and rule of
    `pivots`; `curves` is what each method logged while it trained.
    """

    seed: int
    model: str
    in_domain: dict[str, Score]
    out_of_domain: dict[str, Score]
    pivots: list[PivotSummary]
    cost: dict[str, Cost]
    turns: TurnFigures | None = None
    outcomes: dict[str, int] = {}
    curves: tuple[MethodCurves, ...] = ()
    tax: TaxFindings | None = None
    recovery: RecoveryResult | None = None
    level: LevelCosts | None = None


def summarise(
    run: Run,
    points: Sequence[TurnPoint],
    outcomes: Mapping[str, int],
    curves: tuple[MethodCurves, ...],
    cost: dict[str, Cost],
) -> Summary:
    """All figures, from the run folder and from what the report has read of it already."""
    by_kind = {suite.kind: suite for suite in suites(run)}
    return Summary(
        seed=run.recipe.seed,
        model=run.recipe.model_name,
        in_domain=_scores(run, by_kind.get("in_domain"), grouped=False),
        out_of_domain=_scores(run, by_kind.get("out_of_domain"), grouped=True),
        pivots=[
            _pivots(read_selection(run, verifier, rule))
            for verifier, rule in wanted_selections(run)
        ],
        cost=cost,
        turns=count_turns(points) if points else None,
        outcomes=dict(outcomes),
        curves=curves,
        tax=read_tax(run),
        recovery=read_recovery(run),
        level=count_level_costs(run),
    )


def _scores(run: Run, suite: Suite | None, *, grouped: bool) -> dict[str, Score]:
    if suite is None:
        return {}
    known = {
        name: _groups(read_outcomes(run, name, suite), suite, grouped=grouped)
        for name in policies(run)
    }
    return {name: _score(known[BASE], groups) for name, groups in known.items()}


def _groups(outcomes: Sequence[Outcome], suite: Suite, *, grouped: bool) -> Groups:
    """Every task's tally in suite order, whatever the order in which episodes ended."""
    counts = tallies(outcomes, success_at=suite.success_at)
    groups: Groups = {}
    for task in suite.tasks:
        if task.id in counts:
            name = str(task.payload.get("group", "")) if grouped else ""
            groups.setdefault(name, {})[task.id] = counts[task.id]
    if not groups:
        raise StoreError(
            "no outcome belongs to a task of the suite",
            where=suite.name,
            got=f"{len(outcomes)} outcomes of other tasks",
            fix="the suite's tasks have changed since: evaluate again with --redo evaluate",
        )
    return groups


def _score(base: Groups, post: Groups) -> Score:
    success, change = mean_success(post), mean_difference(base, post)
    return Score(
        success=_number(success.value),
        low=_number(success.low),
        high=_number(success.high),
        tasks=success.tasks,
        change=_number(change.value),
        change_low=_number(change.low),
        change_high=_number(change.high),
        groups={name: _rate(group) for name, group in post.items() if name},
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _rate(group: Mapping[str, Tally]) -> float:
    return sum(each.successes / each.n for each in group.values()) / max(1, len(group))


def _pivots(report: SelectReport) -> PivotSummary:
    return PivotSummary(
        verifier=report.verifier,
        rule=report.rule,
        profiled=report.selection.counts["profiled"],
        pivots=len(report.selection.turn_ids),
        live_share_pivots=report.pivots.live_share,
        live_share_random=report.random.live_share,
        fresh_mean_pivots=report.pivots.mean,
        fresh_mean_random=report.random.mean,
        profiled_mean_pivots=report.profiled_mean,
        profiled_live_share_pivots=report.profiled_live_share,
        fresh_turns=report.pivots.turns,
    )


def estimate(score: Score) -> Estimate:
    """The success of a score as the page shows it."""
    return Estimate(score.success, score.low, score.high, score.tasks)


def headline(summary: Summary) -> list[str]:
    """The last lines of a run."""
    lines = []
    for name, score in summary.in_domain.items():
        line = f"{name:>14}: in-domain {score.success:6.1%} [{score.low:.1%}, {score.high:.1%}]"
        if name in summary.out_of_domain:
            other = summary.out_of_domain[name]
            line += f", out-of-domain {other.success:6.1%} (change {other.change:+.1%})"
        lines.append(line)
    for found in summary.tax.comparisons if summary.tax else ():
        tax = found.tax_share
        value = f"{tax.value:+.3f}" if tax.value is not None else f"undefined ({tax.reason})"
        if tax.low is not None and tax.high is not None:
            value += f" [{tax.low:+.3f}, {tax.high:+.3f}]"
        lines.append(f"{found.name:>14}: Sharpening Tax S({found.k}) {value}")
    return lines
