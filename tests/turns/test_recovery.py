"""Recoveries in household games, in both dialects, by a student that thinks before it acts."""

import pytest

from pivotune.core.types import Message, Turn
from pivotune.domains.household.environment import (
    EnvironmentConfig,
    HouseholdEnvironment,
    generated_task,
)
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.domains.skills.hints import ACTION_HINT
from pivotune.models.parse import format_action
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.mistakes import OracleTeacher, standings
from pivotune.turns.recovery import RecoveryConfig, sample_corrections, sample_recoveries
from pivotune.turns.rollout import EpisodeLimits, Play, contexts, run_episodes

TASK = generated_task(3, "train", TINY_GAMES)
BEFORE, AFTER = ACTION_HINT.split("{action}")
THOUGHT = "<think>\nI had better think.\n</think>\n\n"


def standing(dialect, messages):
    environment = HouseholdEnvironment(EnvironmentConfig(dialect=dialect))
    environment.restore(Turn("t", "t", TASK, 0, tuple(messages), (), Message("assistant")))
    return environment


def careless(dialect):
    """The best action, a harmful one at the third turn; what a hint says where there is one."""

    def play(messages, tools, row):
        told = messages[-1].content
        if told.startswith(BEFORE):
            action = told.removeprefix(BEFORE).removesuffix(AFTER)
            return f"{THOUGHT}<tool_call>{action}</tool_call>"
        environment = standing(dialect, messages)
        action = environment.oracle().action
        if sum(each.role == "assistant" for each in messages) == 2:
            action = harmful(environment)
        return THOUGHT + format_action(action)

    return ScriptedSampler(play)


def harmful(environment):
    view = environment.oracle()
    for command in view.admissible:
        copy = environment.clone()
        copy.step(environment.spell(command))
        if (copy.oracle().remaining or 0) > view.remaining:
            return environment.spell(command)
    raise AssertionError("no harmful action here")


@pytest.mark.parametrize("dialect", ["act", "typed"])
def test_detection_and_recovery_in_both_dialects(dialect):
    def make(task):
        return HouseholdEnvironment(EnvironmentConfig(dialect=dialect))

    student = careless(dialect)
    (episode,) = run_episodes(
        student, [Play(TASK)], make, temperature=1.0, seed=0, limits=EpisodeLimits(max_tokens=64)
    )
    assert all(turn.completion.message.thinking for turn in episode.turns)
    teacher = OracleTeacher(make)
    (finding,) = teacher.detect([episode], limit=5, seed=0).findings
    assert [mark.turn for mark in finding.marks] == [2]
    found = sample_recoveries(
        student,
        teacher,
        make,
        [("e", episode, 2)],
        RecoveryConfig(2, 64, 1.0, 64, ACTION_HINT),
        seed=0,
    )
    first, second = found.items
    assert first.history == contexts(episode)[3]
    for recovery in found.items:
        environment = standing(dialect, recovery.history)
        assert recovery.gold == environment.oracle().action
        said = recovery.completion.message
        assert said.thinking  # the whole response is what is trained
        assert environment.read(said) == environment.read(recovery.gold)
        assert not any(BEFORE in message.content for message in recovery.history)
    remaining = [standing(dialect, each.history).oracle().remaining for each in found.items]
    assert remaining[1] == remaining[0] - 1
    assert second.history[: len(first.history)] == first.history
    assert found.cost.environment_steps == 3 + 1
    assert found.cost.rollout_turns == 2


def test_one_place_to_stand_for_every_action():
    def make(task):
        return HouseholdEnvironment()

    (episode,) = run_episodes(
        careless("act"),
        [Play(TASK)],
        make,
        temperature=1.0,
        seed=0,
        limits=EpisodeLimits(max_tokens=64),
    )
    found = standings(episode, make)
    assert len(found) == len(episode.turns)
    for state, each in zip(contexts(episode), found, strict=False):
        assert each.history == state
        assert each.environment.oracle() == standing("act", state).oracle()


def test_a_correction_is_said_at_the_mistake_itself():
    def make(task):
        return HouseholdEnvironment()

    student = careless("act")
    limits = EpisodeLimits(max_tokens=64)
    (episode,) = run_episodes(student, [Play(TASK)], make, temperature=1.0, seed=0, limits=limits)
    (finding,) = OracleTeacher(make).detect([episode], limit=5, seed=0).findings
    (mark,) = finding.marks
    settings = RecoveryConfig(2, 64, 1.0, 64, ACTION_HINT)
    found = sample_corrections(student, [("e", episode, mark)], settings, seed=0)
    (correction,) = found.items
    assert correction.history == contexts(episode)[mark.turn]
    assert correction.gold == mark.gold
    said = correction.completion.message
    environment = standing("act", correction.history)
    assert environment.read(said) == environment.read(mark.gold)
    assert environment.read(said) != environment.read(episode.turns[mark.turn].completion.message)
    assert found.ended == {}
    assert found.cost.rollout_turns == 1
