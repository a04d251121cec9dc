"""Traces of the searching expert, as trajectories and as the chat rows that anybody writes.

A row is what the OpenAI API would have recorded (messages, tools, tool calls with their arguments
as text), with the task, the reward and `meta` beside it. `meta` holds what a policy must not see:

    optimal    the fewest steps from the start (the oracle knows the whole house; the expert not)
    steps      the steps that were taken
    ended      "won", "gave up" or "turns"
    mistakes   for each assistant message the kind of mistake that it is part of, "" for none
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.seeds import derive_seed
from pivotune.core.store import write_records
from pivotune.core.types import Message, Task, ToolSpec, Trajectory, content_hash
from pivotune.domains.household import oracle
from pivotune.domains.household.actions import put_template, to_message
from pivotune.domains.household.environment import (
    DOMAIN,
    EnvironmentConfig,
    HouseholdEnvironment,
    in_dialect,
)
from pivotune.domains.household.expert import ExpertConfig, SearchingExpert


def record(task: Task, expert: ExpertConfig, shown: EnvironmentConfig, seed: int) -> Trajectory:
    """One game played by the expert. The same arguments give the same trajectory."""
    environment = HouseholdEnvironment(shown)
    messages = list(environment.reset(task))
    optimal = oracle.remaining_steps(environment.state)
    put = put_template(environment.game)
    player = SearchingExpert(expert, derive_seed("household expert", task.id, seed), put)
    player.begin(environment.opening)
    mistakes: list[str] = []
    while not environment.done:
        choice = player.choose()
        if choice is None:
            break
        call_id = f"call_{len(mistakes)}"
        action = to_message(choice.command, shown.dialect, put, call_id)
        replies = environment.step(action).replies
        player.observe(choice.command, replies[0].content)
        messages += (action, *replies)
        mistakes.append(choice.mistake)
    won = environment.reward() == 1.0
    return Trajectory(
        id=f"{task.id}-{content_hash(expert, shown, seed)[:8]}",
        domain=DOMAIN,
        task=in_dialect(task, shown.dialect),
        tools=environment.tools,
        messages=tuple(messages),
        reward=environment.reward(),
        meta={
            "optimal": optimal,
            "steps": len(mistakes),
            "ended": "won" if won else "turns" if environment.done else "gave up",
            "mistakes": mistakes,
        },
    )


def write_rows(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """Write trajectories as JSON Lines of chat rows."""
    write_records(path, map(chat_row, trajectories))


def chat_row(trajectory: Trajectory) -> dict[str, Any]:
    """One trajectory as a row in the OpenAI form."""
    return {
        "id": trajectory.id,
        "domain": trajectory.domain,
        "task": msgspec.to_builtins(trajectory.task),
        "reward": trajectory.reward,
        "tools": [_chat_tool(tool) for tool in trajectory.tools],
        "messages": [_chat_message(message) for message in trajectory.messages],
        "meta": trajectory.meta,
    }


def _chat_tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _chat_message(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        row["tool_call_id"] = message.tool_call_id
        row["name"] = message.name
    return row
