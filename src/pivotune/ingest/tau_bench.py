"""tau-bench result files: `{task_id, reward, info, traj, trial}`, `traj` in OpenAI's form.

They carry no tool schemas: give them from a file, or let them be inferred from the calls. A tool
that refuses a call answers "Error: " and why; tau-bench has no other mark of it.
"""

from typing import Any

import msgspec

from pivotune.core.types import JsonObject, Message, Task, Trajectory
from pivotune.ingest.messages import Draft, note_missing_tools, read_name, read_reward, read_tools
from pivotune.ingest.openai_chat import read_messages

_USED = {"task_id", "reward", "info", "traj", "trial"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    known = isinstance(row, dict) and "task_id" in row and isinstance(row.get("traj"), list)
    return "has `task_id` and a list `traj`" if known else ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    tools = read_tools(row.get("tools"), draft)
    task = Task(f"task-{read_name(row, 'task_id')}", draft.domain or "tau_bench")
    trial = read_name(row, "trial")
    trajectory = Trajectory(
        id=f"{task.id}-trial-{trial}" if trial else task.id,
        domain=task.domain,
        task=task,
        tools=tools,
        messages=tuple(map(_mark_failed, read_messages(row["traj"], tools, draft))),
        reward=read_reward(row, draft, "reward"),
        meta={"trial": row["trial"]} if trial else {},
    )
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def _mark_failed(message: Message) -> Message:
    if message.role != "tool" or not message.content.startswith("Error: "):
        return message
    return msgspec.structs.replace(message, failed=True)
