"""`costs.json`: what every stage used, the phases of training, and the end-to-end alternative."""

import msgspec

from pivotune.core.ledger import Alternative, Prices
from pivotune.core.types import Cost
from pivotune.evaluate.suites import Suite, suite_cost
from pivotune.pipeline.evaluation import read_outcomes, suites
from pivotune.pipeline.run import BASE, Run
from pivotune.pipeline.training import read_training

LOCAL_OBJECTIVES = ("local_grpo",)
"""Objectives that sample one action at a time, so that episodes are what they save."""


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
