"""The parts every dialect is made of: text, thinking, tool calls, tool schemas, refusals, notes.

A `RefusalError` leaves a row out under a named reason. A note records a change that was made to a
row that is kept (null padding stripped, doubly encoded arguments unpacked) or a doubt about it.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pivotune.core.json_text import JsonProblemError, check_depth, parse_json
from pivotune.core.types import JsonObject, Message, Role, ToolCall, ToolSpec, Trajectory

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_THINKING_PARTS = {"thinking": "thinking", "reasoning": "text"}
_NULL_IS_A_VALUE = frozenset({"default", "const"})


class RefusalError(Exception):
    """A row that gives no trajectory; `reason` is counted, `detail` shown for the first."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Draft:
    """What a dialect is given besides the row: names to fall back on, and where notes go."""

    def __init__(self, name: str, domain: str, tools: tuple[ToolSpec, ...] | None) -> None:
        self.name = name
        self.domain = domain
        self.tools = tools
        self.notes: dict[str, tuple[int, str]] = {}
        self.ignored: Counter[str] = Counter()

    def note(self, reason: str, detail: str = "", count: int = 1) -> None:
        before, first = self.notes.get(reason, (0, detail))
        self.notes[reason] = (before + count, first)

    def ignore(self, row: Mapping[str, Any], used: Iterable[str]) -> None:
        """Say which keys of a row are not carried over."""
        self.ignored.update(row.keys() - set(used))


def read_text(content: Any, where: str) -> tuple[str, str]:
    """Content as text, and the thinking among its parts; null and missing are empty.

    A list of text parts is joined in order without anything between; any other part is refused.
    """
    if content is None:
        return "", ""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, Sequence):
        raise RefusalError("content is not text", f"{where}: {type(content).__name__}")
    text: list[str] = []
    thinking: list[str] = []
    for part in content:
        if isinstance(part, str):
            text.append(part)
            continue
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind in _TEXT_PARTS:
            text.append(part.get(_TEXT_PARTS[kind]) or "")
        elif kind in _THINKING_PARTS:
            thinking.append(part.get(_THINKING_PARTS[kind]) or "")
        else:
            raise RefusalError("content part that is not text", f"{where}: a part of type {kind!r}")
    return "".join(text), "".join(thinking)


def read_result(content: Any, where: str) -> str:
    """A tool's result as text; an object that is no content part is written as JSON."""
    if isinstance(content, Mapping) and "type" not in content:
        return json.dumps(content, ensure_ascii=False)
    return read_text(content, where)[0]


def is_marked_failed(result: Any) -> bool:
    """Whether a tool's result is marked as an error, by the names that chat formats have for it."""
    return isinstance(result, Mapping) and (
        result.get("is_error") is True
        or result.get("isError") is True
        or result.get("status") in ("error", "failed")
    )


def split_thinking(content: str) -> tuple[str, str]:
    """Content without a leading closed think block, and what the block holds."""
    if THINK_CLOSE not in content:
        return content, ""
    start = content.lstrip()
    if not start.startswith(THINK_OPEN):
        return content, ""
    thinking, closed, rest = start.removeprefix(THINK_OPEN).partition(THINK_CLOSE)
    return (rest.lstrip("\n"), thinking.strip("\n")) if closed else (content, "")


def read_call(
    name: Any, arguments: Any, call_id: Any, specs: Mapping[str, ToolSpec], draft: Draft, where: str
) -> ToolCall:
    """One tool call; `arguments` is text or an object, and both forms are kept.

    Arguments that are no JSON object stay as text with `arguments` None, and are noted.
    """
    if not isinstance(name, str) or not name:
        raise RefusalError("tool call without a name", where)
    parsed, text = _read_arguments(arguments, draft, f"{where}: {name}")
    if parsed is not None and name in specs:
        stripped = strip_padding(parsed, specs[name].parameters)
        if stripped:
            draft.note("null padding stripped from arguments", f"{where}: {name}", stripped)
            text = json.dumps(parsed, ensure_ascii=False)
    return ToolCall(name, parsed, text, read_name({"id": call_id}, "id"))


def _read_arguments(arguments: Any, draft: Draft, where: str) -> tuple[JsonObject | None, str]:
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        draft.note("empty arguments read as {}", where)
        return {}, "{}"
    if not isinstance(arguments, str):
        try:
            check_depth(arguments)
            text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except (JsonProblemError, ValueError, TypeError) as error:
            draft.note("arguments that are no JSON object", f"{where}: {error}")
            return None, repr(arguments)[:2000]
        return _only_object(arguments, text, draft, where)
    try:
        value = parse_json(arguments)
        if isinstance(value, str) and isinstance(inner := parse_json(value), dict):
            draft.note("arguments encoded twice, unpacked", where)
            return inner, value
    except JsonProblemError as error:
        draft.note("arguments that are no JSON object", f"{where}: {error}")
        return None, arguments
    return _only_object(value, arguments, draft, where)


def _only_object(value: Any, text: str, draft: Draft, where: str) -> tuple[JsonObject | None, str]:
    if isinstance(value, dict):
        return value, text
    draft.note("arguments that are no JSON object", f"{where}: {type(value).__name__}")
    return None, text


def strip_padding(arguments: JsonObject, schema: Mapping[str, Any]) -> int:
    """Remove, in place, null values that only columnar storage can have put there; how many.

    These are keys that the schema does not know, and optional ones that it does not let be null.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return 0
    required = schema.get("required") or ()
    stripped = 0
    for key, value in list(arguments.items()):
        field = properties.get(key)
        if value is None:
            optional = isinstance(field, Mapping) and key not in required and not _nullable(field)
            if optional or (key not in properties and not schema.get("additionalProperties")):
                del arguments[key]
                stripped += 1
        elif isinstance(field, Mapping):
            stripped += _strip_inside(value, field)
    return stripped


def _strip_inside(value: Any, schema: Mapping[str, Any]) -> int:
    if isinstance(value, dict):
        return strip_padding(value, schema)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        return sum(_strip_inside(item, items) for item in value)
    return 0


def _nullable(schema: Mapping[str, Any]) -> bool:
    """Whether null may be meant: also where the schema does not say a type at all."""
    kind = schema.get("type")
    if kind is None:
        return True
    allowed = kind if isinstance(kind, list) else [kind]
    return "null" in allowed or bool(schema.get("nullable")) or None in (schema.get("enum") or ())


def read_tools(tools: Any, draft: Draft) -> tuple[ToolSpec, ...]:
    """Tool schemas: nested under `function` or flat; a JSON string of them is read too."""
    if draft.tools is not None:
        return draft.tools
    if isinstance(tools, str):
        try:
            tools = parse_json(tools) if tools.strip() else None
        except JsonProblemError as error:
            raise RefusalError("tools that cannot be read", str(error)) from error
    if tools is None:
        return ()
    if isinstance(tools, Mapping):
        tools = [tools]
    if not isinstance(tools, Sequence):
        raise RefusalError("tools that cannot be read", f"a {type(tools).__name__}")
    return tuple(_read_tool(tool, draft) for tool in tools)


def _read_tool(tool: Any, draft: Draft) -> ToolSpec:
    body = tool.get("function") if isinstance(tool, Mapping) else None
    body = body if isinstance(body, Mapping) else tool
    if not isinstance(body, Mapping) or not isinstance(body.get("name"), str):
        raise RefusalError("tools that cannot be read", "a tool without a name")
    parameters = body.get("parameters") or body.get("input_schema") or body.get("inputSchema") or {}
    if not isinstance(parameters, Mapping):
        raise RefusalError("tools that cannot be read", f"{body['name']}: parameters are no schema")
    description = body.get("description") or ""
    if not isinstance(description, str):
        raise RefusalError("tools that cannot be read", f"{body['name']}: a description is text")
    try:
        check_depth(parameters)
    except JsonProblemError as error:
        raise RefusalError("tools that cannot be read", f"{body['name']}: {error}") from error
    schema, stripped = _without_nulls(dict(parameters))
    if stripped:
        draft.note("null padding stripped from tool schemas", body["name"], stripped)
    return ToolSpec(body["name"], description, schema)


def _without_nulls(schema: JsonObject) -> tuple[JsonObject, int]:
    """A schema without null keywords and properties, which columnar storage adds; how many."""
    kept: JsonObject = {}
    stripped = 0
    for key, value in schema.items():
        if value is None and key not in _NULL_IS_A_VALUE:
            stripped += 1
        elif isinstance(value, dict) and key not in _NULL_IS_A_VALUE:
            kept[key], inside = _without_nulls(value)
            stripped += inside
        else:
            kept[key] = value
    return kept, stripped


def index_tools(tools: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    """By name; of two tools with one name the later."""
    return {tool.name: tool for tool in tools}


def check_messages(messages: Sequence[Message], draft: Draft) -> None:
    """Refuse what no chat can be: a tool result that answers no call, no assistant turn."""
    known: set[str] = set()
    open_calls = 0
    for position, message in enumerate(messages, 1):
        if message.role == "assistant":
            if position > 1 and messages[position - 2].role == "assistant":
                draft.note("assistant messages in a row", f"message {position}")
            known.update(call.id for call in message.tool_calls if call.id)
            open_calls = len(message.tool_calls)
        elif message.role == "tool":
            if message.tool_call_id not in known and open_calls <= 0:
                raise RefusalError("tool result without a call", f"message {position}")
            if message.tool_call_id and known and message.tool_call_id not in known:
                raise RefusalError(
                    "tool result without a call",
                    f"message {position} answers {message.tool_call_id!r}",
                )
            open_calls -= 1
    if not any(message.role == "assistant" for message in messages):
        raise RefusalError("no assistant turn", f"{len(messages)} messages")


def read_reward(row: Mapping[str, Any], draft: Draft, *keys: str) -> float | None:
    """The first of the keys that holds a number or a Boolean; None where there is none."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, (bool, int, float)):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
            draft.note("reward that is not finite, read as not recorded", key)
    return None


def read_name(row: Mapping[str, Any], *keys: str) -> str:
    """The first of the keys that holds a text or an integer, as text."""
    for key in keys:
        value = row.get(key)
        if value is None:
            continue
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return ""


def note_missing_tools(trajectory: Trajectory, draft: Draft) -> None:
    """Calls without schemas can only be compared by value: say so."""
    if not trajectory.tools and any(message.tool_calls for message in trajectory.messages):
        draft.note("calls without tool schemas", "give them from a file, or let them be inferred")


def known_role(role: Any, names: Mapping[str, Role], where: str) -> Role:
    """Our name of a role. Raises `RefusalError` for one that the dialect does not have."""
    if not isinstance(role, str) or role not in names:
        raise RefusalError("unknown role", f"{where}: {role!r}")
    return names[role]
