import json
from pathlib import Path
from typing import Any

import pytest

from ingest.helpers import WEATHER, read_all, read_rows_of, write_jsonl
from pivotune.core.types import Message, ToolCall, Trajectory
from pivotune.ingest import detect_dialect, split_turns
from pivotune.ingest.nemo_gym import to_row

ROME = {"city": "Rome"}
ROME_TEXT = '{"city": "Rome"}'
TAGGED = f'<tool_call>\n{{"name": "weather", "arguments": {ROME_TEXT}}}\n</tool_call>'
USER_ITEM = {"role": "user", "content": "hi"}


def made_call(call_id: str = "") -> ToolCall:
    return ToolCall("weather", ROME, ROME_TEXT, call_id)


def fc(call_id: str = "c1", **keys: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": "weather",
        "arguments": ROME_TEXT,
        **keys,
    }


def out(text: str, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def spoken(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }


THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}


def only(tmp_path: Path, row: Any) -> tuple[Trajectory, str]:
    (trajectory,), report = read_rows_of(tmp_path, row)
    return trajectory, report.files[0].dialect


def test_responses_items_become_turns(tmp_path: Path) -> None:
    row = {
        "object": "response",
        "input": "hi",
        "instructions": "be kind",
        "tools": [WEATHER["function"]],
        "output": [
            THOUGHT,
            spoken("let me look"),
            fc("a"),
            fc("b"),
            out("sun", "a"),
            out("rain", "b"),
            spoken("done"),
        ],
    }
    t, dialect = only(tmp_path, row)
    assert dialect == "openai_responses"
    assert t.messages == (
        Message("system", "be kind"),
        Message("user", "hi"),
        Message("assistant", "let me look", (made_call("a"), made_call("b")), thinking="hm"),
        Message("tool", "sun", tool_call_id="a"),
        Message("tool", "rain", tool_call_id="b"),
        Message("assistant", "done"),
    )
    assert t.tools[0].name == "weather"


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([{"type": "web_search_call"}], "item of unknown type"),
        ([out("x", "nothing")], "tool result without a call"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "content part that is not text"),
        ([fc(name="")], "tool call without a name"),
        ([], "no assistant turn"),
        (["x"], "item that is not an object"),
    ],
)
def test_items_that_are_refused(tmp_path: Path, items: list[Any], reason: str) -> None:
    _, report = read_rows_of(tmp_path, {"input": [USER_ITEM], "output": items})
    assert list(report.refused) == [reason]


def nemo(**keys: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {
            "input": [USER_ITEM, fc(), out("sun")],
            "tools": [WEATHER["function"]],
        },
        **keys,
    }


def test_a_single_step_row_has_one_candidate(tmp_path: Path) -> None:
    t, dialect = only(tmp_path, nemo(expected_action=fc(call_id="")))
    assert dialect == "nemo_gym"
    (turn,) = split_turns(t)
    assert turn.index == 1
    assert turn.expert.tool_calls == (made_call("call_0"),)
    assert len(turn.state) == 3


def test_a_batch_and_a_message_are_expected_actions_too(tmp_path: Path) -> None:
    batch = {"type": "function_call_batch", "calls": [fc("a"), fc("b")]}
    t, _ = only(tmp_path, nemo(expected_action=batch))
    assert len(split_turns(t)[0].expert.tool_calls) == 2
    t, _ = only(tmp_path, nemo(expected_action={"type": "message", "content": "bye"}))
    assert split_turns(t)[0].expert == Message("assistant", "bye")
    _, report = read_rows_of(tmp_path, nemo(expected_action={"type": "dance"}))
    assert list(report.refused) == ["expected action of unknown type"]


def test_empty_expected_arguments_are_an_empty_object(tmp_path: Path) -> None:
    """Never an exception in the middle of a run: the row is read and its expert scores 1."""
    action = {"type": "function_call", "name": "weather", "arguments": ""}
    trajectories, report = read_rows_of(tmp_path, nemo(expected_action=action))
    (turn,) = split_turns(trajectories[0])
    assert turn.expert.tool_calls[0].arguments == {}
    assert report.notes["empty arguments read as {}"].count == 1


def test_an_answer_is_an_action_only_when_it_is_a_reply(tmp_path: Path) -> None:
    reply = '{"commands": []}'
    t, _ = only(tmp_path, nemo(expected_answer=reply))
    assert split_turns(t)[0].expert.content == reply
    _, report = read_rows_of(tmp_path, nemo(expected_answer="42"))
    assert list(report.refused) == ["no assistant turn"]
    t, _ = only(
        tmp_path, nemo(expected_answer="42", response={"output": [spoken("42")]}, reward=1.0)
    )
    assert t.reward == 1.0
    assert len(split_turns(t)) == 2


def test_single_step_rows_go_both_ways(tmp_path: Path) -> None:
    t, _ = only(
        tmp_path,
        nemo(
            expected_action={"type": "function_call_batch", "calls": [fc("call_0"), fc("call_1")]}
        ),
    )
    (turn,) = split_turns(t)
    again, _ = only(tmp_path, to_row(t, turn.expert, turn.state))
    assert again.messages == t.messages
    assert again.tools == t.tools
    assert split_turns(again)[0].expert == turn.expert


def test_sharegpt_with_tags(tmp_path: Path) -> None:
    system = f"You have tools.\n<tools>\n{json.dumps(WEATHER)}\n</tools>"
    row = {
        "conversations": [
            {"from": "system", "value": system},
            {"from": "human", "value": "hi"},
            {"from": "gpt", "value": f"<think>\nhm\n</think>\n\nlooking\n{TAGGED}"},
            {"from": "tool", "value": "<tool_response>\nsun\n</tool_response>"},
            {"from": "gpt", "value": "sunny"},
        ]
    }
    t, dialect = only(tmp_path, row)
    assert dialect == "sharegpt"
    assert t.tools[0].name == "weather"
    assert t.messages[2:] == (
        Message("assistant", "looking", (made_call(),), thinking="hm"),
        Message("tool", "sun"),
        Message("assistant", "sunny"),
    )


def test_sharegpt_with_turns_for_calls(tmp_path: Path) -> None:
    row = {
        "conversations": [
            {"from": "human", "value": "hi"},
            {"from": "function_call", "value": json.dumps({"name": "weather", "arguments": ROME})},
            {"from": "observation", "value": "sun"},
            {"from": "gpt", "value": "sunny"},
        ],
        "system": "s",
        "tools": json.dumps([WEATHER["function"]]),
    }
    t, _ = only(tmp_path, row)
    assert [m.role for m in t.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert t.messages[2].tool_calls == (made_call(),)
    two = json.dumps([{"name": "weather", "arguments": ROME}] * 2)
    row["conversations"][1]["value"] = two
    t, _ = only(tmp_path, row)
    assert t.messages[2].tool_calls == (made_call(), made_call())
    _, report = read_rows_of(tmp_path, {"conversations": [{"from": "martian", "value": "x"}]})
    assert list(report.refused) == ["unknown role"]


def test_a_tag_that_cannot_be_read_stays_text(tmp_path: Path) -> None:
    bad = '<tool_call>{"name": "weather", "arguments": {</tool_call>'
    row = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": bad}]}
    (t,), report = read_rows_of(tmp_path, row)
    assert t.messages[1] == Message("assistant", bad)
    assert report.notes["tool call in the text that cannot be read"].count == 1


def test_hermes_messages_and_chatml(tmp_path: Path) -> None:
    result = "<tool_response>\nsun\n</tool_response>"
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": TAGGED},
        {"role": "user", "content": result},
        {"role": "assistant", "content": "sunny"},
    ]
    t, dialect = only(tmp_path, {"messages": messages, "tools": [WEATHER]})
    assert dialect == "hermes"
    assert [m.role for m in t.messages] == ["user", "assistant", "tool", "assistant"]
    assert t.messages[1].tool_calls == (made_call(),)
    other, dialect = only(tmp_path, {"conversations": messages, "tools": [WEATHER]})
    assert (dialect, other.messages) == ("hermes", t.messages)
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    again, dialect = only(tmp_path, {"text": text})
    assert dialect == "hermes"
    assert again.messages == t.messages


def test_swe_agent_demonstrations_are_context(tmp_path: Path) -> None:
    history = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "demo", "is_demo": True},
        {"role": "user", "content": "demo result", "is_demo": True},
        {"role": "user", "content": "the issue"},
        {"role": "assistant", "content": "look\n```\nls\n```", "action": "ls", "thought": "look"},
    ]
    path = tmp_path / "run.traj"
    path.write_text(
        json.dumps(
            {"history": history, "trajectory": [], "info": {"exit_status": "submitted"}}, indent=1
        )
    )
    (t,), report = read_all(path)
    assert report.files[0].dialect == "swe_agent"
    assert [turn.expert.content for turn in split_turns(t)] == ["look\n```\nls\n```"]
    assert t.meta["exit_status"] == "submitted"
    assert t.reward is None


def test_swe_agent_without_a_history(tmp_path: Path) -> None:
    t, dialect = only(
        tmp_path,
        {
            "trajectory": [
                {"response": "a", "observation": "b"},
                {"response": "c", "observation": "d"},
            ]
        },
    )
    assert dialect == "swe_agent"
    assert [(m.role, m.content) for m in t.messages] == [
        ("assistant", "a"),
        ("user", "b"),
        ("assistant", "c"),
    ]


def test_react_steps_and_prompts(tmp_path: Path) -> None:
    text = "Question: q\nThought 1: t\nAction 1: Search[x]\nObservation 1: o\n"
    text += "Thought 2: u\nAction 2: Finish[y]"
    t, dialect = only(tmp_path, {"text": text, "status": "correct"})
    assert dialect == "react_text"
    assert [(m.role, m.content) for m in t.messages] == [
        ("user", "Question: q"),
        ("assistant", "Thought 1: t\nAction 1: Search[x]"),
        ("user", "Observation 1: o"),
        ("assistant", "Thought 2: u\nAction 2: Finish[y]"),
    ]
    assert t.reward == 1.0
    (tmp_path / "run.txt").write_text(
        "Your task is to: x\r\n> think: y\r\nOK.\r\n> go to desk 1\r\nYou arrive.\r\n"
    )
    (t,), _ = read_all(tmp_path / "run.txt")
    assert [m.content for m in t.messages] == [
        "Your task is to: x",
        "think: y",
        "OK.",
        "go to desk 1",
        "You arrive.",
    ]


def test_atif(tmp_path: Path) -> None:
    row = {
        "schema_version": "ATIF-v1.6",
        "session_id": "s1",
        "agent": {"name": "a", "version": "1", "tool_definitions": [WEATHER]},
        "steps": [
            {"step_id": 1, "source": "user", "message": "hi"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "looking",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"tool_call_id": "c1", "function_name": "weather", "arguments": ROME}
                ],
                "observation": {"results": [{"source_call_id": "c1", "content": "sun"}]},
            },
            {"step_id": 3, "source": "agent", "message": [{"type": "text", "text": "sunny"}]},
        ],
    }
    t, dialect = only(tmp_path, row)
    assert dialect == "atif"
    assert t.id == "s1"
    assert t.messages[1:] == (
        Message("assistant", "looking", (made_call("c1"),), thinking="hm"),
        Message("tool", "sun", tool_call_id="c1"),
        Message("assistant", "sunny"),
    )
    for key, value, reason in (
        ("tool_calls", "x", "tool calls that cannot be read"),
        ("tool_calls", [None], "tool calls that cannot be read"),
        ("observation", "x", "observation that cannot be read"),
        ("observation", {"results": ["x"]}, "observation that cannot be read"),
        ("source", "ghost", "unknown role"),
    ):
        changed = {**row, "steps": [*row["steps"][:1], {**row["steps"][1], key: value}]}
        _, report = read_rows_of(tmp_path, changed)
        assert list(report.refused) == [reason]


def test_detection_explains_itself_and_can_be_overridden(tmp_path: Path) -> None:
    row = {"messages": [USER_ITEM, {"role": "assistant", "content": TAGGED}]}
    assert detect_dialect(row) == (
        "hermes",
        "assistant messages hold `<tool_call>` tags and no `tool_calls`",
    )
    path = write_jsonl(tmp_path / "a.jsonl", [row])
    (t,), report = read_all(path, dialect="openai_chat")
    assert t.messages[1].content == TAGGED
    assert report.files[0].why == "named by the user"
    _, report = read_all(path, dialect="swe_agent")
    assert list(report.refused) == ["row that is not swe_agent"]


def test_tools_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [WEATHER]}))
    row = {
        "task_id": 1,
        "trial": 0,
        "reward": 1.0,
        "traj": [USER_ITEM, {"role": "assistant", "content": "x"}],
    }
    (t,), _ = read_rows_of(tmp_path, row, tools=tmp_path / "tools.json")
    assert t.tools[0].name == "weather"
    assert t.id == "task-1-trial-0"
