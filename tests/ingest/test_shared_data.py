"""Real traces, counted a second time here from the raw files, without the project's readers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import shared_data
from ingest.helpers import read_all
from pivotune.ingest import split_turns
from pivotune.verify import ToolCallVerifier, as_completion

Row = dict[str, Any]


def raw_rows(path: Path) -> list[Row]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".traj":
        return [json.loads(text)]
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def count_assistant(key: str) -> Callable[[Row], int]:
    return lambda row: sum(message["role"] == "assistant" for message in row[key])


def count_react(row: Row) -> int:
    actions = len(re.findall(r"^Action \d+:", row["text"], re.MULTILINE))
    return actions or len(re.findall(r"^>", row["text"], re.MULTILINE))


def count_nemo(row: Row) -> int:
    """One for a single-step row; else the runs of the assistant's items that hold something."""
    answer = row.get("expected_answer") or ""
    if "expected_action" in row or answer.startswith("{"):
        return 1
    letters = "".join(map(item_letter, row["response"]["output"]))
    return sum("f" in run for run in re.findall(r"[fe]+", letters))


def item_letter(item: Row) -> str:
    """o: not the assistant's; e: the assistant's, but empty; f: with something in it."""
    if item["type"] == "function_call_output" or item.get("role") not in (None, "assistant"):
        return "o"
    parts = item.get("content") or item.get("summary") or []
    empty = item["type"] != "function_call" and not any(part.get("text") for part in parts)
    return "e" if empty else "f"


FOLDERS: dict[str, tuple[str, Callable[[Row], int]]] = {
    "alfworld_expert": ("household_expert", count_assistant("messages")),
    "tau_bench_airline": ("tau_bench", count_assistant("traj")),
    "swe_agent": ("swe_agent", count_assistant("history")),
    "react_text": ("react_text", count_react),
    "responses_api": ("nemo_gym", count_nemo),
}


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_every_file_imports_whole(folder: str) -> None:
    dialect, count = FOLDERS[folder]
    files = sorted(f for f in (shared_data() / "trajectories" / folder).iterdir() if f.is_file())
    assert files
    for path in files:
        rows = raw_rows(path)
        trajectories, report = read_all(path)
        assert report.files[0].dialect == dialect, path.name
        assert not report.refused, path.name
        assert len(trajectories) == len(rows), path.name
        assert report.turns == sum(map(count, rows)), path.name
        turns = [turn for trajectory in trajectories for turn in split_turns(trajectory)]
        assert len({turn.id for turn in turns}) == len(turns) == report.turns


def test_the_sums_over_all_of_it() -> None:
    _, report = read_all(shared_data() / "trajectories")
    assert (report.trajectories, report.turns) == (230, 2178)
    assert not report.refused


def test_tau_bench_says_that_schemas_are_missing_and_most_runs_failed() -> None:
    path = shared_data() / "trajectories" / "tau_bench_airline"
    trajectories, report = read_all(path)
    assert (report.succeeded, report.failed, report.unknown) == (6, 42, 0)
    assert report.notes["calls without tool schemas"].count == sum(
        any(m.tool_calls for m in t.messages) for t in trajectories
    )
    assert "6 of 48 succeeded" in "\n".join(report.lines())
    assert len({t.task.id for t in trajectories}) == 12
    inferred, report = read_all(path, tools="infer")
    assert "calls without tool schemas" not in report.notes
    names = {call.name for t in trajectories for m in t.messages for call in m.tool_calls}
    assert {tool.name for tool in inferred[0].tools} == names
    details = next(tool for tool in inferred[0].tools if tool.name == "get_user_details")
    assert details.parameters == {
        "type": "object",
        "properties": {"user_id": {"type": "string"}},
        "required": ["user_id"],
    }


def test_outcomes_of_the_question_runs() -> None:
    _, report = read_all(shared_data() / "trajectories" / "react_text" / "hotpotqa.jsonl")
    assert (report.succeeded, report.failed) == (25, 37)


def test_every_expert_action_of_the_public_rows_scores_1() -> None:
    verifier = ToolCallVerifier()
    trajectories, _ = read_all(shared_data() / "trajectories" / "responses_api")
    turns = [turn for trajectory in trajectories for turn in split_turns(trajectory)]
    verdicts = [verifier.verify(turn, as_completion(turn.expert), None) for turn in turns]
    assert [v.reason for v in verdicts if v.reward != 1.0] == []


def test_single_step_rows_keep_the_scored_sample() -> None:
    name = "single_step_tool_use_with_argument_comparison__example_rollouts.jsonl"
    trajectories, _ = read_all(shared_data() / "trajectories" / "responses_api" / name)
    rewards = [
        row["reward"] for row in raw_rows(shared_data() / "trajectories" / "responses_api" / name)
    ]
    assert [t.meta["sampled_reward"] for t in trajectories] == rewards
    assert all(t.reward is None and t.meta["sampled"] for t in trajectories)
