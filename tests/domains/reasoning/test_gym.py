import pytest

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.types import Message, Task, Turn
from pivotune.domains.catalog import make_environment, suite_tasks
from pivotune.domains.reasoning.gym import generators, reasoning_tasks

pytest.importorskip("reasoning_gym")
SOME = ("basic_arithmetic", "count_primes", "leg_counting", "letter_counting", "simple_equations")


def some_tasks(split="eval", seed=0):
    tasks = reasoning_tasks(split, len(generators()), seed)
    return [task for task in tasks if task.payload["group"] in SOME]


def answer(task):
    """The generator's own answer, through a fresh environment."""
    environment = make_environment(task)
    environment.reset(task)
    return environment, environment._entry["answer"]


@pytest.mark.parametrize("shape", ["{}", "I think.\n<answer>{}</answer>", "<answer> {} </answer>."])
def test_the_right_answer_wins_and_another_does_not(shape) -> None:
    tasks = some_tasks()
    assert len(tasks) == len(SOME)
    for task in tasks:
        environment, right = answer(task)
        assert environment.reward() == 0.0
        twin = environment.clone()
        assert environment.step(Message("assistant", shape.format(right))).done
        assert environment.reward() == 1.0
        twin.step(Message("assistant", shape.format("no such answer")))
        assert twin.reward() == 0.0


def test_tasks_are_made_again_from_their_names() -> None:
    first, again = some_tasks(), some_tasks()
    assert first == again
    questions = [make_environment(task).reset(task)[0].content for task in first]
    assert questions == [make_environment(task).reset(task)[0].content for task in again]
    others = [make_environment(t).reset(t)[0].content for t in some_tasks("train")]
    assert questions != others
    assert all("<answer>" in question for question in questions)


def test_suites_take_the_same_number_of_every_generator() -> None:
    tasks = suite_tasks("reasoning:eval", 2 * len(generators()), 0)
    groups = [task.payload["group"] for task in tasks]
    assert {groups.count(name) for name in generators()} == {2}
    assert len({task.id for task in tasks}) == len(tasks)


def test_wrong_tasks_and_questions_are_told() -> None:
    with pytest.raises(DataError):
        make_environment(Task("x", "reasoning", payload={"group": "none"})).reset(
            Task("x", "reasoning", payload={"group": "none"})
        )
    task = some_tasks()[0]
    turn = Turn("t", "t", task, 0, (Message("user", "other"),), (), Message("assistant", "1"))
    with pytest.raises(ReplayMismatch):
        make_environment(task).restore(turn)
