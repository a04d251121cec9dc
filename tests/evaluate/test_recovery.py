import math

import msgspec
import pytest
import torch

from pivotune.core.errors import VerifierError
from pivotune.core.store import read_records, write_records
from pivotune.core.types import Message, Turn
from pivotune.domains.household.environment import HouseholdEnvironment, generated_task
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.evaluate.recovery import (
    MistakeState,
    Replay,
    find_mistakes,
    gold_probability,
    replay_states,
    score_recovery,
    vary_state,
)
from pivotune.models.sampler import TorchSampler
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.rollout import EpisodeLimits
from tiny_models import tiny_policy

LIMITS = EpisodeLimits(max_turns=30, max_tokens=64)
TASKS = [generated_task(seed, "train", TINY_GAMES) for seed in range(12)]


def make(task):
    return HouseholdEnvironment()


def standing(messages):
    """The game whose opening was shown, at this point of it."""
    task = next(t for t in TASKS if HouseholdEnvironment().reset(t)[1] == messages[1])
    environment = HouseholdEnvironment()
    environment.restore(Turn("t", "t", task, 0, tuple(messages), (), Message("assistant")))
    return environment


def best(messages, tools, row):
    return standing(messages).oracle().action


def careless(messages, tools, row):
    """The best action, but any harmful one at the third turn."""
    environment = standing(messages)
    view = environment.oracle()
    if sum(each.role == "assistant" for each in messages) != 2:
        return view.action
    for command in view.admissible:
        copy = environment.clone()
        copy.step(environment.spell(command))
        if (copy.oracle().remaining or 0) > view.remaining:
            return environment.spell(command)
    return view.action


def idle(messages, tools, row):
    return standing(messages).spell("look")


@pytest.fixture(scope="module")
def mistakes():
    return find_mistakes(
        ScriptedSampler(careless),
        TASKS,
        make,
        wanted=5,
        temperature=1.0,
        seed=0,
        limits=LIMITS,
        portion=6,
    )


def test_states_stand_just_after_the_bases_mistakes(mistakes, tmp_path):
    assert len(mistakes.states) == 5
    assert len(mistakes.played) == mistakes.won <= 12
    assert mistakes.failed_with_mistake is None
    assert set(mistakes.first_turns) == {2}
    for state in mistakes.states:
        environment = standing(state.history)
        assert environment.oracle().remaining == state.remaining
        before = standing(state.history[:-2])
        assert before.oracle().remaining < state.remaining
        assert before.oracle().action == state.gold
        assert (state.turn, state.turns_left) == (2, 27)
    write_records(tmp_path / "states.jsonl", mistakes.states)
    assert tuple(read_records(tmp_path / "states.jsonl", MistakeState)) == mistakes.states


def replays(mistakes, script, **more):
    settings = {"replays": 3, "temperature": 1.0, "seed": 1, "limits": LIMITS}
    return replay_states(ScriptedSampler(script), mistakes.states, make, **{**settings, **more})


def test_a_perfect_policy_recovers_in_the_optimal_number_of_turns(mistakes):
    found = replays(mistakes, best)
    score = score_recovery(mistakes.states, found)
    assert (score.rate.value, score.rate.low, score.rate.high) == (1.0, 1.0, 1.0)
    assert score.turns == score.optimum
    assert (score.states, score.replays) == (5, 15)
    optimum = {state.id: state.remaining for state in mistakes.states}
    assert all(each.turns == optimum[each.state] for each in found)


def test_a_policy_that_does_nothing_never_recovers(mistakes):
    found = replays(mistakes, idle, replays=1)
    score = score_recovery(mistakes.states, found)
    assert (score.rate.value, score.turns, score.optimum) == (0.0, None, None)
    assert {each.turns for each in found} == {27}


def test_finished_replays_are_not_played_again(mistakes):
    told = []
    whole = replays(mistakes, best, on_done=told.append)
    assert sorted(map(repr, told)) == sorted(map(repr, whole))
    done = {(each.state, each.repeat): each for each in whole[:10]}
    told.clear()
    assert replays(mistakes, best, done=done, on_done=told.append) == whole
    assert len(told) == 5


def test_the_rate_is_a_mean_over_states_and_failures_are_no_losses(mistakes):
    a, b = mistakes.states[:2]
    played = [Replay(a.id, 0, True, 3), Replay(a.id, 1, None, 1)]
    played += [Replay(b.id, i, i == 0, 5) for i in range(4)]
    score = score_recovery([a, b], played, failed_limit=0.5)
    assert score.rate.value == pytest.approx((1 + 0.25) / 2)
    assert score.rate.low < score.rate.value < score.rate.high
    assert score.turns == 4.0
    with pytest.raises(VerifierError, match="1 of 6 replays failed"):
        score_recovery([a, b], played)
    assert score_recovery([a], []).rate.value is None


def test_a_diagnosis_begins_before_the_mistake_or_after_help(mistakes):
    for state in mistakes.states:
        before = vary_state(state, "resample", make)
        assert before.history == state.history[:-2]
        assert before.turns_left == state.turns_left + 1
        assert before.remaining < state.remaining
        right = vary_state(state, "correct", make)
        assert right.history[:-2] == before.history
        assert right.history[-2] == state.gold
        assert (right.remaining, right.turns_left) == (before.remaining - 1, state.turns_left)
        helped = vary_state(state, "assist", make)
        assert helped.history[: len(state.history)] == state.history
        assert helped.remaining == state.remaining - 2
        assert len({state.id, before.id, right.id, helped.id}) == 4
    varied = [vary_state(state, "correct", make) for state in mistakes.states]
    found = replay_states(
        ScriptedSampler(best), varied, make, replays=1, temperature=1.0, seed=0, limits=LIMITS
    )
    assert score_recovery(varied, found).rate.value == 1.0


def test_a_game_that_help_ends_is_no_state(mistakes):
    state = msgspec.structs.replace(mistakes.states[0], turns_left=1)
    assert vary_state(state, "assist", make) is None


def test_probability_of_the_gold_action_by_a_plain_forward_pass(mistakes):
    policy = tiny_policy(max_position_embeddings=8192)
    states = mistakes.states[:2]
    found = gold_probability(TorchSampler(policy), policy.chat, states)
    expected = []
    for state in states:
        prompt, action = policy.chat.render_action(state.history[:-2], state.tools, state.gold)
        with torch.no_grad():
            rows = policy.model(torch.tensor([[*prompt, *action]])).logits[0].log_softmax(-1)
        each = [float(rows[len(prompt) + i - 1, token]) for i, token in enumerate(action)]
        expected.append(math.exp(sum(each)))
    assert found == pytest.approx(sum(expected) / 2, rel=1e-3)
    assert gold_probability(TorchSampler(policy), policy.chat, []) is None
