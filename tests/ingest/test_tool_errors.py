"""Results that a trace marks as errors: the turns whose calls they answer are no candidates."""

from pathlib import Path
from typing import Any

import pytest

from conftest import shared_data
from ingest.helpers import call, read_all, read_rows_of
from pivotune.ingest import split_turns
from pivotune.turns.candidates import tool_error

FAILED: list[dict[str, Any]] = [
    {"is_error": True},
    {"isError": True},
    {"status": "error"},
    {"status": "failed"},
]
FINE: list[dict[str, Any]] = [{}, {"is_error": False}, {"status": "completed"}, {"status": None}]


def errors_of(path: Path, row: Any) -> list[bool]:
    """For each turn whether its call ended in an error."""
    trajectories, _ = read_rows_of(path, row)
    return [tool_error(turn) for turn in split_turns(trajectories[0])]


def chat(*marks: dict[str, Any], last: str = "done") -> list[dict[str, Any]]:
    """One turn of as many calls as there are marks, and one that speaks."""
    names = [f"c{i}" for i in range(len(marks))]
    return [
        {"role": "user", "content": "The weather?"},
        {"role": "assistant", "tool_calls": [call("weather", {"city": n}, n) for n in names]},
        *(
            {"role": "tool", "tool_call_id": name, "content": "…", **mark}
            for name, mark in zip(names, marks, strict=True)
        ),
        {"role": "assistant", "content": last},
    ]


@pytest.mark.parametrize("mark", FAILED)
def test_a_marked_result_belongs_to_the_turn_that_called(
    tmp_path: Path, mark: dict[str, Any]
) -> None:
    assert errors_of(tmp_path, {"messages": chat(mark)}) == [True, False]
    assert errors_of(tmp_path, {"messages": chat({}, mark)}) == [True, False]


@pytest.mark.parametrize("mark", FINE)
def test_other_results_are_none(tmp_path: Path, mark: dict[str, Any]) -> None:
    assert errors_of(tmp_path, {"messages": chat(mark)}) == [False, False]


def test_a_rows_own_meta_may_use_the_name_for_something_else(tmp_path: Path) -> None:
    row = {"messages": chat({"is_error": True}), "meta": {"tool_error": "3 of 4 calls"}}
    assert errors_of(tmp_path, row) == [True, False]


def test_a_responses_item(tmp_path: Path) -> None:
    items = [
        {"type": "function_call", "name": "weather", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "…", "status": "failed"},
        {"type": "message", "role": "assistant", "content": "done"},
    ]
    assert errors_of(tmp_path, {"input": "The weather?", "output": items}) == [True, False]


@pytest.mark.parametrize("extra", [{"is_error": True}, {"status": "error"}])
def test_an_atif_result_says_it_in_its_extra(tmp_path: Path, extra: dict[str, Any]) -> None:
    result = {"source_call_id": "c1", "content": "…", "extra": extra}
    called = {"tool_call_id": "c1", "function_name": "weather", "arguments": {}}
    steps = [
        {"source": "user", "message": "The weather?"},
        {
            "source": "agent",
            "message": "",
            "tool_calls": [called],
            "observation": {"results": [result]},
        },
        {"source": "agent", "message": "done"},
    ]
    assert errors_of(tmp_path, {"schema_version": "ATIF-v1.5", "steps": steps}) == [True, False]


def test_a_tau_bench_tool_says_error(tmp_path: Path) -> None:
    rows = chat({"content": "Error: no such city"}) + chat({"content": "An error: none"})
    row = {"task_id": 1, "reward": 0.0, "traj": rows}
    assert errors_of(tmp_path, row) == [True, False, False, False]


def test_real_tau_bench_runs() -> None:
    """31 of the 343 results say so (counted in the raw file)."""
    trajectories, _ = read_all(shared_data() / "trajectories" / "tau_bench_airline")
    turns = [turn for each in trajectories for turn in split_turns(each)]
    assert sum(map(tool_error, turns)) == 31
    assert sum(message.role == "tool" for each in trajectories for message in each.messages) == 343
