"""ShareGPT: `conversations` of `{from, value}`, with calls as turns of their own or as tags.

    human, user · gpt, assistant, model, chatgpt · system · function_call · observation, tool, …

The value of a `function_call` turn is `{"name": …, "arguments": …}`, or a list of such.
"""

from collections.abc import Mapping
from typing import Any

from pivotune.core.types import JsonObject, Message, Task, ToolSpec, Trajectory
from pivotune.ingest.messages import (
    Draft,
    RefusalError,
    check_messages,
    index_tools,
    note_missing_tools,
    read_name,
    read_reward,
    read_text,
    read_tools,
)
from pivotune.ingest.tags import (
    read_assistant,
    read_results,
    read_system_tools,
    read_tagged_calls,
)

_USER = ("human", "user")
_ASSISTANT = ("gpt", "assistant", "model", "chatgpt", "bing", "bard")
_RESULT = ("observation", "tool", "function_response", "function", "tool_response")
_CALL = ("function_call", "tool_call")
_USED = {"conversations", "system", "tools", "id", "task", "reward"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    turns = row.get("conversations") if isinstance(row, dict) else None
    if isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]:
        return "`conversations` is a list of objects with `from`"
    return ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    system = row["system"] if isinstance(row.get("system"), str) else ""
    listed = [t.get("value") for t in row["conversations"][:1] if t.get("from") == "system"]
    tools = read_tools(row.get("tools"), draft)
    tools = tools or read_system_tools(system or str(listed[0] if listed else ""), draft)
    specs = index_tools(tools)
    messages = [Message("system", system)] if system else []
    for position, turn in enumerate(row["conversations"], 1):
        messages += _read_turn(turn, specs, draft, f"turn {position} of the conversation")
    check_messages(messages, draft)
    name = read_name(row, "id") or draft.name
    trajectory = Trajectory(
        id=name,
        domain=draft.domain,
        task=Task(read_name(row, "task") or name, draft.domain),
        tools=tools,
        messages=tuple(messages),
        reward=read_reward(row, draft, "reward"),
    )
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def _read_turn(turn: Any, specs: Mapping[str, ToolSpec], draft: Draft, where: str) -> list[Message]:
    if not isinstance(turn, dict):
        raise RefusalError("message that is not an object", where)
    role = str(turn.get("from")).lower()
    text = read_text(turn.get("value"), where)[0]
    if role == "system":
        return [Message("system", text)]
    if role in _USER:
        return list(read_results(text)) or [Message("user", text)]
    if role in _RESULT:
        return list(read_results(text)) or [Message("tool", text)]
    if role in _CALL:
        calls = read_tagged_calls(text, specs, draft, where)
        return [Message("assistant", "" if calls else text, calls)]
    if role in _ASSISTANT:
        return [read_assistant(text, specs, draft, where)]
    raise RefusalError("unknown role", f"{where}: {role!r}")
