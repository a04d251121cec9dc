"""Last stage: `summary.json`, `costs.json` and the page, from what the other stages wrote."""

import math
import statistics
from collections.abc import Iterator

import msgspec

import pivotune
from pivotune.core.config import encode_config
from pivotune.core.estimate import Estimate
from pivotune.core.store import read_json, read_records, write_atomic, write_json
from pivotune.core.types import JsonObject
from pivotune.evaluate.intervals import BOOTSTRAP, WILSON, wilson_estimate
from pivotune.evaluate.recovery import RecoveryScore, Replay
from pivotune.evaluate.suites import Suite
from pivotune.pipeline.costs import CostReport, LevelCosts, count_costs, count_level_costs
from pivotune.pipeline.evaluation import suites
from pivotune.pipeline.plan import Plan
from pivotune.pipeline.profiled_turns import ProfiledTurns, read_profiled_turns
from pivotune.pipeline.profiling import (
    FreshEstimate,
    SelectReport,
    read_selection,
    wanted_selections,
)
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.recovery import RecoveryResult, describe_teacher, read_recovery
from pivotune.pipeline.run import BASE, Run
from pivotune.pipeline.summary import Score, Summary, summarise
from pivotune.pipeline.summary import headline as say_summary
from pivotune.pipeline.tax import tax_settings
from pivotune.pipeline.training import read_training
from pivotune.pipeline.warm_start import warm_trajectories
from pivotune.report.data import (
    Fact,
    Fresh,
    MethodCurves,
    PivotSet,
    PolicyScore,
    Recovered,
    Recovery,
    ReportData,
    Series,
    StageCost,
    SuiteScores,
)
from pivotune.report.page import build_page
from pivotune.report.text import interval, percent

MEASURES = (
    "reward_mean",
    "reward_std",
    "live_share",
    "kl",
    "entropy",
    "ce",
    "clip_fraction",
    "gradient_norm",
    "malformed_share",
    "temperature_mean",
    "temperature_min",
    "temperature_max",
    "validation",
)
"""What the page shows of a training log, where a method logs it."""


def report(run: Run) -> None:
    """Write the summary, the costs and the page."""
    selections = [read_selection(run, *pair) for pair in _selections(run)]
    first = selections[0]
    turns = read_profiled_turns(run, first.verifier, frozenset(first.selection.turn_ids))
    curves = tuple(_curves(run, name) for name in run.recipe.methods)
    costs = count_costs(run)
    summary = summarise(run, turns.points, turns.outcomes, curves, costs.stages)
    write_json(run.folder.path / "summary.json", summary)
    write_json(run.folder.path / "costs.json", costs)
    page = build_page(_report_data(run, summary, costs, selections, turns))
    write_atomic(run.folder.path / "report.html", page.encode())


def headline(run: Run) -> list[str]:
    """The figures that a terminal shows at the end; raises `StoreError` before the report."""
    return say_summary(read_json(run.folder.path / "summary.json", Summary))


def _main_method(recipe: Recipe) -> str:
    """The method of the headline: the first one that trains on pivots, else the last one."""
    names = list(recipe.methods)
    local = [name for name in names if recipe.methods[name].objective == "local_grpo"]
    return local[0] if local else (names or [""])[-1]


def _selections(run: Run) -> list[tuple[str, str]]:
    """Verifier and rule of every selection, those of the headline's method first."""
    recipe = run.recipe
    pairs = wanted_selections(run)
    if main := _main_method(recipe):
        method = recipe.methods[main]
        pairs.insert(0, (recipe.verifier_of(method), recipe.rule_of(method)))
    return list(dict.fromkeys(pairs))


def _report_data(
    run: Run,
    summary: Summary,
    costs: CostReport,
    selections: list[SelectReport],
    turns: ProfiledTurns,
) -> ReportData:
    recipe = run.recipe
    by_kind = {suite.kind: suite for suite in suites(run)}
    return ReportData(
        title=run.folder.path.resolve().name,
        traces=f"{turns.trajectories:,} trajectories"
        + (f" ({recipe.traces.domain})" if recipe.traces.domain else ""),
        main=_main_method(recipe),
        in_domain=_suite(by_kind.get("in_domain"), summary.in_domain),
        out_of_domain=_suite(by_kind.get("out_of_domain"), summary.out_of_domain),
        pivot_sets=tuple(_pivot_set(recipe, each) for each in selections),
        turns=turns.points,
        outcomes=turns.outcomes,
        details=turns.details,
        curves=summary.curves,
        costs=tuple(StageCost(stage, cost) for stage, cost in costs.stages.items()),
        alternatives=costs.alternatives,
        prices=costs.prices,
        tax=summary.tax,
        recovery=_recovery(run, summary.recovery),
        facts=tuple(_facts(run)),
        recipe=encode_config(recipe).decode(),
    )


def _recovery(run: Run, found: RecoveryResult | None) -> Recovery | None:
    if found is None:
        return None
    return Recovery(
        states=max((each.states for each in found.scores.values()), default=0),
        replays=run.recipe.recovery.replays,
        failed_with_mistake=found.failed_with_mistake,
        policies=tuple(_recovered(run, name, each) for name, each in found.scores.items()),
        diagnosis=tuple(
            Recovered(name, each.rate, each.turns, each.optimum)
            for name, each in found.diagnosis.items()
        ),
    )


def _recovered(run: Run, name: str, score: RecoveryScore) -> Recovered:
    replays = list(read_records(run.folder.recovery / "replays" / f"{name}.jsonl", Replay))
    known = [each for each in replays if each.won is not None]
    longest = max((each.turns for each in known), default=0)
    within = tuple(
        sum(bool(each.won) and each.turns <= t for each in known) / len(known)
        for t in range(1, longest + 1)
    )
    return Recovered(name, score.rate, score.turns, score.optimum, within)


def _suite(suite: Suite | None, scores: dict[str, Score]) -> SuiteScores | None:
    if suite is None:
        return None
    rows = tuple(
        PolicyScore(
            policy=name,
            success=_estimate(score.success, score.low, score.high, score.tasks),
            change=None
            if name == BASE
            else _estimate(score.change, score.change_low, score.change_high, score.tasks),
            groups=score.groups,
        )
        for name, score in scores.items()
    )
    return SuiteScores(suite.name, rows)


def _estimate(value: float, low: float, high: float, tasks: int) -> Estimate:
    if math.isnan(value):
        return Estimate.undefined("no usable task", tasks)
    return Estimate(value, low, high, tasks, method=BOOTSTRAP)


def _pivot_set(recipe: Recipe, found: SelectReport) -> PivotSet:
    return PivotSet(
        verifier=found.verifier,
        rule=found.rule,
        samples=recipe.profile.samples,
        profiled=found.selection.counts["profiled"],
        chosen=len(found.selection.turn_ids),
        wrong_expert=found.wrong_expert,
        counts=found.selection.counts,
        profiled_mean=found.profiled_mean,
        profiled_live_share=found.profiled_live_share,
        pivots=_fresh(found.pivots),
        random=_fresh(found.random),
    )


def _fresh(found: FreshEstimate) -> Fresh:
    live = round(found.live_share * found.turns)
    mean = found.mean if found.turns else math.nan
    return Fresh(found.turns, mean, wilson_estimate(live, found.turns))


def _curves(run: Run, name: str) -> MethodCurves:
    series: dict[str, tuple[list[int], list[float]]] = {}
    for line in read_records(run.folder.checkpoints(name) / "metrics.jsonl", JsonObject):
        for measure in MEASURES:
            if line.get(measure) is not None:
                steps, values = series.setdefault(measure, ([], []))
                steps.append(line["step"])
                values.append(line[measure])
    if len(set(series.get("temperature_mean", ([], []))[1])) < 2:  # nothing sets it
        series = {key: each for key, each in series.items() if "temperature" not in key}
    return MethodCurves(
        method=name,
        objective=run.recipe.methods[name].objective,
        series={
            key: Series(tuple(steps), tuple(values)) for key, (steps, values) in series.items()
        },
        best_step=read_training(run, name).best_step,
        verifier=run.recipe.verifier_of(run.recipe.methods[name]),
    )


def _facts(run: Run) -> Iterator[Fact]:
    """How it was measured, in the order in which it happened."""
    recipe, evaluation = run.recipe, run.recipe.evaluate
    yield Fact("Base model", recipe.model_name)
    if recipe.warm_start.steps:
        yield _warm_start_fact(run)
    yield Fact("Seed", str(recipe.seed))
    yield from _candidate_facts(run)
    yield from _profile_facts(run)
    if recipe.methods:
        yield Fact(
            "Validation",
            f"{evaluation.validation_games} games of {evaluation.validation} every "
            f"{evaluation.every} steps; the best checkpoint is kept and evaluated",
        )
    if (level := count_level_costs(run)) is not None:
        yield Fact(f"Cost until {percent(level.level, 0)} of validation", _level_fact(level))
    for suite in suites(run):
        yield Fact(
            suite.kind.replace("_", "-").capitalize(),
            f"{suite.name}: {len(suite.tasks):,} tasks, {suite.rollouts} rollout each, "
            f"temperature {suite.temperature:g}; success is a reward of at least "
            f"{suite.success_at:g}; at most {suite.limits.max_turns} turns",
        )
    if (recovery := read_recovery(run)) is not None:
        yield from _recovery_facts(recovery)
    if recipe.tax.rollouts and evaluation.in_domain:
        yield Fact("Tax", tax_settings(recipe).describe())
        if recipe.tax.checkpoints:
            yield Fact(
                "Equal first tries",
                f"checkpoints chosen by {recipe.tax.checkpoints} rollouts a task of every "
                "validated policy, then played K times a task",
            )
    yield Fact(
        "Intervals",
        f"{BOOTSTRAP}; changes are paired by task; successes of one suite with one rollout a "
        f"task: {WILSON}",
    )
    yield Fact("Software", f"pivotune {pivotune.__version__}")


def _level_fact(found: LevelCosts) -> str:
    """A clause a method, profiling counted where it was needed."""
    said = []
    for name, each in found.reached.items():
        if each is None:
            said.append(f"{name}: not reached")
            continue
        times = found.times[name].rollout_turns if name in found.times else None
        more = "" if times is None else f", {times:.2g} x {found.main}"
        said.append(
            f"{name}: {each.cost.rollout_turns:,} rollout turns{more} (step {each.step}, "
            f"{each.cost.sampled_tokens:,} sampled tokens, {each.cost.seconds:.0f} s)"
        )
    return "; ".join(said) + "; profiling counted for methods on pivots"


def _recovery_facts(found: RecoveryResult) -> Iterator[Fact]:
    """What the oracle says of the base's episodes, of the teachers and of every policy."""
    if found.first_turns:
        middle = statistics.median_low(found.first_turns) + 1
        yield Fact(
            "First mistakes",
            f"in {len(found.first_turns)} of {found.episodes} episodes of the base, half of them "
            f"by turn {middle}",
        )
    gold = [f"{name} {percent(each)}" for name, each in found.gold.items() if each is not None]
    if gold:
        yield Fact("Probability of the oracle's action at the mistakes", ", ".join(gold))
    for name, score in found.teachers.items():
        yield Fact(f"Teacher of {name}", f"before any training: {describe_teacher(score)}")


def _warm_start_fact(run: Run) -> Fact:
    config = run.recipe.warm_start
    weights = (
        f"LoRA of rank {config.adapter_rank}, merged" if config.adapter_rank else "all weights"
    )
    return Fact(
        "Warm start",
        f"{config.steps} steps of {config.batch} trajectories ({weights}, learning rate "
        f"{config.learning_rate:g}) on {len(warm_trajectories(run))} expert trajectories that are "
        "used for nothing else; what came out is called base everywhere",
    )


def _candidate_facts(run: Run) -> Iterator[Fact]:
    """What was left out before profiling, the prompts, and what the preflight promised."""
    dropped = read_json(run.folder.path / "profiles" / "dropped.json", dict[str, int])
    if dropped:
        yield Fact("Left out", ", ".join(f"{reason}: {n:,}" for reason, n in dropped.items()))
    prompts = run.folder.path / "profiles" / "prompts.json"
    findings = read_json(prompts, tuple[str, ...]) if prompts.exists() else ()
    maker = (
        "the base-model harness"
        if run.recipe.prompts == "transcript"
        else "the model's own chat template"
    )
    yield Fact("Prompts", "; ".join((maker, *findings)))
    if (path := run.folder.path / "plan.json").exists():
        preflight = read_json(path, Plan)
        shares = ", ".join(
            f"{name} {percent(live.value)} ({interval(live)})"
            for name, live in preflight.live_groups.items()
        )
        promise = f"; live groups expected on random turns: {shares}" if shares else ""
        yield Fact("Preflight", f"{preflight.minutes:.1f} minutes expected{promise}")


def _profile_facts(run: Run) -> Iterator[Fact]:
    recipe, profile = run.recipe, run.recipe.profile
    yield Fact(
        "Profile",
        f"K = {profile.samples} samples a turn at temperature {profile.temperature:g}, at most "
        f"{profile.max_tokens} tokens each; reward from the verifier {recipe.verifier}",
    )
    yield Fact(
        "Rule",
        f"{recipe.select.rule}: rewards differ, mean below {recipe.select.mean_below:g}"
        if recipe.select.rule == "adv"
        else recipe.select.rule,
    )
    for head in read_records(run.folder.profiles(recipe.verifier), _ProfileHead):
        yield Fact("Frozen policy", f"weights {head.policy_hash}")
        yield Fact("Verifier", f"{head.verifier}, version {head.verifier_version}")
        break


class _ProfileHead(msgspec.Struct, frozen=True):
    policy_hash: str
    verifier: str
    verifier_version: str
