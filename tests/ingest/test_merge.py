from pathlib import Path
from typing import Any

from ingest.helpers import WEATHER, call, read_rows_of
from pivotune.core.types import Message
from pivotune.ingest import split_turns

MERGED = "message merged with the one before, of the same role"
ROLES = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": "how is the weather?"},
    {"role": "assistant", "content": "I look."},
    {"role": "assistant", "content": "", "tool_calls": [call("weather", "{}", "a")]},
    {"role": "tool", "tool_call_id": "a", "content": "sun"},
    {"role": "assistant", "content": "Sun."},
    {"role": "assistant", "content": "Anything else?"},
]


def row(**keys: Any) -> dict[str, Any]:
    return {"messages": ROLES, "tools": [WEATHER], **keys}


def test_repeated_roles_stay_apart_unless_asked_for(tmp_path: Path) -> None:
    (t,), report = read_rows_of(tmp_path, row())
    assert len(t.messages) == 7
    assert list(report.notes) == ["assistant messages in a row"]


def test_repeated_roles_are_merged_and_counted(tmp_path: Path) -> None:
    (t,), report = read_rows_of(tmp_path, row(), merge=True)
    assert [m.role for m in t.messages] == ["user", "assistant", "tool", "assistant"]
    assert t.messages[0] == Message("user", "hi\n\nhow is the weather?")
    assert (t.messages[1].content, len(t.messages[1].tool_calls)) == ("I look.", 1)
    assert t.messages[3].content == "Sun.\n\nAnything else?"
    assert len(split_turns(t)) == 2
    note = report.notes[MERGED]
    assert (note.count, note.detail) == (3, t.id)


def test_calls_and_results_are_not_merged(tmp_path: Path) -> None:
    two = [call("weather", "{}", "a"), call("weather", "{}", "b")]
    messages = [
        ROLES[0],
        {"role": "assistant", "tool_calls": two},
        {"role": "tool", "tool_call_id": "a", "content": "sun"},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "assistant", "tool_calls": [call("weather", "{}", "c")]},
        {"role": "assistant", "content": "Done."},
    ]
    (t,), report = read_rows_of(tmp_path, {"messages": messages, "tools": [WEATHER]}, merge=True)
    assert len(t.messages) == 6
    assert MERGED not in report.notes


def test_a_single_step_row_keeps_its_one_candidate(tmp_path: Path) -> None:
    """The history is merged apart from the expected action."""
    items = [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "there"},
        {"role": "assistant", "content": "Hello."},
    ]
    request = {"input": items, "tools": []}
    action = {"type": "message", "content": "How can I help?"}
    nemo = {"responses_create_params": request, "expected_action": action}
    (t,), report = read_rows_of(tmp_path, nemo, merge=True)
    (turn,) = split_turns(t)
    assert [m.content for m in turn.state] == ["hi\n\nthere", "Hello."]
    assert turn.expert.content == "How can I help?"
    assert report.notes[MERGED].count == 1
