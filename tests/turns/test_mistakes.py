import json

import msgspec
import pytest

from pivotune.core.errors import RecipeError
from pivotune.core.types import Completion, Cost, Episode, EpisodeTurn, Message, ParseOutcome, Task
from pivotune.domains.household.environment import HouseholdEnvironment, generated_task
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.domains.skills.hints import describe_action
from pivotune.domains.skills.judging import LONGEST
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.mistakes import (
    Finding,
    Mark,
    ModelTeacher,
    OracleTeacher,
    Standing,
    agreement,
)
from pivotune.turns.questions import QUESTIONS, JudgingQuestion
from pivotune.turns.rollout import contexts
from train.playground import ByteGame

TASK = Task("t", "toy")
MAKE = lambda task: HouseholdEnvironment()  # noqa: E731


def said(message):
    return Completion((1,), (2,), (0.0,), message, ParseOutcome.OK, "stop", 1.0, "p")


def play(task, choose, turns):
    """An episode in which `choose(environment, turn)` says what is done."""
    environment = HouseholdEnvironment()
    opening = environment.reset(task)
    done = []
    for turn in range(turns):
        action = choose(environment, turn)
        result = environment.step(action)
        done.append(EpisodeTurn(said(action), result.replies))
        if result.done:
            break
    reward = environment.reward()
    return Episode(task, opening, tuple(done), reward, "turns", tools=environment.tools)


def best(environment, turn):
    return environment.oracle().action


def goto_elsewhere(environment, turn):
    """A step away at turn 2, the best action otherwise."""
    if turn != 2:
        return best(environment, turn)
    remaining = environment.oracle().remaining
    for command in environment.oracle().admissible:
        copy = environment.clone()
        action = environment.spell(command)
        copy.step(action)
        if copy.oracle().remaining > remaining:
            return action
    raise AssertionError("no bad action here")


def household_task():
    return generated_task(3, "train", TINY_GAMES)


def test_the_oracle_marks_the_turn_after_which_more_steps_are_needed():
    good = play(household_task(), best, 30)
    bad = play(household_task(), goto_elsewhere, 5)
    assert good.reward == 1.0
    found = OracleTeacher(MAKE).detect([good, bad], limit=5, seed=0)
    assert found.findings[0] == Finding()
    (mark,) = found.findings[1].marks
    assert mark.turn == 2
    # Without that step the two episodes are the same: the gold action is the good one's.
    assert mark.gold == good.turns[2].completion.message
    assert found.cost == Cost(environment_steps=len(good.turns) + 5)


def test_waste_is_what_changes_nothing_and_is_marked_on_demand():
    """A look at turn 1, a command that is refused at turn 3, the best action otherwise."""

    def idle(environment, turn):
        if turn == 1:
            return environment.spell("look")
        return environment.spell("go to nowhere 1") if turn == 3 else best(environment, turn)

    episode = play(household_task(), idle, 30)
    (plain,) = OracleTeacher(MAKE).detect([episode], limit=5, seed=0).findings
    (found,) = OracleTeacher(MAKE, waste=True).detect([episode], limit=5, seed=0).findings
    assert (episode.reward, plain) == (1.0, Finding())
    assert [mark.turn for mark in found.marks] == [1, 3]
    for mark in found.marks:
        assert mark.gold == episode.turns[mark.turn + 1].completion.message
    harmed = play(household_task(), goto_elsewhere, 5)
    assert OracleTeacher(MAKE, waste=True).detect([harmed], limit=5, seed=0) == OracleTeacher(
        MAKE
    ).detect([harmed], limit=5, seed=0)


def test_the_player_is_asked_at_the_oracles_marks():
    bad = play(household_task(), goto_elsewhere, 5)
    teacher = OracleTeacher(MAKE, fair=True)
    (found,) = teacher.detect([bad], limit=5, seed=0).findings
    (mark,) = found.marks
    environment = HouseholdEnvironment()
    environment.reset(household_task())
    for turn in bad.turns[: mark.turn]:
        environment.step(turn.completion.message)
    assert mark.gold == environment.advice()
    standing = Standing(bad.task, contexts(bad)[mark.turn], bad.tools, environment)
    assert teacher.suggest([standing], seed=0).actions == (mark.gold,)
    # Its own moves are no mistakes to it, however much a longer way costs.
    own = play(household_task(), lambda house, turn: house.advice(), 30)
    assert own.reward == 1.0
    assert teacher.detect([own], limit=30, seed=0).findings == (Finding(),)


def test_a_replay_that_differs_gives_no_marks_and_is_counted():
    bad = play(household_task(), goto_elsewhere, 5)
    other = generated_task(4, "train", TINY_GAMES)
    moved = Episode(other, bad.opening, bad.turns, 0.0, "turns", tools=bad.tools)
    found = OracleTeacher(MAKE).detect([moved], limit=5, seed=0)
    assert found.findings == (Finding(),)
    assert found.problems == {"the replay differs": 1}


def model(answer, question="json", **more):
    sampler = ScriptedSampler(lambda messages, tools, row: answer, **more)
    return ModelTeacher(sampler, MAKE, QUESTIONS[question])


def answer(turns, lesson="Look first."):
    return json.dumps({"turns": turns, "lesson": lesson})


def test_a_models_answer_becomes_marks_and_a_lesson():
    bad = play(household_task(), goto_elsewhere, 5)
    gold = best(*_before(bad, 2))
    command = gold.tool_calls[0].arguments["command"]
    text = f"Sure.\n```json\n{answer([{'turn': 3, 'action': command.upper()}])}\n```"
    found = model(text).detect([bad], limit=2, seed=0)
    assert found.findings == (Finding((Mark(2, gold),), "Look first."),)
    assert found.problems == {}
    assert found.cost.judge_calls == 1
    assert found.cost.prompt_tokens > 0


def _before(episode, turn):
    environment = HouseholdEnvironment()
    environment.reset(episode.task)
    for each in episode.turns[:turn]:
        environment.step(each.completion.message)
    return environment, turn


def test_statements_that_cannot_be_used_are_counted_by_reason():
    bad = play(household_task(), goto_elsewhere, 5)
    taken = bad.turns[0].completion.message.tool_calls[0].arguments["command"]
    cases = {
        "I would say turn three.": {"not a JSON object": 1},
        '{"turns": [{"turn": 1,}]}': {"not a JSON object": 1},
        answer([{"turn": 99, "action": "look"}]): {"turn out of range": 1},
        answer([{"turn": 0, "action": "look"}]): {"turn out of range": 1},
        answer([{"turn": "3", "action": "look"}]): {"turn is no number": 1},
        answer([{"turn": 3}]): {"no action named": 1},
        answer([{"turn": 3, "action": "fly to the moon"}]): {"no admissible action": 1},
        answer([{"turn": 1, "action": taken}]): {"the action that was taken": 1},
        answer("turn 3"): {"turns are no list": 1},
        answer([{"turn": 9 + i, "action": "x"} for i in range(3)]): {
            "more turns than asked for": 1,
            "turn out of range": 2,
        },
    }
    for text, problems in cases.items():
        found = model(text).detect([bad], limit=2, seed=0)
        assert found.findings[0].marks == ()
        assert found.problems == problems, text


def test_an_answer_that_the_limit_cut_is_named_so():
    bad = play(household_task(), goto_elsewhere, 5)
    whole = answer([{"turn": i, "action": "look"} for i in range(1, 6)])
    found = model(whole).detect([bad], limit=5, seed=0)
    assert "cut off" not in found.problems
    sampler = ScriptedSampler(lambda messages, tools, row: whole)
    short = ModelTeacher(sampler, MAKE, QUESTIONS["json"], max_tokens=20)
    assert short.detect([bad], limit=5, seed=0).problems == {"cut off": 1}


def test_an_answer_without_an_action_gives_the_lesson_only():
    bad = play(household_task(), goto_elsewhere, 5)
    found = model(answer([], "  Open\nboxes. ")).detect([bad], limit=2, seed=0)
    assert found.findings == (Finding((), "Open boxes."),)


def test_an_episode_too_long_for_the_teacher_is_counted():
    bad = play(household_task(), goto_elsewhere, 5)
    found = model("x", context_limit=300).detect([bad], limit=2, seed=0)
    assert found.problems == {"too long for the teacher": 1}
    assert found.cost.judge_calls == 0


def test_the_short_judging_form():
    bad = play(household_task(), goto_elsewhere, 5)
    gold = best(*_before(bad, 2))
    found = model(f"turn 3: {describe_action(gold)}", "judging").detect([bad], limit=2, seed=0)
    assert found.findings == (Finding((Mark(2, gold),)),)
    assert model("no mistake", "judging").detect([bad], limit=2, seed=0).problems == {}
    assert model("hm", "judging").detect([bad], limit=2, seed=0).problems == {"not a judgement": 1}


def test_the_short_form_shows_no_more_steps_than_were_taught():
    long = play(household_task(), lambda at, turn: at.spell("look"), LONGEST + 3)
    (asked,) = JudgingQuestion().about_episode(long, 1)
    assert f"\n{LONGEST}. " in asked.content
    assert f"\n{LONGEST + 1}. " not in asked.content
    won = msgspec.structs.replace(long, reward=1.0)
    assert "Outcome: failed" in JudgingQuestion().about_episode(won, 1)[0].content
    short = msgspec.structs.replace(won, turns=won.turns[:LONGEST])
    assert "Outcome: solved" in JudgingQuestion().about_episode(short, 1)[0].content


def test_suggestions_are_admissible_actions():
    environment, _ = _before(play(household_task(), best, 2), 2)
    standing = Standing(household_task(), (Message("user", "x"),), environment.tools, environment)
    gold = environment.oracle().action
    command = gold.tool_calls[0].arguments["command"]
    assert OracleTeacher(MAKE).suggest([standing], seed=0).actions == (gold,)
    assert model(f"I'd {command}").suggest([standing], seed=0).actions == (gold,)
    assert model(gold, "judging").suggest([standing], seed=0).actions == (gold,)
    lost = model("fly").suggest([standing], seed=0)
    assert (lost.actions, lost.problems) == ((None,), {"no admissible action": 1})


def test_a_domain_without_an_oracle_is_named():
    with pytest.raises(RecipeError, match="'toy' has no oracle"):
        OracleTeacher(MAKE).suggest([Standing(TASK, (), ())], seed=0)


def test_a_domain_without_a_player_is_named():
    toy = ByteGame()
    toy.reset(TASK)
    with pytest.raises(RecipeError, match="'toy' knows no player"):
        OracleTeacher(MAKE, fair=True).suggest([Standing(TASK, (), (), toy)], seed=0)


def test_precision_and_recall_against_the_oracle():
    def at(*turns):
        return Finding(tuple(Mark(turn, Message("assistant", "a")) for turn in turns))

    found = agreement([at(1, 4), at(), at(7)], [at(1, 5), at(2), at()])
    assert (found.precision, found.recall, found.within_one) == (1 / 3, 1 / 3, 2 / 3)
    assert agreement([at()], [at()]).precision is None
