"""Other spellings and other meanings of a recorded action, one change each.

Every kind is a function from a turn to an action, or to nothing where the kind does not apply.
Which of the two dicts a kind stands in says what a verifier ought to answer.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pivotune.core.types import JsonObject, Message, ToolCall, ToolSpec, Turn
from pivotune.verify.strings import PATH_NAMES

Kind = Callable[[Turn], Message | None]
Place = tuple[str | int, ...]

COMMAND_NAMES = frozenset({"command", "cmd", "keystrokes", "script"})

# Not every `command` is a shell's: games have commands too.
_SHELL_WORDS = (
    "cat|cd|chmod|cp|curl|df|diff|du|echo|file|find|git|grep|head|ls|make|mkdir|mv|node|npm|pip|"
    "pytest|python|python3|rm|rmdir|sed|sort|stat|tail|tar|touch|tree|uniq|wc|which"
)
_SIMPLE_COMMAND = re.compile(rf"(?:{_SHELL_WORDS})(?: +[\w./=-]+)+\n?")
_NUMBER = re.compile(r"\d{1,15}")
_EXACT = 2**53


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Scalars inside a value, with the way to each."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*place, index))
    else:
        yield place, value


def _put(value: Any, place: Place, new: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return new
    key, *rest = place
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = _put(value[key], tuple(rest), new)
    return copy


def _with_arguments(call: ToolCall, arguments: JsonObject) -> ToolCall:
    text = json.dumps(arguments, ensure_ascii=False)
    return msgspec.structs.replace(call, arguments=arguments, arguments_text=text)


def _with_calls(message: Message, *calls: ToolCall) -> Message:
    return msgspec.structs.replace(message, tool_calls=calls)


def _edit_leaf(turn: Turn, change: Callable[[Place, Any, JsonObject], Any]) -> Message | None:
    """Change the first leaf of the calls' arguments for which `change` gives a value.

    `change` gets the place, the value and the schema of the first-level argument it is in.
    """
    for position, call in enumerate(turn.expert.tool_calls):
        properties = _properties(turn, call)
        for place, value in _leaves(call.arguments or {}):
            if not place:
                continue
            schema = properties.get(str(place[0]), {}) if len(place) == 1 else {}
            new = change(place, value, schema if isinstance(schema, dict) else {})
            if new is not None:
                calls = list(turn.expert.tool_calls)
                calls[position] = _with_arguments(call, _put(call.arguments, place, new))
                return _with_calls(turn.expert, *calls)
    return None


def _spec(turn: Turn, call: ToolCall) -> ToolSpec | None:
    return next((tool for tool in turn.tools if tool.name == call.name), None)


def _properties(turn: Turn, call: ToolCall) -> JsonObject:
    spec = _spec(turn, call)
    properties = spec.parameters.get("properties") if spec else None
    return properties if isinstance(properties, dict) else {}


def _required(spec: ToolSpec | None) -> list[str]:
    names = spec.parameters.get("required") if spec else None
    return names if isinstance(names, list) else []


def _edit_first(
    turn: Turn, change: Callable[[JsonObject, JsonObject, list[str]], JsonObject | None]
) -> Message | None:
    """Change the arguments of the first call for which `change` gives some.

    `change` gets the arguments, the schema's properties and the required names.
    """
    for position, call in enumerate(turn.expert.tool_calls):
        spec = _spec(turn, call)
        arguments = change(call.arguments or {}, _properties(turn, call), _required(spec))
        if arguments is not None:
            calls = list(turn.expert.tool_calls)
            calls[position] = _with_arguments(call, arguments)
            return _with_calls(turn.expert, *calls)
    return None


# Meaning-preserving.


def number_spelling(turn: Turn) -> Message | None:
    """12 as 12.0 and the other way round."""

    def change(_: Place, value: Any, schema: JsonObject) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or "enum" in schema:
            return None
        if abs(value) >= _EXACT or not float(value).is_integer():
            return None
        return float(value) if isinstance(value, int) else int(value)

    return _edit_leaf(turn, change)


def key_order(turn: Turn) -> Message | None:
    """Arguments in the reverse order."""
    return _edit_first(
        turn, lambda given, *_: dict(reversed(given.items())) if len(given) > 1 else None
    )


def json_spacing(turn: Turn) -> Message | None:
    """The same arguments, indented."""
    calls = turn.expert.tool_calls
    if not any(call.arguments for call in calls):
        return None
    return _with_calls(
        turn.expert,
        *(
            msgspec.structs.replace(call, arguments_text=json.dumps(call.arguments, indent=1))
            for call in calls
        ),
    )


def white_space(turn: Turn) -> Message | None:
    """A space after a text argument, or after the message."""

    def change(_: Place, value: Any, schema: JsonObject) -> Any:
        return f"{value} " if isinstance(value, str) and value and "enum" not in schema else None

    if not turn.expert.tool_calls:
        return msgspec.structs.replace(turn.expert, content=turn.expert.content + "\n")
    return _edit_leaf(turn, change)


def explicit_default(turn: Turn) -> Message | None:
    """An omitted argument, given as its default."""

    def change(given: JsonObject, properties: JsonObject, _: list[str]) -> JsonObject | None:
        for key, schema in properties.items():
            if key not in given and isinstance(schema, dict) and "default" in schema:
                return {**given, key: schema["default"]}
        return None

    return _edit_first(turn, change)


def path_spelling(turn: Turn) -> Message | None:
    """A doubled slash in a path argument."""

    def change(place: Place, value: Any, _: JsonObject) -> Any:
        known = str(place[-1]) in PATH_NAMES and isinstance(value, str) and "://" not in value
        folder, slash, name = value.rpartition("/") if known else ("", "", "")
        return f"{folder}//{name}" if slash and folder else None

    return _edit_leaf(turn, change)


def quoting(turn: Turn) -> Message | None:
    """The last word of a simple shell command, quoted."""

    def change(place: Place, value: Any, _: JsonObject) -> Any:
        if not _is_command(place, value):
            return None
        command = value.rstrip("\n")
        before, _space, word = command.rpartition(" ")
        return f"{before} '{word}'{value[len(command) :]}"

    return _edit_leaf(turn, change)


def _is_command(place: Place, value: Any) -> bool:
    named = str(place[-1]) in COMMAND_NAMES and isinstance(value, str)
    return named and _SIMPLE_COMMAND.fullmatch(value) is not None


def call_order(turn: Turn) -> Message | None:
    """Several calls in the reverse order."""
    calls = turn.expert.tool_calls
    return _with_calls(turn.expert, *reversed(calls)) if len(calls) > 1 else None


# Meaning-changing.


def value(turn: Turn) -> Message | None:
    """Another number, text, truth value or member of an enumeration."""

    def change(_: Place, old: Any, schema: JsonObject) -> Any:
        members = schema.get("enum")
        if isinstance(members, list):
            return next((member for member in members if member != old), None)
        if isinstance(old, bool):
            return not old
        if isinstance(old, (int, float)):
            return -old if abs(old) > _EXACT else old + 1
        return f"{old}x" if isinstance(old, str) else None

    return _edit_leaf(turn, change)


def boolean_for_number(turn: Turn) -> Message | None:
    """`true` for 1, `false` for 0."""

    def change(_: Place, old: Any, __: JsonObject) -> Any:
        is_bit = isinstance(old, int) and not isinstance(old, bool) and old in (0, 1)
        return bool(old) if is_bit else None

    return _edit_leaf(turn, change)


def path(turn: Turn) -> Message | None:
    """A file of the same name in another folder."""

    def change(place: Place, old: Any, _: JsonObject) -> Any:
        known = str(place[-1]) in PATH_NAMES and isinstance(old, str)
        return "elsewhere/" + old.rpartition("/")[2] if known and old else None

    return _edit_leaf(turn, change)


def flag(turn: Turn) -> Message | None:
    """One more flag on a simple shell command."""

    def change(place: Place, old: Any, _: JsonObject) -> Any:
        if not _is_command(place, old):
            return None
        command = old.rstrip("\n")
        return f"{command} --force{old[len(command) :]}"

    return _edit_leaf(turn, change)


def dropped_argument(turn: Turn) -> Message | None:
    """One argument less; one that is not its default."""

    def change(given: JsonObject, properties: JsonObject, required: list[str]) -> JsonObject | None:
        for key, given_value in given.items():
            schema = properties.get(key)
            default = schema.get("default", ...) if isinstance(schema, dict) else ...
            if key in required or given_value != default:
                return {k: v for k, v in given.items() if k != key}
        return None

    return _edit_first(turn, change)


def unknown_argument(turn: Turn) -> Message | None:
    """One argument more, of a name that the tool does not have."""
    return _edit_first(turn, lambda given, *_: {**given, "no_such_argument": 1})


def wrong_tool(turn: Turn) -> Message | None:
    """The arguments given to another tool."""
    if not turn.expert.tool_calls:
        return None
    first, *rest = turn.expert.tool_calls
    others = [tool.name for tool in turn.tools if tool.name != first.name]
    name = others[0] if others else f"{first.name}_other"
    return _with_calls(turn.expert, msgspec.structs.replace(first, name=name), *rest)


def extra_call(turn: Turn) -> Message | None:
    """A further call, with another value."""
    changed = value(turn)
    if changed is None:
        return None
    added = next(
        new
        for new, old in zip(changed.tool_calls, turn.expert.tool_calls, strict=True)
        if new != old
    )
    return _with_calls(turn.expert, *turn.expert.tool_calls, added)


def duplicate(turn: Turn) -> Message | None:
    """The first call made twice."""
    calls = turn.expert.tool_calls
    return _with_calls(turn.expert, *calls, calls[0]) if calls else None


def dropped_call(turn: Turn) -> Message | None:
    """One of several calls less."""
    calls = turn.expert.tool_calls
    return _with_calls(turn.expert, *calls[1:]) if len(calls) > 1 else None


def no_call(turn: Turn) -> Message | None:
    """A message where a call was made."""
    return Message("assistant", "I will do that now.") if turn.expert.tool_calls else None


def unexpected_call(turn: Turn) -> Message | None:
    """A call where the expert spoke."""
    if turn.expert.tool_calls or not turn.tools:
        return None
    return Message("assistant", tool_calls=(ToolCall(turn.tools[0].name, {}, "{}"),))


def other_message(turn: Turn) -> Message | None:
    """Another message where the expert spoke."""
    spoke = not turn.expert.tool_calls and turn.expert.content
    return Message("assistant", "Sorry, that is not possible at all.") if spoke else None


def message_value(turn: Turn) -> Message | None:
    """The expert's message with another number, or another last word.

    Not where the action is a part of the message: a change beside it may change nothing.
    """
    text = turn.expert.content.strip()
    if turn.expert.tool_calls or not text or "```" in text or text.startswith("{"):
        return None
    numbers = list(_NUMBER.finditer(text))
    if numbers:
        last = numbers[-1]
        changed = f"{text[: last.start()]}{int(last[0]) + 1}{text[last.end() :]}"
    else:
        changed = f"{text.rpartition(' ')[0]} otherwise".strip()
    return Message("assistant", changed)


def empty(_: Turn) -> Message | None:
    """Neither text nor a call."""
    return Message("assistant")


PRESERVING: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        number_spelling,
        key_order,
        json_spacing,
        white_space,
        explicit_default,
        path_spelling,
        quoting,
        call_order,
    )
}
CHANGING: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        value,
        boolean_for_number,
        path,
        flag,
        dropped_argument,
        unknown_argument,
        wrong_tool,
        extra_call,
        duplicate,
        dropped_call,
        no_call,
        unexpected_call,
        other_message,
        message_value,
        empty,
    )
}
