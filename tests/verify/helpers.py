"""Turns and completions in few words."""

import json
from typing import Any

from pivotune.core.types import Completion, Message, ParseOutcome, Task, ToolCall, ToolSpec, Turn
from pivotune.verify import as_completion


def calls(*made: tuple[str, Any]) -> Message:
    return Message(
        "assistant",
        tool_calls=tuple(
            ToolCall(name, arguments, json.dumps(arguments)) for name, arguments in made
        ),
    )


def say(content: str) -> Message:
    return Message("assistant", content)


def tool(name: str = "f", /, required: tuple[str, ...] = (), **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, "", schema)


def turn(expert: Message, *tools: ToolSpec) -> Turn:
    return Turn("t#0", "t", Task("t", ""), 0, (Message("user", "u"),), tools, expert)


def broken(outcome: ParseOutcome, problem: str) -> Completion:
    return Completion((), (), (), say("{"), outcome, "stop", 1.0, "p", "{", problem)


def reward(verifier: Any, expert: Message, actual: Message, *tools: ToolSpec) -> float | None:
    verdict = verifier.verify(turn(expert, *tools), as_completion(actual), None)
    return verdict.reward
