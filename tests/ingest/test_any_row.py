"""Rows of every dialect with one place replaced by something else: refused or read, no crash."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.helpers import WEATHER, call
from pivotune.core.types import Trajectory
from pivotune.ingest import DIALECTS, read_trajectories, split_turns

CHAT = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [call("weather", '{"city": "Rome"}')]},
    {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    {"role": "assistant", "content": "<think>a</think>sunny", "reasoning_content": "b"},
]
ITEMS = [
    {"role": "user", "content": "hi"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "sun"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
]
TAGGED = 'a <tool_call>{"name": "weather", "arguments": {}}</tool_call>'
STEP = {
    "source": "agent",
    "message": "m",
    "tool_calls": [{"tool_call_id": "c", "function_name": "weather", "arguments": {}}],
    "observation": {"results": [{"source_call_id": "c", "content": "sun"}]},
}
ROWS: dict[str, dict[str, Any]] = {
    "household_expert": {"game": "g", "won": True, "steps": 1, "messages": CHAT},
    "openai_chat": {
        "id": "a", "task": {"id": "t"}, "tools": [WEATHER], "messages": CHAT,
        "reward": 1, "meta": {},
    },
    "openai_responses": {
        "input": ITEMS[:1], "output": ITEMS[1:], "tools": [WEATHER], "instructions": "i",
    },
    "nemo_gym": {
        "responses_create_params": {"input": ITEMS, "tools": [WEATHER]},
        "response": {"output": ITEMS[1:]},
        "expected_action": {"type": "function_call_batch", "calls": [ITEMS[2]]},
        "agent_ref": {"name": "a"},
    },
    "tau_bench": {"task_id": 1, "trial": 0, "reward": 0.0, "info": {}, "traj": CHAT},
    "swe_agent": {"history": CHAT, "trajectory": [], "info": {"exit_status": "s"}},
    "atif": {
        "schema_version": "ATIF-v1.5", "agent": {"name": "a"},
        "steps": [{"source": "user", "message": "u"}, STEP],
    },
    "sharegpt": {
        "conversations": [
            {"from": "system", "value": "<tools>{}</tools>"}, {"from": "human", "value": "u"},
            {"from": "gpt", "value": TAGGED},
        ],
        "tools": "[]",
    },
    "hermes": {
        "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": TAGGED}],
        "tools": [],
    },
    "react_text": {"text": "q\nThought 1: t\nAction 1: a\nObservation 1: o\n", "status": "correct"},
}  # fmt: skip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)


def replace_somewhere(draw: Any, value: Any) -> Any:
    """A copy of the value with one place inside it, or the whole, replaced."""
    places = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    if not places or draw(st.integers(0, 3)) == 0:
        return draw(JSON)
    key, inner = draw(st.sampled_from(places))
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = replace_somewhere(draw, inner)
    return copy


def test_there_is_a_row_of_every_dialect(tmp_path: Path) -> None:
    assert ROWS.keys() == DIALECTS.keys()
    for name, row in ROWS.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(row))
        reader = read_trajectories(path)
        assert len(list(reader)) == 1, (name, reader.report.lines())
        assert reader.report.files[0].dialect == name


@pytest.mark.parametrize("forced", [False, True])
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_row_is_read_or_refused(
    tmp_path: Path, forced: bool, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(ROWS)))
    row = replace_somewhere(data.draw, ROWS[name])
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(ROWS[name]) + "\n" + json.dumps(row))
    reader = read_trajectories(path, dialect=name if forced else None)
    trajectories = list(reader)
    assert len(trajectories) + reader.report.rows_refused == 2
    assert trajectories
    for trajectory in trajectories:
        again = msgspec.json.decode(msgspec.json.encode(trajectory), type=Trajectory)
        assert len(split_turns(again)) == len(split_turns(trajectory))
