"""Runs of a hand-coded household expert: `{game, won, steps, messages}`.

The actions are plain text commands; `game` names the official game that was played.
"""

from typing import Any

from pivotune.core.types import JsonObject, Task, Trajectory
from pivotune.ingest.messages import Draft, read_tools
from pivotune.ingest.openai_chat import read_messages

_USED = {"game", "won", "steps", "messages"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    keys = {"game", "won", "messages"}
    return "has `game`, `won` and `messages`" if isinstance(row, dict) and keys <= set(row) else ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    tools = read_tools(None, draft)
    domain = draft.domain or "household"
    game = str(row["game"])
    draft.ignore(row, _USED)
    return [
        Trajectory(
            id=game,
            domain=domain,
            task=Task(game, domain, payload={"game": game}),
            tools=tools,
            messages=read_messages(row["messages"], tools, draft),
            reward=float(bool(row["won"])),
            meta={"steps": row["steps"]} if "steps" in row else {},
        )
    ]
