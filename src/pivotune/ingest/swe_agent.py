"""SWE-agent `.traj` documents: `history`, in three styles of tool use.

    function calling   assistant messages with `tool_calls`, results with `tool_call_ids`
    thought, action    text with the command in its last fenced block
    tags               text with the command in XML tags

The last two are plain messages and stay as the model wrote them. A demonstration in the history
is context. `exit_status` says that a patch was handed in, not that it works: no reward.
"""

from typing import Any

from pivotune.core.types import JsonObject, Message, Task, Trajectory
from pivotune.ingest.messages import (
    Draft,
    RefusalError,
    check_messages,
    note_missing_tools,
    read_tools,
)
from pivotune.ingest.openai_chat import read_messages
from pivotune.ingest.split import CONTEXT_MESSAGES

_USED = {"history", "trajectory", "info", "environment", "replay_config"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    if not isinstance(row, dict):
        return ""
    history = row.get("history")
    if isinstance(history, list) and history and isinstance(history[0], dict):
        return "`history` is a list of messages" if "role" in history[0] else ""
    steps = row.get("trajectory")
    if isinstance(steps, list) and steps and isinstance(steps[0], dict):
        return "`trajectory` is a list of steps with a `response`" if "response" in steps[0] else ""
    return ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    tools = read_tools(row.get("tools"), draft)
    history = row.get("history")
    if isinstance(history, list) and history:
        rows = [_plain_message(message) for message in history]
        messages = read_messages(rows, tools, draft)
        demonstrations = [i for i, message in enumerate(history, 1) if message.get("is_demo")]
    else:
        messages = _read_steps(row["trajectory"])
        check_messages(messages, draft)
        demonstrations = []
    info = row["info"] if isinstance(row.get("info"), dict) else {}
    meta: JsonObject = {"exit_status": info["exit_status"]} if info.get("exit_status") else {}
    if demonstrations:
        meta[CONTEXT_MESSAGES] = demonstrations[-1]
    name = draft.name
    task = Task(name, draft.domain or "code")
    trajectory = Trajectory(name, task.domain, task, tools, messages, None, meta=meta)
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def _plain_message(message: Any) -> Any:
    """SWE-agent names the answered calls in a list."""
    if (
        isinstance(message, dict)
        and message.get("role") == "tool"
        and "tool_call_id" not in message
    ):
        answered = message.get("tool_call_ids") or [""]
        return message | {"tool_call_id": answered[0]}
    return message


def _read_steps(steps: list[Any]) -> tuple[Message, ...]:
    """Without a history: responses and observations in turn."""
    messages: list[Message] = []
    for position, step in enumerate(steps, 1):
        response = step.get("response") if isinstance(step, dict) else None
        if not isinstance(response, str):
            raise RefusalError("step without a response", f"step {position}")
        messages.append(Message("assistant", response))
        messages.append(Message("user", str(step.get("observation") or "")))
    return tuple(messages[:-1])
