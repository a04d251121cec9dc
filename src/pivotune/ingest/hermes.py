"""Hermes-style text: calls as `<tool_call>` tags in the content, results as `<tool_response>`.

Rows are `messages` of role and content, or `text` in the ChatML form.
"""

import re
from collections.abc import Mapping
from typing import Any

from pivotune.core.types import JsonObject, Message, Role, ToolSpec, Trajectory
from pivotune.ingest.messages import (
    Draft,
    check_messages,
    index_tools,
    known_role,
    note_missing_tools,
    read_name,
    read_reward,
    read_text,
    read_tools,
)
from pivotune.ingest.openai_chat import MESSAGES, ROLES, messages_key, read_task
from pivotune.ingest.tags import has_calls, read_assistant, read_results, read_system_tools

_CHATML = re.compile(r"<\|im_start\|>[ ]*(\w+)\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_USED = {*MESSAGES, "text", "tools", "id", "task", "task_id", "domain", "reward", "meta"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    if not isinstance(row, dict):
        return ""
    if isinstance(row.get("text"), str) and "<|im_start|>" in row["text"]:
        return "`text` is ChatML"
    messages = row.get(messages_key(row))
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return ""
    said = [m for m in messages if m.get("role") == "assistant"]
    tagged = any(isinstance(m.get("content"), str) and has_calls(m["content"]) for m in said)
    if tagged and not any(m.get("tool_calls") for m in said):
        return "assistant messages hold `<tool_call>` tags and no `tool_calls`"
    return ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    listed = row.get(messages_key(row))
    if isinstance(listed, list):
        said = [(m.get("role"), m) for m in listed]
    else:
        said = [(m[1], {"content": m[2]}) for m in _CHATML.finditer(row["text"])]
    texts = [
        (known_role(role, ROLES, f"message {i}"), read_text(m.get("content"), f"message {i}")[0])
        for i, (role, m) in enumerate(said, 1)
    ]
    system = "\n".join(text for role, text in texts if role == "system")
    tools = read_tools(row.get("tools"), draft) or read_system_tools(system, draft)
    specs = index_tools(tools)
    messages: list[Message] = []
    for position, (role, text) in enumerate(texts, 1):
        messages += _read_message(role, text, specs, draft, f"message {position}")
    check_messages(messages, draft)
    name = read_name(row, "id") or draft.name
    task = read_task(row, name, draft)
    meta = row["meta"] if isinstance(row.get("meta"), dict) else {}
    reward = read_reward(row, draft, "reward")
    trajectory = Trajectory(name, task.domain, task, tools, tuple(messages), reward, meta=meta)
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def _read_message(
    role: Role, text: str, specs: Mapping[str, ToolSpec], draft: Draft, where: str
) -> list[Message]:
    if role == "assistant":
        return [read_assistant(text, specs, draft, where)]
    if role in ("user", "tool") and (results := read_results(text)):
        return list(results)
    return [Message(role, text)]
