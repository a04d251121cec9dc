"""OpenAI chat with tools: `messages` and `tools`, and the project's own exports of that shape.

Arguments are text or an object, content is text, null, missing or a list of text parts. A row
that is a bare list of messages is read too.
"""

from typing import Any

from pivotune.core.types import JsonObject, Message, Role, Task, ToolCall, ToolSpec, Trajectory
from pivotune.ingest.messages import (
    Draft,
    RefusalError,
    check_messages,
    index_tools,
    is_marked_failed,
    known_role,
    note_missing_tools,
    read_call,
    read_name,
    read_result,
    read_reward,
    read_text,
    read_tools,
    split_thinking,
)

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
MESSAGES = ("messages", "conversations", "conversation")
_USED = {*MESSAGES, "tools", "functions", "id", "task", "task_id", "domain", "reward", "meta"}
_USED |= {"trajectory_id", "uuid", "split"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    if isinstance(row, dict):
        key = messages_key(row)
        return f"`{key}` is a list of objects with a `role`" if _is_messages(row.get(key)) else ""
    return "a list of objects with a `role`" if _is_messages(row) else ""


def messages_key(row: JsonObject) -> str:
    """Where a row has its messages: data sets on the hub also say `conversations`."""
    return next((key for key in MESSAGES if isinstance(row.get(key), list)), "messages")


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and ("role" in value[0])
    )


def convert(row: Any, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    if isinstance(row, list):
        row = {"messages": row}
    tools = read_tools(row.get("tools") or row.get("functions"), draft)
    messages = read_messages(row[messages_key(row)], tools, draft)
    name = read_name(row, "id", "trajectory_id", "uuid") or draft.name
    task = read_task(row, name, draft)
    meta = row.get("meta")
    trajectory = Trajectory(
        id=name,
        domain=task.domain,
        task=task,
        tools=tools,
        messages=messages,
        reward=read_reward(row, draft, "reward"),
        meta=meta if isinstance(meta, dict) else {},
    )
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def read_task(row: JsonObject, name: str, draft: Draft) -> Task:
    """The row's task: a whole one, its name, or the trajectory's own name."""
    task = row.get("task")
    domain = draft.domain or read_name(row, "domain")
    split = read_name(row, "split")
    if not isinstance(task, dict):
        return Task(read_name(row, "task_id", "task") or name, domain, split)
    payload = task.get("payload")
    return Task(
        id=read_name(task, "id", "task_id") or read_name(row, "task_id") or name,
        domain=domain or read_name(task, "domain"),
        split=read_name(task, "split") or split,
        payload=payload if isinstance(payload, dict) else {},
    )


def read_messages(
    rows: list[Any], tools: tuple[ToolSpec, ...], draft: Draft
) -> tuple[Message, ...]:
    """Messages of one conversation, checked. Raises `RefusalError`.

    Places are named by message, from 1, and by turn, from 0 as in turn ids.
    """
    specs = index_tools(tools)
    messages: list[Message] = []
    turn = 0
    for position, row in enumerate(rows, 1):
        messages.append(_read_message(row, specs, draft, f"message {position}, turn {turn}"))
        turn += messages[-1].role == "assistant"
    check_messages(messages, draft)
    return tuple(messages)


def _read_message(row: Any, specs: dict[str, ToolSpec], draft: Draft, where: str) -> Message:
    if not isinstance(row, dict):
        raise RefusalError("message that is not an object", f"{where}: {type(row).__name__}")
    role = known_role(row.get("role"), ROLES, where)
    if role == "tool":
        return Message(
            role,
            read_result(row.get("content"), where),
            tool_call_id=read_name(row, "tool_call_id"),
            name=read_name(row, "name"),
            failed=is_marked_failed(row),
        )
    content, thinking = read_text(row.get("content"), where)
    if role != "assistant":
        return Message(role, content, name=read_name(row, "name"))
    content = content or read_name(row, "refusal")
    if not thinking:
        thinking = read_name(row, "reasoning_content", "reasoning", "thinking")
    if not thinking:
        content, thinking = split_thinking(content)
    calls = row.get("tool_calls")
    if not calls and isinstance(row.get("function_call"), dict):
        calls = [{"function": row["function_call"]}]
    if calls is not None and not isinstance(calls, list):
        raise RefusalError("tool calls that cannot be read", f"{where}: {type(calls).__name__}")
    return Message(
        role,
        content,
        tuple(_read_call(call, specs, draft, where) for call in calls or ()),
        thinking=thinking,
    )


def _read_call(call: Any, specs: dict[str, ToolSpec], draft: Draft, where: str) -> ToolCall:
    if not isinstance(call, dict):
        raise RefusalError("tool calls that cannot be read", f"{where}: {type(call).__name__}")
    function = call.get("function")
    body = function if isinstance(function, dict) else call
    arguments = body.get("arguments")
    if arguments is None and body.get("parameters") is not None:
        draft.note("`parameters` read as `arguments`", where)
        arguments = body["parameters"]
    return read_call(body.get("name"), arguments, call.get("id"), specs, draft, where)
