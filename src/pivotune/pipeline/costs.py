"""`costs.json`: what every stage used, the phases of training, and the end-to-end alternative."""

import msgspec

from pivotune.core.ledger import Alternative, Prices
from pivotune.core.store import read_records
from pivotune.core.types import Cost
from pivotune.evaluate.levels import CostRatio, CurvePoint, Reached, cost_to_level, times_more
from pivotune.evaluate.suites import Suite, suite_cost
from pivotune.pipeline.evaluation import read_outcomes, suites
from pivotune.pipeline.run import BASE, Run
from pivotune.pipeline.training import read_training

LOCAL_OBJECTIVES = ("local_grpo",)
"""Objectives that sample one action at a time, so that episodes are what they save."""


PROFILE_OBJECTIVES = (*LOCAL_OBJECTIVES, "rejection_sft")
"""Objectives that profiling and selection are for."""


class LevelCosts(msgspec.Struct, frozen=True):
    """What every method cost until its validation first reached `level`; None: it never did.

    Profiling and selection are counted for the methods that need them. `times` are the others'
    costs over those of `main`, the first method on pivots.
    """

    level: float
    main: str
    reached: dict[str, Reached | None]
    times: dict[str, CostRatio]


class CostReport(msgspec.Struct, frozen=True):
    """Costs by stage (`stage/part`) and their sum; training by method and phase.

    `prices` are for a million tokens; `money` is by stage, empty without prices.
    """

    stages: dict[str, Cost]
    total: Cost
    training: dict[str, dict[str, Cost]]
    alternatives: tuple[Alternative, ...]
    prices: Prices
    money: dict[str, float]


def count_costs(run: Run) -> CostReport:
    """Everything that finished stages have charged."""
    stages = {
        stage: mark.cost
        for stage, mark in run.folder.marks.items()
        if mark.done and mark.cost != Cost()
    }
    prices = run.recipe.prices
    return CostReport(
        stages=stages,
        total=sum(stages.values(), Cost()),
        training={name: read_training(run, name).costs for name in run.recipe.methods},
        alternatives=_alternatives(run, stages),
        prices=prices,
        money={stage: prices.of(cost) for stage, cost in stages.items()} if prices.known else {},
    )


def count_level_costs(run: Run) -> LevelCosts | None:
    """None where the recipe fixes no level, or has no method."""
    level, methods = run.recipe.level, run.recipe.methods
    if not (level and methods):
        return None
    shared = sum(
        (run.folder.marks[each].cost for each in ("profile", "select") if each in run.folder.marks),
        Cost(),
    )
    reached = {
        name: cost_to_level(
            validation_curve(run, name),
            level,
            shared if method.objective in PROFILE_OBJECTIVES else Cost(),
        )
        for name, method in methods.items()
    }
    local = [name for name, each in methods.items() if each.objective in LOCAL_OBJECTIVES]
    main = (local or list(methods))[0]
    fast = reached[main]
    times = {
        name: times_more(each, fast)
        for name, each in reached.items()
        if each is not None and fast is not None and name != main
    }
    return LevelCosts(level, main, reached, times)


class _Validated(msgspec.Struct, frozen=True):
    """What a line of the training log has for a curve."""

    step: int
    validation: float | None = None
    spent: Cost = Cost()
    seconds_spent: float = 0.0


def validation_curve(run: Run, name: str) -> list[CurvePoint]:
    """A method's validations with what training had used by then."""
    lines = read_records(run.folder.checkpoints(name) / "metrics.jsonl", _Validated)
    return [
        CurvePoint(
            each.step,
            each.validation,
            msgspec.structs.replace(each.spent, seconds=each.seconds_spent),
        )
        for each in lines
        if each.validation is not None
    ]


def _alternatives(run: Run, stages: dict[str, Cost]) -> tuple[Alternative, ...]:
    """Every local method against episodes of the base's mean length; none without episodes."""
    suite = next((each for each in suites(run) if each.kind == "in_domain"), None)
    if suite is None:
        return ()
    shared = stages.get("profile", Cost()) + stages.get("select", Cost())
    local = [
        _alternative(run, name, suite, shared)
        for name, method in run.recipe.methods.items()
        if method.objective in LOCAL_OBJECTIVES
    ]
    return tuple(each for each in local if each.samples and each.episodes)


def _alternative(run: Run, name: str, suite: Suite, shared: Cost) -> Alternative:
    outcomes = read_outcomes(run, BASE, suite)
    played = suite_cost(outcomes)
    own = read_training(run, name).costs.get("collect", Cost())
    share = own.rollout_turns / max(1, len(outcomes))
    return Alternative(
        method=name,
        samples=own.rollout_turns,
        episodes=len(outcomes),
        turns_an_episode=played.rollout_turns / max(1, len(outcomes)),
        local=own + shared,
        end_to_end=Cost(
            rollout_turns=round(share * played.rollout_turns),
            prompt_tokens=round(share * played.prompt_tokens),
            sampled_tokens=round(share * played.sampled_tokens),
            environment_steps=round(share * played.environment_steps),
            seconds=share * played.seconds,
        ),
    )
