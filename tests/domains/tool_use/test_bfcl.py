"""BFCL: the ground truth passes, less than it does not, and their own checker agrees."""

import ast
import random

import pytest

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.types import Message, Task, ToolCall, Turn
from pivotune.domains.catalog import make_environment, suite_tasks
from pivotune.domains.tool_use.bfcl import (
    Call,
    bfcl_tasks,
    call_message,
    find_entry,
    make_services,
    run_call,
    tools_of,
    true_calls,
)
from pivotune.domains.tool_use.environment import BfclEnvironment, record_truth
from pivotune.ingest import split_turns
from pivotune.turns.rollout import expert_completion
from pivotune.verify import build_verifier

pytest.importorskip("bfcl_eval")
pytest.importorskip("mpmath")


def play(task, calls_of):
    """The outcome of making `calls_of(turn, true calls)` at every question."""
    environment = make_environment(task)
    environment.reset(task)
    spare = make_services(find_entry(task))
    for turn in range(len(find_entry(task).question)):
        for call in calls_of(turn, true_calls(find_entry(task), turn, spare)):
            environment.step(call_message([call]))
        result = environment.step(Message("assistant", "Done."))
    assert result.done
    return environment.reward()


def test_the_ground_truth_passes_all_200() -> None:
    tasks = suite_tasks("bfcl:base", 1000, 0)
    assert len(tasks) == 200
    assert sum(record_truth(task).reward == 1.0 for task in tasks) == 200


def test_halves_are_disjoint_and_draws_depend_on_the_seed() -> None:
    train, test = ({t.id for t in bfcl_tasks(s, 1000, 0)} for s in ("train", "test"))
    assert not train & test
    assert len(train | test) == 200
    assert bfcl_tasks("train", 5, 0) == bfcl_tasks("train", 5, 0) != bfcl_tasks("train", 5, 1)


def test_doing_nothing_or_only_talking_fails() -> None:
    for task in bfcl_tasks("base", 30, 0):
        assert play(task, lambda turn, calls: ()) == 0.0


def test_more_than_the_truth_passes_when_nothing_else_changes() -> None:
    """A look around does no harm; BFCL asks for the truth's results and states only."""
    entry_task = next(t for t in bfcl_tasks("base", 200, 0) if t.id == "multi_turn_base_0")
    look = Call("pwd", {})
    assert play(entry_task, lambda turn, calls: (look, *calls, look)) == 1.0
    noise = Call("mkdir", {"dir_name": "another"})
    assert play(entry_task, lambda turn, calls: (*calls, noise)) == 0.0


def test_odd_calls_are_answered_not_raised() -> None:
    task = bfcl_tasks("base", 200, 0)[0]
    environment = BfclEnvironment()
    environment.reset(task)
    name = environment.tools[0].name
    for call in (
        ToolCall("_load_scenario", {"scenario": {}}),
        ToolCall("__init__", {}),
        ToolCall("no_such_tool", {}),
        ToolCall(name, {"no_such_argument": 1}),
        ToolCall(name, None, "{broken"),
    ):
        (reply,) = environment.step(Message("assistant", tool_calls=(call,))).replies
        assert reply.content.startswith("Error during execution")


def test_a_turn_is_restored_cloned_and_compared_by_effect() -> None:
    task = next(t for t in bfcl_tasks("base", 200, 0) if t.id == "multi_turn_base_0")
    trajectory = record_truth(task)
    turns = split_turns(trajectory)
    environment = BfclEnvironment()
    environment.restore(turns[3])
    twin = environment.clone()
    before = environment.snapshot()
    twin.step(turns[3].expert)
    assert environment.snapshot() == before != twin.snapshot()
    verdict = build_verifier("effect").verify(turns[3], expert_completion(turns[3]), environment)
    assert verdict.reward == 1.0
    wrong = Turn(**{name: getattr(turns[3], name) for name in turns[3].__struct_fields__})
    altered = list(wrong.state)
    altered[2] = Message("tool", "something else", name="cd")
    broken = Turn("x", "x", task, 3, tuple(altered), wrong.tools, wrong.expert)
    with pytest.raises(ReplayMismatch):
        environment.restore(broken)


def test_a_task_of_another_kind_is_an_error() -> None:
    with pytest.raises(DataError, match="not a BFCL task"):
        BfclEnvironment().reset(Task("other", "bfcl"))


def test_schemas_are_json_schema() -> None:
    kinds = set()

    def walk(schema):
        if isinstance(schema, dict):
            if isinstance(schema.get("type"), str):
                kinds.add(schema["type"])
            for value in schema.values():
                walk(value)

    for task in bfcl_tasks("base", 200, 0):
        for tool in tools_of(find_entry(task).involved_classes):
            walk(tool.parameters)
    assert kinds <= {"object", "array", "string", "integer", "number", "boolean"}


@pytest.mark.reference
def test_verdicts_are_those_of_bfcls_own_checker() -> None:
    """Every task with one of its calls left out, doubled or given another argument."""
    checker = pytest.importorskip("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    rng = random.Random(0)
    passed = 0
    for number, task in enumerate(bfcl_tasks("base", 200, 0)):
        entry = find_entry(task)
        spare = make_services(entry)
        plan = [list(true_calls(entry, i, spare)) for i in range(len(entry.question))]
        turn = rng.choice([i for i, calls in enumerate(plan) if calls])
        place = rng.randrange(len(plan[turn]))
        change = number % 3
        if change == 0:
            del plan[turn][place]
        elif change == 1:
            plan[turn].insert(place, plan[turn][place])
        else:
            call = plan[turn][place]
            keys = list(call.arguments)
            if keys:
                changed = {**call.arguments, rng.choice(keys): "zzz"}
                plan[turn][place] = Call(call.name, changed)
        ours = play(task, lambda i, calls, plan=plan: plan[i])
        written = [[[_write(call)] for call in calls] for calls in plan]
        theirs = checker.multi_turn_checker(
            written,
            [list(calls) for calls in entry.truth],
            {
                "id": entry.id,
                "initial_config": entry.initial_config,
                "involved_classes": list(entry.involved_classes),
            },
            "multi_turn_base",
            f"check{number}",
        )
        assert ours == float(theirs["valid"]), (task.id, change, theirs)
        passed += theirs["valid"]
    assert 0 < passed < 200


def _write(call):
    text = f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"
    ast.parse(text)
    return text


def test_a_call_is_run_on_the_service_that_has_it() -> None:
    task = next(t for t in bfcl_tasks("base", 200, 0) if t.id == "multi_turn_base_0")
    entry = find_entry(task)
    services = make_services(entry)
    tools = tools_of(entry.involved_classes)
    assert "document" in run_call(services, tools, Call("ls", {}))
