import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.types import Message, Task, ToolCall, Turn
from pivotune.domains.skills import calendar, copying, lists, strings
from pivotune.domains.skills.environment import SkillEnvironment
from pivotune.domains.skills.item import same_call, text_item
from pivotune.domains.skills.suite import (
    SKILLS,
    check,
    draw_items,
    skill_task,
    skill_tasks,
    split_of,
    task_item,
)


@pytest.mark.parametrize(
    ("module", "rule", "before", "after"),
    [
        (lists, "keep even", [4, 7, 2], [4, 2]),
        (lists, "add one", [9, 0, 9], [10, 1, 10]),
        (lists, "keep over 4", [4, 5, 9], [5, 9]),
        (lists, "first two", [3, 2, 1], [3, 2]),
        (lists, "rotate", [3, 2, 1], [2, 1, 3]),
        (strings, "reverse", list("kta"), list("atk")),
        (strings, "capitals", list("kta"), list("KTA")),
        (strings, "swap ends", list("ktab"), list("btak")),
        (strings, "drop last", list("kta"), list("kt")),
        (strings, "double first", list("kta"), list("kkta")),
    ],
)
def test_rules_on_worked_examples(
    module: ModuleType, rule: str, before: list[object], after: list[object]
) -> None:
    assert module.RULES[rule](before) == after


@pytest.mark.parametrize(
    ("rule", "after"),
    [
        ("without", ["cat", "red"]),
        ("twice", ["cat", "sun", "sun", "red"]),
        ("up to", ["cat", "sun"]),
        ("from", ["sun", "red"]),
    ],
)
def test_copying_rules_on_a_worked_example(rule: str, after: list[str]) -> None:
    assert copying.RULES[rule](["cat", "sun", "red"], "sun") == after


def test_sorting_sorts() -> None:
    for seed in range(50):
        item = SKILLS["sorting"].make(random.Random(seed))
        way, _, row = item.question.removeprefix("sort ").partition(": ")
        assert item.answer.content.split() == sorted(row.split(), reverse=way == "down")


@given(st.integers(0, 10_000))
def test_answers_of_arithmetic_and_counting_are_true(seed: int) -> None:
    sums = SKILLS["arithmetic"].make(random.Random(seed))
    assert int(sums.answer.content) == eval(sums.question.removesuffix("="))
    counts = SKILLS["counting"].make(random.Random(seed))
    wanted, row = counts.question.removeprefix("count ").split(": ")
    assert counts.answer.content == str(sum(letter == wanted for letter in row.split()))


@given(st.integers(0, 10_000))
def test_logic_answers_hold_in_the_only_order(seed: int) -> None:
    item = SKILLS["logic"].make(random.Random(seed))
    facts, _, asked = item.question.removesuffix("?").rpartition(". Who is ")
    above = set()
    for fact in facts.split(". "):
        left, _, relation, _, right = fact.split()
        above.add((left, right) if relation in ("taller", "older") else (right, left))
    names = {name for pair in above for name in pair}
    top = next(n for n in names if all(low != n for _, low in above))
    low = next(n for n in names if all(high != n for high, _ in above))
    middle = (names - {top, low}).pop()
    wanted = {"tallest": top, "oldest": top, "shortest": low, "youngest": low}
    assert item.answer.content == wanted.get(asked, middle)


@pytest.mark.parametrize("skill", SKILLS)
def test_items_are_reproducible_disjoint_and_solvable(skill: str) -> None:
    held_out = draw_items(skill, "eval", n=300, seed=3)
    train = draw_items(skill, "train", n=300, seed=3)
    assert held_out == draw_items(skill, "eval", n=300, seed=3)
    assert len({item.id for item in held_out} | {item.id for item in train}) == 600
    assert {split_of(item) for item in held_out} == {"eval"}
    assert all(check(item, item.answer) for item in held_out + train)
    empty, wrong = Message("assistant"), Message("assistant", "household")
    assert not any(check(item, each) for item in held_out for each in (empty, wrong))


@pytest.mark.parametrize("skill", SKILLS)
def test_no_single_answer_is_right_often(skill: str) -> None:
    items = draw_items(skill, "eval", n=300, seed=0)
    best = max(sum(check(item, guess.answer) for item in items) for guess in items[:50])
    assert best < 0.35 * len(items)


def test_text_answers_ignore_space_and_nothing_else() -> None:
    item = text_item("sorting", "sort up: 2 1", "1 2")
    assert check(item, Message("assistant", " 1  2\n"))
    assert not check(item, Message("assistant", "12"))
    assert not check(item, Message("assistant", "1 2", (ToolCall("act", {}),)))


def test_list_answers_compare_as_json() -> None:
    item = text_item("lists", "list, first two: [1, 2, 3]", "[1, 2]")
    assert lists.check(item, Message("assistant", "[1,2]"))
    for wrong in ("[1, 2", "[1, 2.0]", "[true, 2]", "1, 2", "[2, 1]"):
        assert not lists.check(item, Message("assistant", wrong))


def test_calls_compare_by_name_and_every_argument() -> None:
    item = next(i for i in draw_items("calendar", "eval", n=50, seed=0) if "Book" in i.question)
    (call,) = item.answer.tool_calls
    assert call.arguments is not None
    hour = call.arguments["hour"]
    shuffled = dict(reversed(list(call.arguments.items())))
    assert same_call(item, Message("assistant", tool_calls=(ToolCall("meet", shuffled),)))
    wrong = (
        (ToolCall("cancel", call.arguments),),
        (ToolCall("meet", call.arguments | {"hour": str(hour)}),),
        (ToolCall("meet", call.arguments | {"room": "1"}),),
        (call, call),
        (),
    )
    assert not any(same_call(item, Message("assistant", tool_calls=calls)) for calls in wrong)
    assert {spec.name for spec in calendar.TOOLS} >= {"meet", "cancel", "weather", "remind"}


def test_unknown_skills_and_too_many_items_are_refused() -> None:
    with pytest.raises(DataError, match="unknown skill"):
        draw_items("juggling", "eval", n=1, seed=0)
    with pytest.raises(DataError, match="fewer than"):
        draw_items("calendar", "eval", n=3000, seed=0)


def test_environment_is_one_turn_with_reward_zero_or_one() -> None:
    item = draw_items("copying", "eval", n=1, seed=0)[0]
    task = skill_task(item, "eval")
    assert task_item(task) == item
    world = SkillEnvironment()
    assert world.reset(task) == item.messages
    view = world.oracle()
    assert (view.remaining, view.action) == (1, item.answer)
    twin = world.clone()
    assert world.step(item.answer).done
    assert (world.reward(), twin.reward()) == (1.0, 0.0)
    twin.step(Message("assistant", "no"))
    assert twin.reward() == 0.0
    assert twin.oracle().remaining is None


def test_environment_restores_its_own_question_only() -> None:
    first, second = (skill_task(i, "eval") for i in draw_items("logic", "eval", n=2, seed=0))
    world = SkillEnvironment()
    state = task_item(first).messages
    answer = task_item(first).answer
    world.restore(Turn("t", "t", first, 0, state, (), answer))
    with pytest.raises(ReplayMismatch):
        world.restore(Turn("t", "t", second, 0, state, (), answer))


def test_tasks_cover_every_skill_and_damaged_ones_are_refused() -> None:
    tasks = skill_tasks(n=2)
    assert [task_item(task).skill for task in tasks] == [s for s in SKILLS for _ in range(2)]
    with pytest.raises(DataError, match="not a skill task"):
        task_item(Task("x", "skills"))
