"""Harbor's Agent Trajectory Interchange Format (ATIF): `schema_version`, `agent`, `steps`.

A step's `source` is system, user or agent. An agent's step carries `message`,
`reasoning_content`, `tool_calls` and the `observation` that followed; results that name a call
are tool messages, others come from the user's side. Steps copied from an earlier trajectory are
context. Sub-agents' trajectories are not followed.
"""

from collections.abc import Mapping
from typing import Any

from pivotune.core.types import JsonObject, Message, Task, ToolSpec, Trajectory
from pivotune.ingest.messages import (
    Draft,
    RefusalError,
    check_messages,
    index_tools,
    is_marked_failed,
    note_missing_tools,
    read_call,
    read_name,
    read_reward,
    read_text,
    read_tools,
    split_thinking,
)
from pivotune.ingest.split import CONTEXT_MESSAGES

_USED = {
    "schema_version",
    "agent",
    "steps",
    "session_id",
    "trajectory_id",
    "final_metrics",
    "extra",
}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    if not isinstance(row, dict) or not isinstance(row.get("steps"), list):
        return ""
    version = str(row.get("schema_version"))
    return f"`schema_version` is {version}" if version.upper().startswith("ATIF") else ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    agent = row["agent"] if isinstance(row.get("agent"), dict) else {}
    tools = read_tools(agent.get("tool_definitions"), draft)
    specs = index_tools(tools)
    messages: list[Message] = []
    context = 0
    for position, step in enumerate(row["steps"], 1):
        where = f"step {position}"
        if not isinstance(step, dict):
            raise RefusalError("step that is not an object", where)
        messages += _read_step(step, specs, draft, where)
        if step.get("is_copied_context"):
            context = len(messages)
    check_messages(messages, draft)
    extra = row["extra"] if isinstance(row.get("extra"), dict) else {}
    meta: JsonObject = {"agent": agent["name"]} if isinstance(agent.get("name"), str) else {}
    if context:
        meta[CONTEXT_MESSAGES] = context
    if row.get("subagent_trajectories"):
        draft.note("trajectories of sub-agents not followed")
    name = read_name(row, "trajectory_id", "session_id") or draft.name
    task = Task(read_name(extra, "task", "task_id", "task_name") or name, draft.domain)
    reward = read_reward(extra, draft, "reward")
    trajectory = Trajectory(name, draft.domain, task, tools, tuple(messages), reward, meta=meta)
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def _read_step(
    step: JsonObject, specs: Mapping[str, ToolSpec], draft: Draft, where: str
) -> list[Message]:
    source = step.get("source")
    text, thinking = read_text(step.get("message"), where)
    if source in ("system", "user"):
        spoken = [Message("system" if source == "system" else "user", text)] if text else []
        return spoken + _read_results(step, set(), where)
    if source != "agent":
        raise RefusalError("unknown role", f"{where}: source {source!r}")
    thinking = read_name(step, "reasoning_content") or thinking
    if not thinking:
        text, thinking = split_thinking(text)
    calls = tuple(
        read_call(
            call.get("function_name"), call.get("arguments"), call.get("tool_call_id"), specs,
            draft, where,
        )
        for call in _objects(step.get("tool_calls"), "tool calls", where)
    )  # fmt: skip
    said = Message("assistant", text, calls, thinking)
    return [said, *_read_results(step, {call.id for call in calls}, where)]


def _read_results(step: JsonObject, calls: set[str], where: str) -> list[Message]:
    observation = step.get("observation")
    if observation is not None and not isinstance(observation, dict):
        raise RefusalError("observation that cannot be read", where)
    messages = []
    for result in _objects((observation or {}).get("results"), "observation", where):
        text = read_text(result.get("content"), where)[0]
        answered = read_name(result, "source_call_id")
        if answered and answered not in calls:
            raise RefusalError("tool result without a call", f"{where} answers {answered!r}")
        if answered:
            failed = is_marked_failed(result) or is_marked_failed(result.get("extra"))
            messages.append(Message("tool", text, tool_call_id=answered, failed=failed))
        elif text:
            messages.append(Message("user", text))
    return messages


def _objects(value: Any, what: str, where: str) -> list[JsonObject]:
    """A list of objects, or none. Raises `RefusalError` for anything else."""
    listed = [] if value is None else value
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise RefusalError(f"{what} that cannot be read", f"{where}: {type(value).__name__}")
    return listed
