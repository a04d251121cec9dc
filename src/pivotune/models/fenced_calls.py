"""Tool calls as a fenced JSON array, the contract of the base-model harness: written and read.

    ```json
    [{"name": "go", "arguments": {"to": "desk 1"}}]
    ```

A model that was never trained to call tools is read leniently: typographic and single quotes,
trailing commas, Python's True, False and None, and missing closers are mended, calls of tools
that do not exist are dropped, and text is turned into the number, truth value or list that the
tool's schema asks for. Whatever was done is said. What cannot be mended is malformed; a reply
without a block is an answer in words.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.types import JsonObject, Message, ParseOutcome, ToolCall, ToolSpec
from pivotune.models.parse import ParsedAction

FENCE = "```"
CLOSING = f"]\n{FENCE}"
"""What ends a block: a reply is over there."""

_BLOCK = re.compile(rf"{FENCE}(?:json|tool_calls?|tool_code)?[ \t]*\n?\s*(?=[\[{{])")
_SMART = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"})
_WORDS = {"True": "true", "False": "false", "None": "null"}
_CLOSERS = {"{": "}", "[": "]"}


def format_fenced(message: Message) -> str:
    """A message as the transcript holds it: its words, then its calls in a block."""
    parts = [message.content] if message.content else []
    if message.tool_calls:
        calls = [{"name": call.name, "arguments": _said(call)} for call in message.tool_calls]
        parts.append(f"{FENCE}json\n{_list(calls)[:-1]}{CLOSING}")
    return "\n".join(parts)


def _list(calls: Sequence[JsonObject]) -> str:
    """One call a line, so that the block can be read and its closing fence be found."""
    lines = ",\n ".join(json.dumps(call, ensure_ascii=False) for call in calls)
    return f"[{lines}]"


def _said(call: ToolCall) -> Any:
    return call.arguments_text if call.arguments is None else call.arguments


def read_fenced(
    text: str,
    tools: Sequence[ToolSpec],
    *,
    finish: Literal["stop", "length"],
    expects_call: bool | None,
) -> ParsedAction:
    """Read one reply; `problem` says what was mended or is wrong."""
    whole = Message("assistant", content=text.strip())
    if finish == "length":
        return ParsedAction(whole, ParseOutcome.TRUNCATED, "the token limit cut the action")
    block = _BLOCK.search(text)
    said: list[str] = []
    calls: tuple[ToolCall, ...] = ()
    content = whole.content
    if block is not None:
        content = text[: block.start()].strip()
        try:
            calls = tuple(_read_calls(text[block.end() :], tools, said))
        except JsonProblemError as error:
            return ParsedAction(whole, ParseOutcome.MALFORMED, str(error))
    message = Message("assistant", content=content, tool_calls=calls)
    problem = f"repaired: {', '.join(dict.fromkeys(said))}" if said else ""
    if not content and not calls:
        return ParsedAction(message, ParseOutcome.EMPTY, problem or "neither text nor a call")
    if expects_call and not calls:
        return ParsedAction(message, ParseOutcome.NO_CALL, problem or "a tool call was expected")
    if expects_call is False and calls:
        return ParsedAction(message, ParseOutcome.UNEXPECTED_CALL, "a plain message was expected")
    return ParsedAction(message, ParseOutcome.OK, problem)


def _read_calls(text: str, tools: Sequence[ToolSpec], said: list[str]) -> Iterator[ToolCall]:
    """Raises `JsonProblemError` for a block that is no list of calls."""
    value = _read_json(_block(text), said)
    schemas = {tool.name: tool.parameters for tool in tools}
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise JsonProblemError("not a call: an object with name and arguments was expected")
        if item["name"] not in schemas:
            said.append(f"dropped the unknown tool {item['name'][:40]!r}")
            continue
        arguments = _arguments(item, said)
        properties = schemas[item["name"]].get("properties", {})
        fitted = {key: _fit(value, properties.get(key), said) for key, value in arguments.items()}
        yield ToolCall(item["name"], fitted, json.dumps(fitted, ensure_ascii=False))


def _block(text: str) -> str:
    """What stands before the closing fence. Strings of JSON hold no line break, so a fence at the
    beginning of a line closes even where a string has one in it."""
    block, closed, _ = text.partition(f"\n{FENCE}")
    return block if closed else text.partition(FENCE)[0]


def _arguments(item: JsonObject, said: list[str]) -> JsonObject:
    for key in ("arguments", "parameters"):
        if key in item:
            if key != "arguments":
                said.append(f"`{key}` read as `arguments`")
            value = item[key]
            if isinstance(value, str):
                value = _read_json(value, said) if value.strip() else {}
            if not isinstance(value, dict):
                raise JsonProblemError("the arguments are not a JSON object")
            return value
    raise JsonProblemError("a call without arguments")


def _read_json(text: str, said: list[str]) -> Any:
    try:
        return parse_json(text)
    except JsonProblemError:
        value = parse_json(mend_json(text))
        said.append("JSON spelled loosely")
        return value


def mend_json(text: str) -> str:
    """JSON from something close to it: quotes, commas, Python's words, missing closers."""
    out: list[str] = []
    stack: list[str] = []
    place, source = 0, text.strip().translate(_SMART)
    while place < len(source):
        character = source[place]
        if character in "\"'":
            string, place = _read_string(source, place)
            out.append(string)
            continue
        if character in _CLOSERS:
            stack.append(_CLOSERS[character])
        elif character in "}]":
            _drop_comma(out)
            if not stack or stack.pop() != character:
                break  # what follows the value is no part of it
        elif character.isalpha():
            word = re.match(r"\w+", source[place:])
            assert word is not None
            out.append(_WORDS.get(word.group(), word.group()))
            place += word.end()
            continue
        out.append(character)
        place += 1
        if not stack and character in "}]":
            break
    _drop_comma(out)
    return "".join(out) + "".join(reversed(stack))


def _drop_comma(out: list[str]) -> None:
    end = len(out)
    while end and out[end - 1].isspace():
        end -= 1
    if end and out[end - 1] == ",":
        del out[end - 1 :]


def _read_string(source: str, start: int) -> tuple[str, int]:
    """The string that opens at `start`, in double quotes, and the place behind it.

    Its end is the same quote before a comma, a colon or a closer: an apostrophe inside is none.
    """
    quote, place, inner = source[start], start + 1, []
    while place < len(source):
        character = source[place]
        if character == "\\" and place + 1 < len(source):
            pair = source[place : place + 2]
            inner.append("'" if pair == "\\'" else pair)
            place += 2
            continue
        if character == quote and re.match(r"\s*([,:}\]]|$)", source[place + 1 :]):
            return f'"{"".join(inner)}"', place + 1
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        inner.append(plain)
        place += 1
    return f'"{"".join(inner)}"', place


def _fit(value: Any, schema: Any, said: list[str]) -> Any:
    """Text as the type that the schema asks for, where it can be read as that."""
    wanted = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(value, str) or not isinstance(wanted, str) or wanted == "string":
        return value
    read = _read_as(value.strip(), wanted)
    if read is None:
        return value
    said.append(f"text read as {wanted}")
    return read


def _read_as(text: str, wanted: str) -> Any:
    try:
        if wanted == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        value = parse_json(text)
    except JsonProblemError:
        return None
    kinds: dict[str, tuple[type, ...]] = {
        "integer": (int,),
        "number": (int, float),
        "array": (list,),
        "object": (dict,),
    }
    fits = isinstance(value, kinds.get(wanted, ())) and not isinstance(value, bool)
    return value if fits else None
