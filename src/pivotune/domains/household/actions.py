"""Commands as tool calls and back, in two dialects.

"act" offers one tool whose argument is a command as the game words it; "typed" offers one tool
for each kind of command. Both are read whichever is offered: the dialect only decides what the
tools are and how an expert's command is written.

    go to desk 1           act(command="go to desk 1")    go_to(receptacle="desk 1")
    move mug 1 to shelf 2  act(command="move mug 1 …")    put(object="mug 1", receptacle="shelf 2")

What the game calls putting is its own affair (`put_template`): the typed tool is always `put`.
"""

import json
import re
from typing import Final, Literal

import msgspec

from pivotune.core.types import Message, ToolCall, ToolSpec
from pivotune.domains.household.game import Game
from pivotune.domains.household.grammar import GRAMMARS

Dialect = Literal["act", "typed"]

_TYPED: Final[dict[str, tuple[str, str]]] = {  # tool -> command template, description
    "go_to": ("go to {receptacle}", "Walk to a receptacle."),
    "open": ("open {receptacle}", "Open the receptacle in front of you."),
    "close": ("close {receptacle}", "Close the receptacle in front of you."),
    "take": ("take {object} from {receptacle}", "Take an object; your hands must be free."),
    "put": ("", "Put the object that you hold in or on a receptacle."),
    "heat": ("heat {object} with {receptacle}", "Heat the object that you hold."),
    "cool": ("cool {object} with {receptacle}", "Cool the object that you hold."),
    "clean": ("clean {object} with {receptacle}", "Clean the object that you hold."),
    "slice": ("slice {object} with {knife}", "Slice an object with a knife that you hold."),
    "use": ("use {object}", "Switch a lamp on."),
    "examine": ("examine {target}", "Look closely at an object or a receptacle."),
    "look": ("look", "Look around."),
    "inventory": ("inventory", "See what you hold."),
}
_SLOT: Final = re.compile(r"{(\w+)}")
_TEXT: Final = {"type": "string"}


def _object_schema(names: list[str]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": dict.fromkeys(names, _TEXT),
        "required": names,
        "additionalProperties": False,
    }


TOOLS: Final[dict[Dialect, tuple[ToolSpec, ...]]] = {
    "act": (
        ToolSpec(
            name="act",
            description="Do one thing in the house, worded as a command.",
            parameters=_object_schema(["command"]),
        ),
    ),
    "typed": tuple(
        ToolSpec(
            name=name,
            description=description,
            parameters=_object_schema(
                ["object", "receptacle"] if name == "put" else _SLOT.findall(template)
            ),
        )
        for name, (template, description) in _TYPED.items()
    ),
}


class ActionRead(msgspec.Struct, frozen=True):
    """A command, or else a problem in words (exactly one is not empty)."""

    command: str = ""
    problem: str = ""


def put_template(game: Game) -> str:
    """How the game words putting: "move {object} to {receptacle}" or the older "put … in/on …"."""
    grammar = GRAMMARS[game.grammar] if isinstance(game.grammar, str) else game.grammar
    template, _ = grammar.commands["putobject"]
    return template.replace("{o}", "{object}").replace("{r}", "{receptacle}")


def to_command(message: Message, put: str) -> ActionRead:
    """The command that an assistant message means; `put` is the game's wording of putting."""
    if len(message.tool_calls) != 1:
        problem = "one call at a time" if message.tool_calls else "call a tool"
        return ActionRead(problem=problem)
    call = message.tool_calls[0]
    if call.name == "act":
        slots, template = ["command"], "{command}"
    elif call.name in _TYPED:
        template = put if call.name == "put" else _TYPED[call.name][0]
        slots = _SLOT.findall(template)
    else:
        return ActionRead(problem=f"there is no tool {call.name!r}")
    return _fill(call, template, slots)


def _fill(call: ToolCall, template: str, slots: list[str]) -> ActionRead:
    given = call.arguments
    if given is None:
        return ActionRead(problem="the arguments are not a JSON object")
    if set(given) != set(slots) or not all(isinstance(value, str) for value in given.values()):
        wanted = ", ".join(slots) or "no arguments"
        return ActionRead(problem=f"{call.name} takes {wanted} (text)")
    command = template.format(**given).strip()
    return ActionRead(command=command) if command else ActionRead(problem="the command is empty")


def to_message(command: str, dialect: Dialect, put: str, call_id: str = "") -> Message:
    """A command as an assistant message with one call.

    A command that no typed tool can say (nonsense, or `help`) is written as a call of `look`
    with the command as an argument that the tool does not take: it is an error there, too.
    """
    name, arguments = ("act", {"command": command})
    if dialect == "typed":
        name, arguments = _typed_call(command, put)
    text = json.dumps(arguments, ensure_ascii=False)
    call = ToolCall(name=name, arguments=dict(arguments), arguments_text=text, id=call_id)
    return Message(role="assistant", tool_calls=(call,))


def _typed_call(command: str, put: str) -> tuple[str, dict[str, str]]:
    for name, (template, _) in _TYPED.items():
        match = _pattern(put if name == "put" else template).fullmatch(command)
        if match:
            return name, match.groupdict()
    return "look", {"command": command}


def _pattern(template: str) -> re.Pattern[str]:
    parts = _SLOT.split(template)
    slots = [f"(?P<{part}>.+)" if i % 2 else re.escape(part) for i, part in enumerate(parts)]
    return re.compile("".join(slots))
