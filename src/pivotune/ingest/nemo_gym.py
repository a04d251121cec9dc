"""NeMo-Gym rows: rollouts (`response`), and single-step rows with the action that is expected.

A single-step row is a history and one action, `expected_action`, or a harness's JSON reply as
`expected_answer`. Only that action is a candidate. Where such a row also has a response, it is a
scored sample of some policy: it is kept in `meta["sampled"]` with its `sampled_reward`, so that
verdicts can be compared.
"""

import json
from typing import Any

import msgspec

from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.types import JsonObject, Message, Task, ToolSpec, Trajectory
from pivotune.ingest.messages import (
    Draft,
    RefusalError,
    check_messages,
    index_tools,
    note_missing_tools,
    read_call,
    read_name,
    read_reward,
    read_text,
    read_tools,
)
from pivotune.ingest.openai_responses import read_input, read_items
from pivotune.ingest.split import CONTEXT_MESSAGES

_USED = {
    "responses_create_params", "response", "reward", "expected_action", "expected_answer", "uuid",
    "id", "agent_ref", "instance_id", "example_id", "_ng_task_index", "_ng_rollout_index",
    "metadata", "category", "pivot_tags",
}  # fmt: skip
_KEPT_AS_META = ("category", "metadata", "pivot_tags")


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    known = isinstance(row, dict) and isinstance(row.get("responses_create_params"), dict)
    return "has `responses_create_params`" if known else ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    request = row["responses_create_params"]
    response = row["response"] if isinstance(row.get("response"), dict) else {}
    tools = read_tools(request.get("tools") or response.get("tools"), draft)
    history = read_items(read_input(request), tools, draft)
    output = response.get("output") or []
    expected = _read_expected(row, tools, draft)
    reward = read_reward(row, draft, "reward")
    meta = {key: row[key] for key in _KEPT_AS_META if row.get(key) is not None}
    if expected is not None:
        messages = (*history, expected)
        meta[CONTEXT_MESSAGES] = len(history)
        if output:
            sampled = read_items(output, tools, draft)
            meta |= {"sampled": msgspec.to_builtins(sampled), "sampled_reward": reward}
        reward = None
    elif output:
        messages = read_items([*read_input(request), *output], tools, draft)
    else:
        raise RefusalError("no assistant turn", "neither a response nor an expected action")
    check_messages(messages, draft)
    name = _name(row, draft)
    task = Task(_task_name(row) or name, draft.domain or _agent(row))
    trajectory = Trajectory(name, task.domain, task, tools, messages, reward, meta=meta)
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def _read_expected(row: JsonObject, tools: tuple[ToolSpec, ...], draft: Draft) -> Message | None:
    action = row.get("expected_action")
    if isinstance(action, dict):
        return _read_action(action, tools, draft)
    answer = row.get("expected_answer")
    return Message("assistant", answer) if isinstance(answer, str) and _is_reply(answer) else None


def _read_action(action: JsonObject, tools: tuple[ToolSpec, ...], draft: Draft) -> Message:
    kind = action.get("type")
    if kind == "message":
        return Message("assistant", read_text(action.get("content"), "expected action")[0])
    calls = action.get("calls") if kind == "function_call_batch" else [action]
    if kind not in ("function_call", "function_call_batch") or not isinstance(calls, list):
        raise RefusalError("expected action of unknown type", repr(kind))
    specs = index_tools(tools)
    return Message(
        "assistant",
        tool_calls=tuple(
            read_call(call.get("name"), call.get("arguments"), call.get("call_id") or f"call_{i}",
                      specs, draft, "expected action")
            for i, call in enumerate(calls)
        ),
    )  # fmt: skip


def _is_reply(answer: str) -> bool:
    """A harness's reply is a JSON object; other answers are the gold of a whole task."""
    try:
        return isinstance(parse_json(answer), dict)
    except JsonProblemError:
        return False


def _task_name(row: JsonObject) -> str:
    name = read_name(row, "uuid", "id", "instance_id", "example_id")
    return name or read_name(row, "_ng_task_index")


def _name(row: JsonObject, draft: Draft) -> str:
    """Several rollouts of one task differ by their index."""
    name = read_name(row, "uuid", "id", "instance_id", "example_id")
    rollout = read_name(row, "_ng_rollout_index")
    if name and rollout:
        return f"{name}/{rollout}"
    return name or draft.name


def _agent(row: JsonObject) -> str:
    agent = row.get("agent_ref")
    return read_name(agent, "name") if isinstance(agent, dict) else ""


def to_row(trajectory: Trajectory, expert: Message, state: tuple[Message, ...]) -> JsonObject:
    """One turn as a single-step row: the way back, for export."""
    if expert.tool_calls:
        calls = [_call_item(call.name, call.arguments_text) for call in expert.tool_calls]
        batch = {"type": "function_call_batch", "calls": calls}
        action: JsonObject = calls[0] if len(calls) == 1 else batch
    else:
        action = {"type": "message", "content": expert.content}
    return {
        "responses_create_params": {
            "input": [item for message in state for item in _to_items(message)],
            "tools": [_tool_item(tool) for tool in trajectory.tools],
            "parallel_tool_calls": len(expert.tool_calls) > 1,
        },
        "expected_action": action,
    }


def _call_item(name: str, arguments: str, call_id: str = "") -> JsonObject:
    item = {"type": "function_call", "name": name, "arguments": arguments}
    return item | ({"call_id": call_id} if call_id else {})


def _tool_item(tool: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


def _to_items(message: Message) -> list[JsonObject]:
    if message.role == "tool":
        call_id = message.tool_call_id
        return [{"type": "function_call_output", "call_id": call_id, "output": message.content}]
    if message.role != "assistant":
        return [{"type": "message", "role": message.role, "content": message.content}]
    items: list[JsonObject] = []
    if message.thinking:
        summary = [{"type": "summary_text", "text": message.thinking}]
        items.append({"type": "reasoning", "summary": summary})
    if message.content:
        parts = [{"type": "output_text", "text": message.content}]
        items.append({"type": "message", "role": "assistant", "content": parts})
    for call in message.tool_calls:
        text = call.arguments_text or json.dumps(call.arguments, ensure_ascii=False)
        items.append(_call_item(call.name, text, call.id))
    return items
