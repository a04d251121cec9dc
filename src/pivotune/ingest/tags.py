"""Tool calls written as text between tags, and the messages that hold them.

<tool_call>{"name": "go", "arguments": {"to": "desk 1"}}</tool_call>
<tool_response>You arrive at desk 1.</tool_response>
<tools>[{"type": "function", …}]</tools>      in the system message
"""

import re
from collections.abc import Mapping
from typing import Any

from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.types import Message, ToolCall, ToolSpec
from pivotune.ingest.messages import Draft, RefusalError, read_call, read_tools, split_thinking

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)


def has_calls(content: str) -> bool:
    """Whether a text holds a tagged call."""
    return "<tool_call>" in content


def read_assistant(
    content: str, specs: Mapping[str, ToolSpec], draft: Draft, where: str
) -> Message:
    """An assistant's message; a call that cannot be read stays in the text, and is noted."""
    rest, thinking = split_thinking(content)
    calls: list[ToolCall] = []

    def take(match: re.Match[str]) -> str:
        read = read_tagged_calls(match[1], specs, draft, where)
        calls.extend(read)
        return "" if read else match[0]

    text = _CALL.sub(take, rest)
    return Message("assistant", text.strip() if calls else text, tuple(calls), thinking)


def read_tagged_calls(
    text: str, specs: Mapping[str, ToolSpec], draft: Draft, where: str
) -> tuple[ToolCall, ...]:
    """`{"name": …, "arguments": …}`, or a list of such, as calls; none, and a note, else."""
    try:
        value = parse_json(text)
        listed = value if isinstance(value, list) else [value]
        if listed and all(isinstance(v, dict) and isinstance(v.get("name"), str) for v in listed):
            return tuple(
                read_call(
                    each["name"],
                    each.get("arguments", each.get("parameters")),
                    "",
                    specs,
                    draft,
                    where,
                )
                for each in listed
            )
        problem = "no object with a name"
    except (JsonProblemError, RefusalError) as error:
        problem = str(error)
    draft.note("tool call in the text that cannot be read", f"{where}: {problem}")
    return ()


def read_results(content: str) -> tuple[Message, ...]:
    """Tool results of a text that holds nothing else but tagged ones; none otherwise."""
    if _RESPONSE.sub("", content).strip():
        return ()
    return tuple(Message("tool", match[1]) for match in _RESPONSE.finditer(content))


def read_system_tools(system: str, draft: Draft) -> tuple[ToolSpec, ...]:
    """Tools that the system message lists: one JSON list, or one object a line."""
    match = _TOOLS.search(system)
    if match is None or not match[1]:
        return ()
    try:
        tools = read_tools(_read_listed(match[1]), draft)
    except (JsonProblemError, RefusalError) as error:
        draft.note("tool list in the system message that cannot be read", str(error))
        return ()
    draft.note("tools read from the system message, which keeps its own list")
    return tools


def _read_listed(text: str) -> list[Any]:
    try:
        value = parse_json(text)
    except JsonProblemError:
        return [parse_json(line) for line in text.splitlines() if line.strip()]
    return value if isinstance(value, list) else [value]
