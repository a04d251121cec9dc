import pytest

from pivotune.core.types import Message, Task, Trajectory
from pivotune.ingest import split_turns
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.traces import part_of


def trajectory(name, task):
    spoken = [Message("user", "go"), *[Message("assistant", str(i)) for i in range(6)]]
    return Trajectory(name, "mine", Task(task, "mine"), (), tuple(spoken))


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_turns_and_trials_of_one_task_are_on_one_side(share):
    """The side belongs to the task: its six turns, and all its trials, go together."""
    recipe = load_recipe(None, [f"traces.validation_share={share}"])
    tasks = [f"task {i}" for i in range(400)]
    sides = {task: part_of(trajectory("a", task), recipe) for task in tasks}
    assert sides == {task: part_of(trajectory("another trial", task), recipe) for task in tasks}
    held_out = sum(side == "validation" for side in sides.values()) / len(tasks)
    assert held_out == pytest.approx(share, abs=0.1)
    assert len(split_turns(trajectory("a", "task 0"))) == 6
