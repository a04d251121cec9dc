"""A report with every section filled, whose foreign texts can be chosen."""

import math
from itertools import combinations

from pivotune.core.estimate import Estimate
from pivotune.core.scores import (
    Classes,
    CoverageScores,
    Crossover,
    Curve,
    Forecast,
    Matched,
    Reliability,
    TaxComparison,
    TaxFindings,
)
from pivotune.core.types import Cost, Message, ParseOutcome, ToolCall, Verdict
from pivotune.report.data import (
    Fact,
    Fresh,
    MethodCurves,
    PivotSet,
    PolicyScore,
    Recovered,
    Recovery,
    ReportData,
    SampleView,
    Series,
    StageCost,
    SuiteScores,
    TurnDetail,
    TurnPoint,
)


def turn_points(count: int, text: str = "act") -> tuple[TurnPoint, ...]:
    """Means go round 0, 1/8, … 1; a turn is a pivot when it is mixed and its mean is below 3/4."""
    means = [(i % 9) / 8 for i in range(count)]
    return tuple(
        TurnPoint(
            turn_id=f"{text}#{i}",
            depth=i % 25,
            kind=f"{text} {i % 14}",
            mean=mean,
            spread=math.sqrt(mean * (1 - mean)),
            live=0 < mean < 1,
            selected=0 < mean < 0.75,
        )
        for i, mean in enumerate(means)
    )


def suite(name: str, text: str, change: float) -> SuiteScores:
    base = Estimate(0.25, 0.2, 0.3, 300, method="bootstrap")
    post = Estimate(0.25 + change, 0.2 + change, 0.3 + change, 300, method="bootstrap")
    moved = Estimate(change, change - 0.05, change + 0.05, 300, method="bootstrap")
    return SuiteScores(
        name,
        (
            PolicyScore("base", base, None, {text: 0.5, "sorting": 0.75}),
            PolicyScore(f"post {text}", post, moved, {text: 0.625, "sorting": 0.5}),
        ),
    )


def coverage(first: float, last: float, k: int) -> CoverageScores:
    """A curve that rises in equal steps, and counts that sum to 100 tasks."""
    values = tuple(first + (last - first) * i / (k - 1) for i in range(k))
    return CoverageScores(
        Curve(
            "pass@k",
            values,
            tuple(value - 0.02 for value in values),
            tuple(value + 0.02 for value in values),
            100,
            (),
        ),
        Estimate(0.5 * k * (last - first), 0.1, 3.0, 100),
        Estimate(0.3, 0.2, 0.4, 100),
        Classes(20, 50, 30, (k,)),
    )


def comparison(name: str, k: int = 32) -> TaxComparison:
    base, post = coverage(0.2, 0.7, k), coverage(0.4, 0.6, k)
    gains = [b - a for a, b in zip(base.curve.values, post.curve.values, strict=True)]
    return TaxComparison(
        name=name,
        k=k,
        tasks=100,
        left_out=(name,),
        base=base,
        post=post,
        tax_area=Estimate(4.8, 4.0, 5.6, 100),
        tax_share=Estimate(0.1, 0.05, 0.15, 100),
        crossover=Crossover(22, 19, None),
        gain=tuple(Estimate(gain, gain - 0.03, gain + 0.03, 100) for gain in gains),
        moves=((18, 2, 0), (12, 36, 2), (0, 2, 28)),
        convention="pass@k = 1 - C(n-c, k)/C(n, k)",
    )


def findings(*comparisons: TaxComparison) -> TaxFindings:
    """Reliability falls with k; two models give no forecast."""
    k = comparisons[0].k
    values = tuple(0.4 / i for i in range(1, k + 1))
    curve = Curve("pass^k = C(c, k)/C(n, k)", values, values, values, 100, ())
    names = ("base", *(each.name for each in comparisons))
    return TaxFindings(
        k,
        comparisons,
        tuple(Reliability(name, curve, Estimate(0.7, 0.6, 0.8, 100)) for name in names),
        Forecast(8, k, Estimate.undefined("a rank correlation needs three models, got 2")),
        tuple(matched(left, right, k) for left, right in combinations(names[1:], 2)),
    )


def matched(left: str, right: str, k: int) -> Matched:
    """Equal at the first try within a point; the right one, at step 20, ends two points lower."""
    return Matched(
        left=left,
        right=right,
        steps=(None, 20),
        k=k,
        tasks=100,
        first=(0.4, 0.41),
        last=(0.6, 0.58),
        first_difference=Estimate(-0.01, -0.04, 0.02, 100),
        last_difference=Estimate(0.02, -0.01, 0.05, 100),
        area_difference=Estimate(0.8, 0.1, 1.5, 100),
        share_difference=Estimate(0.04, 0.01, 0.07, 100),
    )


def recovery(text: str) -> Recovery:
    """The base recovers from one replay in five, after training from a half."""
    return Recovery(
        states=12,
        replays=8,
        failed_with_mistake=0.6,
        policies=(
            Recovered("base", Estimate(0.2, 0.1, 0.3, 12), 9.0, 5.0, (0.0, 0.1, 0.2)),
            Recovered(f"post {text}", Estimate(0.5, 0.4, 0.6, 12), 7.5, 5.0, (0.1, 0.3, 0.5)),
        ),
        diagnosis=(Recovered("correct", Estimate(0.4, 0.3, 0.5, 12), 8.0, 5.0),),
    )


def turn_detail(text: str, number: int) -> TurnDetail:
    call = Message("assistant", tool_calls=(ToolCall("run", {"command": text}),))
    odd_call = Message("assistant", tool_calls=(ToolCall("run", None, text),))
    good, bad = Verdict(1.0, f"accepted {text}"), Verdict(0.0, f"refused {text}")
    return TurnDetail(
        turn_id=f"{text}#{number}",
        task_id=text,
        depth=2,
        kind=text,
        selected=True,
        state=(
            Message("system", text),
            Message("user", text),
            call,
            Message("tool", text),
            odd_call,
        ),
        expert_action=text,
        expert=good,
        samples=(
            SampleView(text, ParseOutcome.OK, good),
            SampleView(text, ParseOutcome.OK, good),
            SampleView("", ParseOutcome.EMPTY, bad),
            SampleView(f"{text} {text}", ParseOutcome.MALFORMED, Verdict(None, text)),
        ),
    )


def full_report(text: str = "plain", turns: int = 90) -> ReportData:
    """`text` stands wherever a trace, a recipe or a name could bring foreign text in."""
    points = turn_points(turns, text)
    fresh = Fresh(8, 0.5, Estimate(0.75, 0.6, 0.9, 8))
    return ReportData(
        title=f"run {text}",
        traces=f"3 trajectories of {text}",
        main=f"post {text}",
        in_domain=suite(f"household {text}", text, 0.2),
        tax=findings(comparison(f"post {text}"), comparison(f"other {text}")),
        recovery=recovery(text),
        out_of_domain=suite(f"skills {text}", text, -0.01),
        pivot_sets=(
            PivotSet(
                verifier=f"progress {text}",
                rule="adv",
                samples=8,
                profiled=turns,
                chosen=sum(point.selected for point in points),
                wrong_expert=1,
                counts={"profiled": turns},
                profiled_mean=0.4,
                profiled_live_share=1.0,
                pivots=fresh,
                random=fresh,
            ),
        ),
        turns=points,
        outcomes={"ok": 700, "malformed": 20},
        details=tuple(turn_detail(text, i) for i in range(3)),
        curves=(
            MethodCurves(
                f"post {text}",
                "local_grpo",
                {
                    "reward_mean": Series((1, 2, 3), (0.2, 0.4, 0.5)),
                    "reward_std": Series((1, 2, 3), (0.3, 0.3, 0.2)),
                    "validation": Series((0, 3), (0.2, 0.4)),
                    "kl": Series((1, 2, 3), (0.0, 0.01, 0.02)),
                    "temperature_mean": Series((1, 2, 3), (1.0, 1.1, 1.2)),
                    "temperature_min": Series((1, 2, 3), (0.8, 0.8, 0.9)),
                    "temperature_max": Series((1, 2, 3), (1.2, 1.4, 1.4)),
                },
            ),
        ),
        costs=(
            StageCost(f"profile/{text}", Cost(rollout_turns=720, sampled_tokens=9_000, seconds=60)),
            StageCost("train", Cost(trained_tokens=40_000, seconds=90)),
        ),
        facts=(Fact(f"Base {text}", text),),
        recipe=text,
    )
