"""What a method will use, against counts by hand and a run that was measured."""

import msgspec
import pytest

from pivotune.pipeline.foreseen import (
    EpisodeMeans,
    Measured,
    MethodPlan,
    checkpoint_episodes,
    evaluation_seconds,
    plan_method,
    validation_turns,
)
from pivotune.pipeline.recipe import Method, load_recipe

# Turns of 100 tokens and actions of 10; the base's games have 16 turns and 400 tokens.
MEASURED = Measured(
    prompt_tokens=100.0,
    action_tokens=10.0,
    trajectory_tokens=300.0,
    accepted=0.25,
    live_share=0.5,
    sample_seconds=0.01,
    train_rate=1000.0,
    episode=EpisodeMeans(turns=16.0, tokens=400.0, turn_seconds=0.02),
)
RECIPE = load_recipe(None, ["evaluate.validation_games=10", "evaluate.every=6"])


class Unknown:
    """An objective of somebody else's."""

    class Config(msgspec.Struct):
        weight: float = 1.0


def foreseen(objective: str, steps: int = 24, batch: int = 4, **settings: object) -> MethodPlan:
    return plan_method(
        Method(objective, 1e-3, steps=steps, batch=batch, settings=settings), RECIPE, MEASURED
    )


@pytest.mark.parametrize(("steps", "times"), [(1, 2), (5, 2), (6, 2), (7, 3), (24, 5), (60, 11)])
def test_validation_is_before_the_first_step_and_after_the_last(steps: int, times: int) -> None:
    assert validation_turns(steps, RECIPE, MEASURED) == times * 10 * 16
    rare = msgspec.structs.replace(
        RECIPE, evaluate=msgspec.structs.replace(RECIPE.evaluate, every=0)
    )
    assert validation_turns(steps, rare, MEASURED) == 2 * 10 * 16


def test_whole_episodes_are_counted_to_their_limit() -> None:
    """24 steps of 4 tasks x 8 episodes: 768 episodes of 16 turns as the base's, 20 at most."""
    found = foreseen("episode_grpo", max_turns=20)
    assert found.rollout_turns == 768 * 16
    assert found.rollout_limit == 768 * 20 == 15_360
    assert found.trained_tokens == 768 * 400
    assert found.trained_limit == 768 * 500
    # 12,288 turns of 20 ms, 307,200 tokens of 1 ms, 5 validations of 10 games of 16 turns.
    assert found.minutes == pytest.approx((245.76 + 307.2 + 800 * 0.02) / 60)
    assert found.line() == (
        "about 12,288 rollout turns (at most 15,360), about 307,200 trained tokens (at most "
        "384,000), validation: about 800 rollout turns; about 9.5 minutes"
    )


def test_episodes_that_are_cut_short_are_not_expected_to_be_longer() -> None:
    found = foreseen("gigpo", max_turns=8)
    assert found.rollout_turns == found.rollout_limit == 768 * 8
    assert found.trained_limit == 768 * 200
    assert foreseen("gigpo", max_turns=8, refill=2).rollout_limit == 3 * 768 * 8


def test_a_teacher_that_reads_costs_time_and_one_that_is_asked_questions() -> None:
    alone, taught = foreseen("episode_grpo"), foreseen("opd")
    assert taught.rollout_turns == alone.rollout_turns
    assert taught.questions == 0
    # Every action is read behind half an episode, three times as fast as it is trained.
    assert taught.minutes - alone.minutes == pytest.approx(768 * 16 * 200 / 3000 / 60)
    told = foreseen("sdar", teacher={"kind": "self"})
    assert told.questions == told.rollout_limit == 768 * 30


def test_pivot_opd_adds_recoveries_and_detection() -> None:
    plain = foreseen("episode_grpo")
    found = foreseen("pivot_opd", recovery_limit=32)
    assert found.rollout_turns - plain.rollout_turns == 24 * 32
    assert found.rollout_limit - plain.rollout_limit == 24 * 32
    assert found.trained_tokens - plain.trained_tokens == 24 * 32 * (200 + 10)
    assert found.questions == 0
    asked = foreseen("pivot_opd", recovery_limit=32, teacher={"kind": "model"})
    assert asked.questions == 768 + 24 * 32
    bare = foreseen("pivot_opd", w_prev=0.0, w_traj=0.0, w_rec=0.0)
    assert bare == plain
    # Two recoveries behind each of at most one mark an episode: fewer than the limit.
    few = foreseen("pivot_opd", batch=1, group=2, marks=1)
    assert few.rollout_limit == 48 * 30 + 48 * 2


def test_local_groups_are_counted_and_live_ones_are_trained() -> None:
    """24 steps of 64 pivots x 8 actions; half of the groups are expected to be live."""
    found = foreseen("local_grpo", batch=64)
    assert found.rollout_turns == found.rollout_limit == 24 * 64 * 8 == 12_288
    assert found.trained_limit == 24 * 64 * (100 + 8 * 10)
    assert found.trained_tokens == found.trained_limit / 2
    guarded = foreseen("local_grpo", batch=64, guard=16, refill=1)
    assert guarded.rollout_turns == 24 * 80 * 8
    assert guarded.rollout_limit == 24 * (80 + 64) * 8
    refreshed = foreseen("local_grpo", batch=64, refresh={"turns": 512, "most": 2})
    assert refreshed.rollout_limit == 12_288 + 2 * 512 * 8


def test_imitation_samples_nothing() -> None:
    found = foreseen("sft", steps=60, batch=16)
    assert (found.rollout_turns, found.rollout_limit) == (0, 0)
    assert found.trained_tokens == found.trained_limit == 60 * 16 * 300
    assert found.line().startswith("no rollout turns, 288,000 trained tokens, validation")
    assert foreseen("sft", max_tokens=150).trained_tokens == 24 * 4 * 150
    # The recipe's 8 samples a turn, a quarter of them accepted, all at most.
    accepted = foreseen("rejection_sft", steps=10, batch=2)
    assert accepted.trained_tokens == 20 * (100 + 2 * 10)
    assert accepted.trained_limit == 20 * (100 + 8 * 10)


def test_a_mixture_is_the_sum_of_its_sources() -> None:
    found = foreseen(
        "mixed",
        sources={
            "pivots": {"objective": "local_grpo", "settings": {"batch": 64}},
            "games": {"objective": "episode_grpo", "settings": {"batch": 4}},
        },
    )
    parts = foreseen("local_grpo", batch=64), foreseen("episode_grpo")
    assert found.rollout_limit == sum(each.rollout_limit for each in parts)
    assert found.trained_tokens == sum(each.trained_tokens for each in parts)


def test_somebody_elses_objective_is_not_guessed() -> None:
    found = foreseen("pipeline.test_foreseen:Unknown")
    assert not found.known
    assert found.validation_turns == 5 * 10 * 16
    assert found.minutes == pytest.approx(800 * 0.02 / 60)
    assert "whose cost is not known here" in found.line()


def test_the_final_evaluation_counts_tries_and_replays() -> None:
    recipe = load_recipe(
        None,
        [
            'methods={a = {objective = "sft", learning_rate = 1e-3}}',
            "evaluate.episodes=100",
            "evaluate.items=300",
            "tax.rollouts=4",
            "tax.tasks=10",
            "recovery.states=6",
            "recovery.replays=5",
            "recovery.diagnosis=true",
        ],
    )
    # Two policies, and the base in three more ways after its mistakes.
    episodes = 2 * (100 + 40) + 6 * 5 * (2 + 3)
    expected = episodes * 16 * 0.02 + 2 * 300 * 0.01
    assert evaluation_seconds(recipe, MEASURED) == pytest.approx(expected)


def test_episodes_of_checkpoints_are_counted() -> None:
    """60, 120 and 120 steps, validated every 20: 15 policies twice, 3 of them K = 4 times."""
    steps = {"a": 60, "b": 120, "c": 120}
    methods = ", ".join(
        f'{name} = {{objective = "sft", learning_rate = 1e-3, steps = {n}}}'
        for name, n in steps.items()
    )
    tax = [f"methods={{{methods}}}", "evaluate.every=20", "tax.rollouts=8", "tax.tasks=10"]
    assert checkpoint_episodes(load_recipe(None, tax)) == 0
    assert checkpoint_episodes(load_recipe(None, [*tax, "tax.checkpoints=2"])) == 10 * (15 * 2 + 12)
