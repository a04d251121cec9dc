"""The base-model harness: a conversation as a transcript, for models without a chat template.

    ## System
    (the system message, the tools as Python stubs, how to call them)

    ## User
    put a mug on the desk

    ## Assistant
    ```json
    [{"name": "go", "arguments": {"to": "desk 1"}}]
    ```

A prompt ends in the assistant's heading. A reply ends at the next heading or the closing fence;
see `fenced_calls` for how it is read. Models that were trained on a chat template do worse under
it, so which of the two was used is named wherever scores are shown.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from pivotune.core.errors import TemplateError
from pivotune.core.types import JsonObject, Message, ToolSpec
from pivotune.models.chat import ChatFormat, TemplateAbilities
from pivotune.models.fenced_calls import CLOSING, format_fenced, read_fenced
from pivotune.models.parse import ParsedAction

HEADINGS = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}
ASSISTANT = f"## {HEADINGS['assistant']}\n"
CONTRACT = """\
To call tools, answer with a fenced JSON array of calls:
```json
[{"name": "tool_name", "arguments": {"argument": "value"}}]
```
The result comes under the next heading. An answer without such a block is final."""

_NAMES = "|".join(HEADINGS.values())
_HEADING_LINE = re.compile(rf"^(## (?:{_NAMES}))[ \t]*$", re.MULTILINE)
_CUT = re.compile(rf"(?=^## (?:{_NAMES})\n)|(?<=^## Assistant\n)", re.MULTILINE)
_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


class TranscriptFormat(ChatFormat):
    """The harness in the shape of a chat format: it renders, encodes and reads back.

    Prompts are encoded heading by heading and replies on their own, so that a reply's ids are
    those that sampling it would have recorded.
    """

    def __init__(self, tokenizer: Any, *, more_stop_ids: Sequence[int] = ()) -> None:
        # Nothing of the chat template that the base class would look for.
        eos = tokenizer.eos_token_id
        if eos is None and not more_stop_ids:
            raise TemplateError(
                "nothing ends a reply: the tokenizer has no EOS token",
                where=str(getattr(tokenizer, "name_or_path", "") or "tokenizer"),
                fix="set eos_token in the tokenizer's configuration",
            )
        self.tokenizer = tokenizer
        self.thinking = "drop"
        self.abilities = TemplateAbilities("object", True, True, True, reasoning=False)
        self._encode_piece = lru_cache(1 << 14)(self._encode_whole)
        self._cut = _CUT
        self.turn_end_id = int(eos) if eos is not None else int(more_stop_ids[0])
        self.stop_ids = tuple(dict.fromkeys((self.turn_end_id, *more_stop_ids)))
        self.findings = (
            "base-model harness: transcript with headings, tools as Python stubs, calls as a "
            "fenced JSON array, read leniently; a reply ends at the next heading or the closing "
            "fence",
            "thinking: left out",
        )

    @property
    def name(self) -> str:
        return "the base-model harness"

    @property
    def stop(self) -> tuple[str, ...]:
        return (CLOSING, *(f"\n## {name}" for name in HEADINGS.values()))

    def parse(
        self,
        text: str,
        tools: Sequence[ToolSpec],
        *,
        finish: Literal["stop", "length"],
        expects_call: bool | None,
    ) -> ParsedAction:
        heading = _HEADING_LINE.search(text)
        said = text[: heading.start()] if heading else text
        return read_fenced(said, tools, finish=finish, expects_call=expects_call)

    def render_text(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, for_action: bool = True
    ) -> str:
        parts = [_system(messages, tools)]
        parts += [
            f"## {HEADINGS[message.role]}\n{_body(message)}\n\n"
            for i, message in enumerate(messages)
            if not (i == 0 and message.role == "system")
        ]
        return "".join(parts) + (ASSISTANT if for_action else "")

    def render_action(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], action: Message
    ) -> tuple[list[int], list[int]]:
        ids = list(self._encode_piece(_body(action)))
        ends = bool(action.tool_calls)  # by the closing fence; words need a token that ends them
        return self.render(messages, tools), ids if ends else [*ids, self.turn_end_id]


def _system(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    own = messages[0].content if messages and messages[0].role == "system" else ""
    parts = [_escape(own)] if own else []
    if tools:
        stubs = "\n\n".join(stub(tool) for tool in tools)
        parts += ["You can call these tools:", f"```python\n{stubs}\n```", CONTRACT]
    return f"## {HEADINGS['system']}\n" + "\n\n".join(parts) + "\n\n" if parts else ""


def _body(message: Message) -> str:
    return _escape(format_fenced(message))


def _escape(text: str) -> str:
    """A line that looks like a heading is none: an observation cannot speak for somebody."""
    return _HEADING_LINE.sub(r" \1", text)


def stub(tool: ToolSpec) -> str:
    """A tool as a Python function with a docstring and no body."""
    properties = tool.parameters.get("properties")
    known: JsonObject = properties if isinstance(properties, dict) else {}
    required = tool.parameters.get("required")
    needed = set(required) if isinstance(required, list) else set()
    ordered = sorted(known, key=lambda name: name not in needed)  # stable: required ones first
    arguments = ", ".join(_argument(name, known[name], name in needed) for name in ordered)
    told = [f"    {name}: {text}" for name in ordered if (text := _describe(known[name]))]
    lines = [tool.description.strip() or tool.name]
    if told:
        lines += ["", "Arguments:", *told]
    body = "\n".join(f"    {line}".rstrip() for line in "\n".join(lines).splitlines())
    return f'def {tool.name}({arguments}):\n    """{body.strip()}\n    """'


def _argument(name: str, schema: Any, needed: bool) -> str:
    kind = _kind(schema)
    if needed:
        return f"{name}: {kind}"
    default = schema.get("default") if isinstance(schema, dict) else None
    return f"{name}: {kind} = {default!r}"


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "object"
    if isinstance(values := schema.get("enum"), list):
        return f"Literal[{', '.join(map(repr, values))}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(str(each), "object") for each in kind)
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list[{_kind(schema['items'])}]"
    return _TYPES.get(str(kind), "object")


def _describe(schema: Any) -> str:
    text = schema.get("description", "") if isinstance(schema, dict) else ""
    return " ".join(text.split()) if isinstance(text, str) else ""
