"""Tool schemas for traces that carry none: from a file, or inferred from the calls."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pivotune.core.errors import DataError
from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.types import JsonObject, ToolSpec, Trajectory
from pivotune.ingest.messages import Draft, RefusalError, read_tools


def load_tools(path: Path) -> tuple[ToolSpec, ...]:
    """A JSON file of tools, in OpenAI's form or flat. Raises `DataError`."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        if isinstance(value, dict) and "tools" in value:
            value = value["tools"]
        tools = read_tools(value, Draft("", "", None))
    except (OSError, UnicodeDecodeError, JsonProblemError, RefusalError) as error:
        raise DataError(
            f"tool schemas that cannot be read: {error}",
            where=str(path),
            expected='a JSON list of {"type": "function", "function": {name, parameters}}',
        ) from error
    if not tools:
        raise DataError("no tool schema in the file", where=str(path))
    return tools


def infer_tools(trajectories: Iterable[Trajectory]) -> tuple[ToolSpec, ...]:
    """Minimal schemas from every call seen: names and types of arguments.

    An argument is required when every call of the tool gives it. Rows that carry tools of their
    own contribute them instead.
    """
    declared: dict[str, ToolSpec] = {}
    calls: dict[str, list[JsonObject]] = {}
    for trajectory in trajectories:
        declared.update((tool.name, tool) for tool in trajectory.tools)
        for message in trajectory.messages:
            for call in message.tool_calls:
                if call.arguments is not None:
                    _remember(calls.setdefault(call.name, []), call.arguments)
    inferred = {name: _infer_tool(name, seen) for name, seen in calls.items()}
    return tuple((inferred | declared).values())


def _remember(seen: list[JsonObject], arguments: JsonObject) -> None:
    """Keep one call of each shape, so that memory does not grow with the traces."""
    shape = {key: _type_of(value) for key, value in arguments.items()}
    if shape not in seen:
        seen.append(shape)


def _infer_tool(name: str, shapes: list[JsonObject]) -> ToolSpec:
    properties: JsonObject = {}
    for shape in shapes:
        for key, kind in shape.items():
            types = properties.setdefault(key, {"type": []})["type"]
            if kind not in types:
                types.append(kind)
    for schema in properties.values():
        types = schema["type"]
        if "number" in types and "integer" in types:
            types.remove("integer")
        schema["type"] = types[0] if len(types) == 1 else types
    parameters: JsonObject = {"type": "object", "properties": properties}
    required = [key for key in properties if all(key in shape for shape in shapes)]
    if required:
        parameters["required"] = required
    return ToolSpec(name, "inferred from the calls in the traces", parameters)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
