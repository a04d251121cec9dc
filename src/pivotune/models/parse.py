"""From an action's text to a message, its outcome and what is wrong with it; and back.

Two spellings of a tool call are read, any number of them in a message:

    <tool_call>{"name": "go", "arguments": {"to": "desk 1"}}</tool_call>     Hermes
    <tool_call>go{"to": "desk 1"}</tool_call>                                tagged

Strict reading never repairs. Lenient reading repairs a missing last brace, a missing closing
tag, typographic quotes, raw control characters in strings and `parameters` for `arguments`, and
says so. Arguments are never replaced by an empty object. An action that is malformed or cut off
keeps its whole text as content, so that its message renders as what was said.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pivotune.core.json_text import (
    DECODER,
    MAX_DEPTH,
    JsonProblemError,
    check_depth,
    check_surrogates,
)
from pivotune.core.types import Message, ParseOutcome, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"

_NAME = re.compile(r"[^\W\d][\w.:/-]*")
_SPACE = re.compile(r"[ \t\r\n]*")
_SMART_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"})
_CALL_KEYS = ("name", "arguments", "parameters", "id")


class ParsedAction(NamedTuple):
    """`problem` says why the outcome is not OK, or what a lenient reading repaired."""

    message: Message
    outcome: ParseOutcome
    problem: str


class _MalformedError(Exception):
    """What is wrong with a call, in words."""


class _Body(NamedTuple):
    """One call as read: where its text ends, and the repairs that reading it took."""

    call: ToolCall
    end: int
    repairs: tuple[str, ...]


def parse_action(
    text: str,
    *,
    finish: Literal["stop", "length"],
    expects_call: bool | None,
    strict: bool = True,
) -> ParsedAction:
    """Read one action. `expects_call` None: a call and a plain message will both do."""
    thinking, rest, thinking_open = _split_thinking(text)
    whole = Message("assistant", content=rest.strip(), thinking=thinking)
    if finish == "length":
        return ParsedAction(whole, ParseOutcome.TRUNCATED, "the token limit cut the action")
    if thinking_open:
        return ParsedAction(whole, ParseOutcome.MALFORMED, f"{THINK_OPEN} is never closed")
    try:
        content, calls, repairs = _read_calls(rest, strict)
    except _MalformedError as error:
        return ParsedAction(whole, ParseOutcome.MALFORMED, str(error))
    message = Message("assistant", content=content, tool_calls=calls, thinking=thinking)
    problem = f"repaired: {', '.join(dict.fromkeys(repairs))}" if repairs else ""
    return judge_action(message, finish=finish, expects_call=expects_call, problem=problem)


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the texts in `stop`."""
    ends = [position for each in stop if (position := text.find(each)) >= 0]
    return text[: min(ends)] if ends else text


def judge_action(
    message: Message,
    *,
    finish: Literal["stop", "length"],
    expects_call: bool | None,
    problem: str = "",
) -> ParsedAction:
    """The outcome of an action that is a message already; `problem` is kept where it is OK."""
    if finish == "length":
        return ParsedAction(message, ParseOutcome.TRUNCATED, "the token limit cut the action")
    if broken := [call.name for call in message.tool_calls if call.arguments is None]:
        why = f"the arguments of {broken[0]} are not a JSON object"
        return ParsedAction(message, ParseOutcome.MALFORMED, why)
    if not message.content and not message.tool_calls:
        return ParsedAction(message, ParseOutcome.EMPTY, "neither text nor a call")
    if expects_call and not message.tool_calls:
        return ParsedAction(message, ParseOutcome.NO_CALL, "a tool call was expected")
    if expects_call is False and message.tool_calls:
        return ParsedAction(message, ParseOutcome.UNEXPECTED_CALL, "a plain message was expected")
    return ParsedAction(message, ParseOutcome.OK, problem)


def format_action(message: Message) -> str:
    """An action as text in the Hermes spelling: what `parse_action` reads back."""
    parts = [f"{THINK_OPEN}\n{message.thinking}\n{THINK_CLOSE}\n\n"] if message.thinking else []
    parts.append("\n".join(filter(None, [message.content, format_calls(message.tool_calls)])))
    return "".join(parts)


def format_calls(calls: Sequence[ToolCall]) -> str:
    """Tool calls in the Hermes spelling, one block each."""
    return "\n".join(
        f'{OPEN}\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, '
        f'"arguments": {arguments_json(call)}}}\n{CLOSE}'
        for call in calls
    )


def arguments_json(call: ToolCall) -> str:
    """A call's arguments as JSON text, non-ASCII characters as they are."""
    if call.arguments is None:
        return call.arguments_text or "{}"
    return json.dumps(call.arguments, ensure_ascii=False)


def _split_thinking(text: str) -> tuple[str, str, bool]:
    """Thinking, the rest, and whether a think block is left open.

    A prompt may already have opened the block: then only its end stands in the text.
    """
    start = text.lstrip()
    opened = start.startswith(THINK_OPEN)
    body = start.removeprefix(THINK_OPEN) if opened else text
    thinking, closed, rest = body.partition(THINK_CLOSE)
    call = thinking.find(OPEN)
    if closed and (opened or call < 0):
        return thinking.strip(), rest, False
    if opened:
        return body.strip(), "", True
    return "", text, False


def _read_calls(text: str, strict: bool) -> tuple[str, tuple[ToolCall, ...], tuple[str, ...]]:
    """Content around the calls, the calls, the repairs."""
    outside: list[str] = []
    calls: list[ToolCall] = []
    repairs: list[str] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        outside.append(text[position:start])
        body = _read_body(text, start + len(OPEN), strict)
        calls.append(body.call)
        repairs.extend(body.repairs)
        position = body.end
    outside.append(text[position:])
    if any(CLOSE in part for part in outside):
        raise _MalformedError(f"{CLOSE} without {OPEN}")
    content = "\n".join(filter(None, (part.strip() for part in outside)))
    return content, tuple(calls), tuple(repairs)


def _read_body(text: str, start: int, strict: bool) -> _Body:
    """The call whose text begins at `start`, after the opening tag."""
    if strict:
        return _read_call(text, start, strict=True)
    try:
        return _read_call(text, start, strict=False)
    except _MalformedError:
        close = text.find(CLOSE, start)
        inner = text[start : close if close >= 0 else len(text)]
        repaired, repairs = _repair(inner, missing_close=close < 0)
        body = _read_call(repaired + CLOSE, 0, strict=False)
        end = close + len(CLOSE) if close >= 0 else len(text)
        return _Body(body.call, end, repairs + body.repairs)


def _read_call(text: str, start: int, *, strict: bool) -> _Body:
    begin = _skip_space(text, start)
    name = _NAME.match(text, begin)
    value_at = _skip_space(text, name.end()) if name else begin
    if not text.startswith("{", value_at):
        raise _MalformedError("no JSON object in a call")
    value, end = _decode_object(text, value_at)
    close = _skip_space(text, end)
    if not text.startswith(CLOSE, close):
        raise _MalformedError(_what_follows(text, close))
    close += len(CLOSE)
    if name:
        return _Body(ToolCall(name.group(), value, text[value_at:end]), close, ())
    call, repairs = _call_from_object(text[value_at:end], value, strict=strict)
    return _Body(call, close, repairs)


def _call_from_object(
    text: str, value: dict[str, Any], *, strict: bool
) -> tuple[ToolCall, tuple[str, ...]]:
    """The call that a Hermes object spells, and the repairs it took."""
    if unknown := [key for key in value if key not in _CALL_KEYS]:
        raise _MalformedError(f"unknown key {unknown[0]!r} in a call")
    if not isinstance(name := value.get("name"), str) or not name:
        raise _MalformedError("a call without a name")
    key = "arguments"
    repairs: tuple[str, ...] = ()
    if "parameters" in value:
        if "arguments" in value or strict:
            raise _MalformedError("`parameters` in place of `arguments`")
        key, repairs = "parameters", ("`parameters` read as `arguments`",)
    elif "arguments" not in value:
        raise _MalformedError("a call without arguments")
    arguments, arguments_text = _read_arguments(value[key], _member_text(text, key))
    identifier = value.get("id", "")
    if not isinstance(identifier, str):
        raise _MalformedError("the id of a call is not a string")
    return ToolCall(name, arguments, arguments_text, identifier), repairs


def _read_arguments(value: Any, text: str) -> tuple[dict[str, Any], str]:
    """Arguments and their text; they may be spelled as an object or as its JSON text."""
    if isinstance(value, str) and value.strip().startswith("{"):
        text = value.strip()
        value, end = _decode_object(text, 0)
        if end < len(text):
            raise _MalformedError(_what_follows(text, _skip_space(text, end)))
    if not isinstance(value, dict):
        raise _MalformedError("the arguments are not a JSON object")
    return value, text


def _member_text(text: str, key: str) -> str:
    """The value of `key` as it is spelled in the text of a valid JSON object that has it."""
    position = 1
    while True:
        name, position = DECODER.raw_decode(text, _skip_space(text, position))
        start = _skip_space(text, _skip_space(text, position) + 1)
        _, position = DECODER.raw_decode(text, start)
        if name == key:
            return text[start:position]
        position = _skip_space(text, position) + 1


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _what_follows(text: str, position: int) -> str:
    if position >= len(text):
        return f"{CLOSE} is missing"
    if text.startswith("{", position):
        return "several JSON objects glued together in one call"
    return f"text after the JSON object of a call: {text[position : position + 20]!r}"


def _decode_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The JSON object that begins at `start`, and where it ends; raises what is wrong with it."""
    try:
        value, end = DECODER.raw_decode(text, start)
        check_depth(value, text.count("{", start, end) + text.count("[", start, end))
        if "\\u" in text[start:end]:
            check_surrogates(value)
    except JsonProblemError as error:
        raise _MalformedError(str(error)) from error
    except json.JSONDecodeError as error:
        raise _MalformedError(_name_json_error(error)) from error
    except RecursionError as error:
        raise _MalformedError(f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise _MalformedError(f"a number that cannot be read: {error}") from error
    assert isinstance(value, dict)
    return value, end


def _name_json_error(error: json.JSONDecodeError) -> str:
    document, position = error.doc, error.pos
    if error.msg.startswith("Invalid control character"):
        control = document[position : position + 1]
        name = "newline" if control in "\r\n" else "control character"
        return f"raw {name} inside a JSON string"
    at_end = CLOSE.startswith(document[position : position + len(CLOSE)].strip())
    if error.msg.startswith("Unterminated string"):
        return "bad JSON: a string is never closed"
    if at_end:
        return "bad JSON: a closing brace is missing"
    return f"bad JSON: {error.msg} at {document[position : position + 20]!r}"


def _repair(inner: str, *, missing_close: bool) -> tuple[str, tuple[str, ...]]:
    """Text that stands a better chance, and what was done to it."""
    repairs = [f"added {CLOSE}"] if missing_close else []
    if "“" in inner or "”" in inner:
        inner = inner.translate(_SMART_QUOTES)
        repairs.append("typographic quotes")
    closers, escaped_controls, inner = _balance(inner)
    if escaped_controls:
        repairs.append("escaped raw control characters")
    if closers:
        inner = inner.rstrip() + closers
        repairs.append(f"added {closers}")
    return inner, tuple(repairs)


def _balance(inner: str) -> tuple[str, bool, str]:
    """Missing closers, whether control characters in strings were escaped, and the text."""
    stack: list[str] = []
    out: list[str] = []
    in_string, escaped, touched = False, False, False
    for character in inner:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
            if character < " ":
                out.append(json.dumps(character)[1:-1])
                touched = True
                continue
        elif character == '"':
            in_string = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]" and stack:
            stack.pop()
        out.append(character)
    closers = "" if in_string else "".join(reversed(stack))
    return closers, touched, "".join(out)
