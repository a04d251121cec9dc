import json
from pathlib import Path
from typing import Any

import pytest

from ingest.helpers import WEATHER, call, read_rows_of
from pivotune.core.types import Message, ToolCall, content_hash
from pivotune.ingest import split_turns


def chat(*messages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"messages": list(messages), "tools": [WEATHER], **keys}


USER = {"role": "user", "content": "hi"}


def assistant(arguments: Any = '{"city": "Rome"}', **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call("weather", arguments)], **keys}


def only_call(trajectory: Any) -> ToolCall:
    (made,) = next(m for m in trajectory.messages if m.role == "assistant").tool_calls
    return made


def test_arguments_as_text_or_object_mean_the_same(tmp_path: Path) -> None:
    (a, b), report = read_rows_of(
        tmp_path, chat(USER, assistant('{"city": "Rome"}')), chat(USER, assistant({"city": "Rome"}))
    )
    assert (
        only_call(a)
        == only_call(b)
        == ToolCall("weather", {"city": "Rome"}, '{"city": "Rome"}', "c1")
    )
    assert not report.notes


def test_content_null_missing_and_empty_are_alike(tmp_path: Path) -> None:
    rows = [
        chat(USER, assistant(content=None)),
        chat(USER, assistant()),
        chat(USER, assistant(content="")),
    ]
    trajectories, _ = read_rows_of(tmp_path, *rows)
    assert len({content_hash(t.messages) for t in trajectories}) == 1
    assert all(len(split_turns(t)) == 1 for t in trajectories)
    assert trajectories[0].messages[1].content == ""


def test_null_padding_of_the_other_tools_keys_is_stripped_and_counted(tmp_path: Path) -> None:
    other = {
        "name": "time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    }
    padded = {"city": "Rome", "days": None, "zone": None}
    (t,), report = read_rows_of(
        tmp_path, {"messages": [USER, assistant(padded)], "tools": [WEATHER, other]}
    )
    assert only_call(t).arguments == {"city": "Rome"}
    assert json.loads(only_call(t).arguments_text) == {"city": "Rome"}
    assert report.notes["null padding stripped from arguments"].count == 2


def test_a_null_that_the_schema_allows_is_kept(tmp_path: Path) -> None:
    tool = {"name": "weather", "parameters": {"properties": {"city": {"type": ["string", "null"]}}}}
    (t,), report = read_rows_of(
        tmp_path, {"messages": [USER, assistant({"city": None})], "tools": [tool]}
    )
    assert only_call(t).arguments == {"city": None}
    assert not report.notes


def test_null_padding_inside_tool_schemas_is_stripped(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "enum": None,
        "properties": {"city": {"type": "string", "default": None}, "zone": None},
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    (t,), report = read_rows_of(tmp_path, {"messages": [USER, assistant()], "tools": [tool]})
    assert t.tools[0].parameters == {
        "type": "object",
        "properties": {"city": {"type": "string", "default": None}},
    }
    assert report.notes["null padding stripped from tool schemas"].count == 2


@pytest.mark.parametrize("empty", ["", None, "  "])
def test_empty_arguments_are_an_empty_object(tmp_path: Path, empty: Any) -> None:
    (t,), report = read_rows_of(tmp_path, chat(USER, assistant(empty)))
    assert only_call(t).arguments == {}
    assert report.notes["empty arguments read as {}"].count == 1


def test_arguments_encoded_twice_are_unpacked(tmp_path: Path) -> None:
    twice = json.dumps(json.dumps({"city": "서울"}))
    (t,), _ = read_rows_of(tmp_path, chat(USER, assistant(twice)))
    assert only_call(t).arguments == {"city": "서울"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"x": 2, "x": 1}', "duplicate key 'x'"),
        ('{"x": NaN}', "non-finite"),
        ('{"x": 1}{"y": 2}', "more text after"),
        ('{"x": 1', "line 1"),
        ("[1]", "list"),
        ('{"x": "\\ud83d"}', "surrogate"),
        ('{"x":' * 100 + "1" + "}" * 100, "nested deeper"),
    ],
)
def test_broken_arguments_stay_as_text_and_are_noted(tmp_path: Path, text: str, said: str) -> None:
    (t,), report = read_rows_of(tmp_path, chat(USER, assistant(text)))
    assert only_call(t).arguments is None
    assert only_call(t).arguments_text == text
    assert said in report.notes["arguments that are no JSON object"].detail


def test_large_integers_keep_every_digit(tmp_path: Path) -> None:
    (t,), _ = read_rows_of(
        tmp_path, chat(USER, assistant('{"city": 123456789012345678901234567890}'))
    )
    assert only_call(t).arguments == {"city": 123456789012345678901234567890}


def test_text_parts_are_joined_in_order(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "one, "}, {"type": "text", "text": "two"}]
    (t,), _ = read_rows_of(
        tmp_path, chat({"role": "user", "content": parts}, assistant(content=parts))
    )
    assert [m.content for m in t.messages] == ["one, two", "one, two"]


def test_an_image_part_is_refused_by_row_and_turn(tmp_path: Path) -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    good = chat(USER, assistant())
    result = {"role": "tool", "tool_call_id": "c1", "content": "sun"}
    trajectories, report = read_rows_of(
        tmp_path, good, chat(USER, assistant(), result, image, assistant())
    )
    assert len(trajectories) == 1
    finding = report.refused["content part that is not text"]
    assert finding.where.endswith("rows.jsonl:2")
    assert finding.detail == "message 4, turn 1: a part of type 'image_url'"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([USER, {"role": "narrator", "content": "x"}], "unknown role"),
        ([USER], "no assistant turn"),
        ([USER, {"role": "tool", "content": "x"}, assistant()], "tool result without a call"),
        (
            [USER, assistant(), {"role": "tool", "tool_call_id": "c9", "content": "x"}],
            "tool result without a call",
        ),
        (
            [USER, {"role": "assistant", "content": "ok"}, {"role": "tool", "content": "x"}],
            "tool result without a call",
        ),
        ([USER, {"role": "assistant", "content": 7}], "content is not text"),
        (
            [USER, {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}],
            "tool call without a name",
        ),
        ([USER, {"role": "assistant", "tool_calls": "x"}], "tool calls that cannot be read"),
        ([USER, "text"], "message that is not an object"),
    ],
)
def test_rows_that_are_no_chat_are_refused(
    tmp_path: Path, messages: list[Any], reason: str
) -> None:
    trajectories, report = read_rows_of(tmp_path, chat(*messages))
    assert not trajectories
    assert list(report.refused) == [reason]


def test_results_without_ids_answer_the_calls_before_them(tmp_path: Path) -> None:
    two = {
        "role": "assistant",
        "tool_calls": [call("weather", "{}", ""), call("weather", "{}", "")],
    }
    result = {"role": "tool", "content": "x"}
    trajectories, _ = read_rows_of(tmp_path, chat(USER, two, result, result))
    assert len(trajectories) == 1
    trajectories, report = read_rows_of(tmp_path, chat(USER, two, result, result, result))
    assert list(report.refused) == ["tool result without a call"]


def test_parallel_calls_are_one_turn(tmp_path: Path) -> None:
    two = {
        "role": "assistant",
        "tool_calls": [call("weather", "{}", "a"), call("weather", "{}", "b")],
    }
    results = [{"role": "tool", "tool_call_id": i, "content": i} for i in "ab"]
    (t,), _ = read_rows_of(
        tmp_path, chat(USER, two, *results, {"role": "assistant", "content": "done"})
    )
    turns = split_turns(t)
    assert [len(turn.expert.tool_calls) for turn in turns] == [2, 0]
    assert turns[1].state == t.messages[:4]


def test_turns_keep_earlier_thinking_and_have_stable_ids(tmp_path: Path) -> None:
    first = assistant(content="<think>\nwhich city?\n</think>\n\n")
    second = {"role": "assistant", "content": "sun", "reasoning_content": "read it"}
    result = {"role": "tool", "tool_call_id": "c1", "content": "sun"}
    (t,), _ = read_rows_of(tmp_path, chat(USER, first, result, second, id="run-7"))
    turns = split_turns(t)
    assert [turn.id for turn in turns] == ["run-7#0", "run-7#1"]
    assert turns[0].expert.thinking == "which city?"
    assert turns[0].expert.content == ""
    assert turns[1].state[1].thinking == "which city?"
    assert turns[1].expert.thinking == "read it"


def test_metadata_is_carried_over(tmp_path: Path) -> None:
    row = chat(USER, assistant(), id="a", task="t", domain="d", reward=1, meta={"k": 1}, other=2)
    (t,), report = read_rows_of(
        tmp_path,
        row,
    )
    assert (t.id, t.task.id, t.domain, t.reward, t.meta) == ("a", "t", "d", 1.0, {"k": 1})
    assert report.ignored_keys == {"other": 1}
    assert (report.succeeded, report.failed, report.unknown) == (1, 0, 0)


def test_an_id_used_twice_gets_a_suffix(tmp_path: Path) -> None:
    trajectories, report = read_rows_of(tmp_path, *[chat(USER, assistant(), id="a")] * 2)
    assert [t.id for t in trajectories] == ["a", "a~2"]
    assert report.notes["id used before, suffix added"].count == 1


def test_old_function_calls_are_read(tmp_path: Path) -> None:
    old = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "weather", "arguments": '{"city": "Rome"}'},
    }
    (t,), _ = read_rows_of(
        tmp_path, chat(USER, old, {"role": "function", "name": "weather", "content": "sun"})
    )
    assert only_call(t).arguments == {"city": "Rome"}
    assert t.messages[2] == Message("tool", "sun", name="weather")


def test_tools_as_json_text_as_in_columnar_storage(tmp_path: Path) -> None:
    (t,), _ = read_rows_of(
        tmp_path, {"messages": [USER, assistant()], "tools": json.dumps([WEATHER])}
    )
    assert t.tools[0].name == "weather"


def test_our_own_exports_read_back_the_same(tmp_path: Path) -> None:
    import msgspec

    from pivotune.core.types import Task, ToolSpec, Trajectory
    from pivotune.domains.household.traces import write_rows

    task = Task("game-1", "household", "train", {"seed": 3})
    tools = (ToolSpec("go", "Go.", {"type": "object", "properties": {"to": {"type": "string"}}}),)
    messages = (
        Message("system", "s"),
        Message("user", "u"),
        Message("assistant", "", (ToolCall("go", {"to": "desk 1"}, '{"to": "desk 1"}', "call_0"),)),
        Message("tool", "You arrive.", tool_call_id="call_0"),
    )
    written = Trajectory("x", "household", task, tools, messages, 1.0, meta={"steps": 1})
    write_rows(tmp_path / "own.jsonl", [written])
    from ingest.helpers import read_all

    (read,), report = read_all(tmp_path / "own.jsonl")
    assert msgspec.structs.replace(read, source=None) == written
    assert not report.notes
    assert not report.ignored_keys


def test_other_names_for_the_same_things(tmp_path: Path) -> None:
    """`conversations` with roles, ids that are numbers, a refusal in a field of its own."""
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{**call("weather", "{}"), "id": 7}]},
        {"role": "tool", "tool_call_id": 7, "content": "sun"},
        {"role": "assistant", "content": None, "refusal": "I would rather not."},
    ]
    (t,), report = read_rows_of(tmp_path, {"conversations": messages, "tools": [WEATHER]})
    assert report.files[0].why == "`conversations` is a list of objects with a `role`"
    assert t.messages[1].tool_calls[0].id == t.messages[2].tool_call_id == "7"
    assert t.messages[3].content == "I would rather not."
    assert report.ignored_keys == {}
