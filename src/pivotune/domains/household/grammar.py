"""How a game words things: the rules that ALFWorld calls its grammar.

A game file carries its grammar; the two that ALFWorld has published (0.3: "put X in/on Y", 0.4.2:
"move X to Y") are here as data, so that generated games need no file. The texts are those of the
original games, because a transcript has to be identical to theirs. `wording.py` turns rules into
sentences.

A rule is a list of (condition, text); the first whose condition holds is used. In a text,
`{o.name}` is a slot, `[{o.name | inreceptacle(o:object, r:receptacle)}]` a list of all that match
a query, `#look.feedback#` another rule, and `#goal#` the game's task sentence.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from pivotune.core.errors import DataError

ACTIONS: Final = (
    "closeobject",
    "cleanobject",
    "coolobject",
    "examineobject",
    "examinereceptacle",
    "gotolocation",
    "heatobject",
    "help",
    "inventory",
    "look",
    "openobject",
    "pickupobject",
    "putobject",
    "sliceobject",
    "toggleobject",
)
TASK_PREFIX: Final = "Your task is to: "
LISTING: Final = ("list_empty", "list_separator", "list_last_separator")
_TOKEN: Final = re.compile(
    r'(?P<space>\s+|#[^\n]*)|(?P<block>"""(?:.|\n)*?""")|(?P<text>"[^"]*")|(?P<mark>::|[{};])'
    r"|(?P<word>[\w/-]+)"
)

Rule = tuple[tuple[str, str], ...]


class Grammar(msgspec.Struct, frozen=True):
    """`rules` by name, and for each action its command's template and its feedback."""

    rules: dict[str, Rule]
    commands: dict[str, tuple[str, str]]


def read_grammar(text: str, where: str) -> tuple[Grammar, str]:
    """The grammar of a game file, and the task sentence that it holds.

    Only rules that some action can reach are kept. DataError names the line of a damage; what is
    missing or not understood is found by `wording.py`.
    """
    rules, commands = _read_document(text, where)
    task = ""
    if "task" in rules:
        alternatives = rules["task"]
        if len(alternatives) != 1 or not alternatives[0][1].startswith(TASK_PREFIX):
            raise DataError(
                "the grammar's task is not one sentence",
                where=where,
                got=str(alternatives),
                expected=f'"{TASK_PREFIX}…"',
            )
        task = shown(alternatives[0][1].removeprefix(TASK_PREFIX))
        rules["task"] = (("", f"{TASK_PREFIX}#goal#"),)
    starts = ["#intro#", *(feedback for _, feedback in commands.values())]
    reachable: dict[str, Rule] = {}
    waiting = [name for start in starts for name in references(start)] + list(LISTING)
    while waiting:
        name = waiting.pop()
        if name in reachable or name not in rules:
            continue  # what is missing is found where the grammar is compiled
        reachable[name] = rules[name]
        waiting += [other for _, body in rules[name] for other in references(body)]
    return Grammar(reachable, commands), task


def shown(text: str) -> str:
    """What the reference engine shows of a literal: double quotes vanish, `;|<>[]{}#` end it."""
    return re.split(r"[;|<>\[\]{}#]", text.replace('"', ""))[0]


def references(text: str) -> list[str]:
    """The rules that a text refers to."""
    return re.findall(r"#([^#]+)#", text)


def _read_document(text: str, where: str) -> tuple[dict[str, Rule], dict[str, tuple[str, str]]]:
    tokens = _tokens(text, where)
    rules: dict[str, Rule] = {}
    commands: dict[str, tuple[str, str]] = {}
    for kind, value, line in tokens:
        if kind == "word" and value == "grammar":
            _expect(tokens, "::", where)
            rules |= _read_rules(_value(tokens, "block", where), f"{where}, line {line}")
        elif kind == "word" and value == "action":
            name = _value(tokens, "word", where).lower()
            parts = _read_action(tokens, where)
            if "grammar" in parts:
                rules |= _read_rules(_without_comments(parts["grammar"]), f"{where}, line {line}")
            if name in ACTIONS:
                if "template" not in parts or "feedback" not in parts:
                    _refuse(f"action {name} lacks a template or a feedback", line, where)
                commands[name] = parts["template"], parts["feedback"]
        else:
            _refuse(f"expected 'grammar' or 'action', got {value!r}", line, where)
    return rules, commands


def _read_action(tokens: Iterator[tuple[str, str, int]], where: str) -> dict[str, str]:
    _expect(tokens, "{", where)
    parts: dict[str, str] = {}
    for kind, value, line in tokens:
        if value == "}":
            return parts
        if kind != "word" or value not in ("template", "feedback", "grammar", "pddl"):
            _refuse(f"unexpected {value!r} in an action", line, where)
        _expect(tokens, "::", where)
        block = value in ("grammar", "pddl")
        parts[value] = _value(tokens, "block" if block else "text", where)
    raise DataError("an action of the grammar is not closed", where=where, expected="}")


def _without_comments(block: str) -> str:
    return "\n".join(line for line in block.split("\n") if not line.lstrip().startswith("#"))


def _read_rules(block: str, where: str) -> dict[str, Rule]:
    try:
        raw: Any = msgspec.json.decode(block.encode())
        return {
            name: tuple((_squeeze(item.get("condition", "")), item["rhs"]) for item in items)
            for name, items in raw.items()
        }
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"damaged grammar rules: {error!r}",
            where=where,
            expected='a JSON object of lists of {"condition": …, "rhs": …}',
        ) from None


def _squeeze(condition: str) -> str:
    return " ".join(condition.split())


def _tokens(text: str, where: str) -> Iterator[tuple[str, str, int]]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse(f"unexpected {text[position : position + 20]!r}", line, where)
        kind, value = str(match.lastgroup), match.group()
        if kind != "space":
            yield kind, value, line
        line += value.count("\n")
        position = match.end()


def _expect(tokens: Iterator[tuple[str, str, int]], wanted: str, where: str) -> None:
    _, value, line = next(tokens, ("", "the end", 0))
    if value != wanted:
        _refuse(f"expected {wanted!r}, got {value!r}", line, where)


def _value(tokens: Iterator[tuple[str, str, int]], wanted: str, where: str) -> str:
    """The next token's text without its quotes; a closing semicolon is taken with it."""
    kind, value, line = next(tokens, ("", "the end", 0))
    if kind != wanted:
        _refuse(f"expected a {wanted}, got {value!r}", line, where)
    if kind == "word":
        return value
    _expect(tokens, ";", where)
    quotes = 3 if kind == "block" else 1
    return value[quotes:-quotes]


def _refuse(what: str, line: int, where: str) -> NoReturn:
    raise DataError(f"damaged grammar: {what}", where=f"{where}, line {line}")


_HERE = "atlocation(a:agent, l:location) & receptacleatlocation(r:receptacle, l:location)"
_LYING = (
    "atlocation(a:agent, l:location) & objectatlocation(o:object, l:location) & "
    "receptacleatlocation(r:receptacle, l:location) & not_inreceptacle(o:object, r:receptacle)"
)
_PLACES = "receptacleatlocation(r:receptacle, l:location)"
_OPEN = "openable(r:receptacle) & opened(r:receptacle)"
_CLOSED = "openable(r:receptacle)"
_INSIDE = "inreceptacle(o:object, r:receptacle)"
_NESTED = "inreceptacleobject(o2:object, o:object)"
_HELD = "holds(a:agent, o:object)"
_LIT = "toggleable(o:object) & istoggled(o:object)"


def _always(text: str) -> Rule:
    return (("", text),)


def _on_objects(*flags: str) -> str:
    return " & ".join(f"{flag}(o:object)" for flag in flags)


_SHARED: dict[str, Rule] = {
    "intro": _always("-= Welcome to TextWorld, ALFRED! =-\n\n#look.feedback#\n\n#task#"),
    "task": _always(f"{TASK_PREFIX}#goal#"),
    "look.feedback": (
        (_HERE, "#look-variations#. Next to it, you see #list_objects_on_the_floor#."),
        (
            "",
            "You are in the middle of a room. Looking quickly around you, "
            "you see #list_appliances#.",
        ),
    ),
    "list_appliances": ((_PLACES, f"[{{#overview(r)# | {_PLACES}}}]"), ("", "nothing")),
    "list_objects_on_the_floor": ((_LYING, f"[{{#overview(o)# | {_LYING}}}]"), ("", "nothing")),
    "list_empty": _always("nothing"),
    "list_separator": _always(", "),
    "list_last_separator": _always(", and "),
}
_SHARED_EXAMINE: Rule = (
    (_on_objects("isclean", "ishot", "issliced"), "This is a hot and clean sliced {o.name}."),
    (_on_objects("isclean", "iscool", "issliced"), "This is a cool and clean sliced {o.name}."),
    (_on_objects("isclean", "issliced"), "This is a clean sliced {o.name}."),
    (_on_objects("ishot", "issliced"), "This is a hot sliced {o.name}."),
    (_on_objects("iscool", "issliced"), "This is a cool sliced {o.name}."),
    (_on_objects("isclean", "ishot"), "This is a hot and clean {o.name}."),
    (_on_objects("isclean", "iscool"), "This is a cool and clean {o.name}."),
    (_on_objects("ishot"), "This is a hot {o.name}."),
    (_on_objects("isclean"), "This is a clean {o.name}."),
    (_on_objects("iscool"), "This is a cold {o.name}."),
    (_LIT, "This {o.name} is on."),
    (_on_objects("toggleable", "not_istoggled"), "This {o.name} is off."),
    (_on_objects("sliceable", "issliced"), "This is a sliced {o.name}."),
    ("", "There's nothing special about {o.name}."),
)


def _examine(thing: str) -> Rule:
    nested = f"This is a normal {{o.name}}. In it, you see [{{{thing} | {_NESTED}}}]."
    return ((_on_objects("isreceptacleobject"), nested), *_SHARED_EXAMINE)


_COMMANDS: dict[str, tuple[str, str]] = {
    "gotolocation": (
        "go to [{r.name | receptacleatlocation(r:receptacle, lend:location)}]",
        "#GotoLocation.feedback#",
    ),
    "openobject": ("open {r}", "#OpenObject.feedback#"),
    "closeobject": ("close {r}", "#CloseObject.feedback#"),
    "pickupobject": ("take {o} from {r}", "#PickupObject.feedback#"),
    "putobject": ("put {o} in/on {r}", "#PutObject.feedback#"),
    "inventory": ("inventory", "#inventory.feedback#"),
    "examinereceptacle": ("examine {r}", "#examineReceptacle.feedback#"),
    "examineobject": ("examine {o}", "#examineObject.feedback#"),
    "toggleobject": ("use {o}", "#toggleObject.feedback#"),
    "heatobject": ("heat {o} with {r}", "#heatObject.feedback#"),
    "cleanobject": ("clean {o} with {r}", "#cleanObject.feedback#"),
    "coolobject": ("cool {o} with {r}", "#coolObject.feedback#"),
    "sliceobject": ("slice {co} with {ko}", "#sliceObject.feedback#"),
    "look": ("look", "#look.feedback#"),
}

PUT: Final = Grammar(
    _SHARED
    | {
        "GotoLocation.feedback": _always("You arrive at {lend.name}. #examineReceptacle.feedback#"),
        "OpenObject.feedback": _always("You open {r.name}. #examineReceptacle.feedback#"),
        "CloseObject.feedback": _always("You close {r.name}."),
        "PickupObject.feedback": _always("You take {o.name} from {r.name}."),
        "PutObject.feedback": _always("You put {o.name} in/on {r.name}."),
        "heatObject.feedback": _always("You heat {o.name} using {r.name}."),
        "cleanObject.feedback": _always("You clean {o.name} using {r.name}."),
        "coolObject.feedback": _always("You cool {o.name} using {r.name}."),
        "sliceObject.feedback": _always("You sliced {co.name} with {ko.name}."),
        "toggleObject.feedback": (
            (_LIT, "You turn on {o.name}."),
            ("toggleable(o:object)", "You turn off {o.name}."),
            ("", "You don't see any switch on {o.name}."),
        ),
        "inventory.feedback": (
            ("holdsany(a:agent)", f"You are carrying: [{{o.name | {_HELD}}}]."),
            ("", "You are not carrying anything."),
        ),
        "examineReceptacle.feedback": (
            (_OPEN, f"In {{r.name}}, you see [{{o.name | {_INSIDE}}}]."),
            (_CLOSED, "{r.name} is closed."),
            ("", f"On {{r.name}}, you see [{{o.name | {_INSIDE}}}]."),
        ),
        "examineObject.feedback": _examine("o2.name"),
        "look-variations": _always(f"You are facing [{{#overview_with_state(r)# | {_HERE}}}]"),
        "overview(o)": _always("{o.name}"),
        "overview(r)": _always("{r.name or r.id}"),
        "overview_with_state(r)": _always("{r.name or r.id}#overview_state(r)#"),
        "overview_state(r)": ((_OPEN, " (is open)"), (_CLOSED, " (is closed)"), ("", "")),
    },
    _COMMANDS,
)

_HELP = """
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""
_A_THING = "o.indefinite + ' ' + o.name"

MOVE: Final = Grammar(
    _SHARED
    | {
        "GotoLocation.feedback": _always("You arrive at {r.name}. #examineReceptacle.feedback#"),
        "OpenObject.feedback": _always("You open the {r.name}. #examineReceptacle.feedback#"),
        "CloseObject.feedback": _always("You close the {r.name}."),
        "PickupObject.feedback": _always("You pick up the {o.name} from the {r.name}."),
        "PutObject.feedback": _always("You move the {o.name} to the {r.name}."),
        "heatObject.feedback": _always("You heat the {o.name} using the {r.name}."),
        "cleanObject.feedback": _always("You clean the {o.name} using the {r.name}."),
        "coolObject.feedback": _always("You cool the {o.name} using the {r.name}."),
        "sliceObject.feedback": _always("You sliced the {co.name} with the {ko.name}."),
        "toggleObject.feedback": (
            (_LIT, "You turn on the {o.name}."),
            ("toggleable(o:object)", "You turn off the {o.name}."),
            ("", "You don't see any switch on the {o.name}."),
        ),
        "inventory.feedback": (
            ("holdsany(a:agent)", f"You are carrying: [{{{_A_THING} | {_HELD}}}]."),
            ("", "You are not carrying anything."),
        ),
        "examineReceptacle.feedback": (
            (_OPEN, f"The {{r.name}} is open. In it, you see [{{{_A_THING} | {_INSIDE}}}]."),
            (_CLOSED, "The {r.name} is closed."),
            ("", f"On the {{r.name}}, you see [{{{_A_THING} | {_INSIDE}}}]."),
        ),
        "examineObject.feedback": _examine("o2.indefinite + ' ' + o2.name"),
        "look-variations": _always(f"You are facing the [{{r.name | {_HERE}}}]"),
        "overview(o)": _always("{o.indefinite} {o.name}"),
        "overview(r)": _always("{r.indefinite} {r.name or r.id}"),
        "help.feedback": _always(_HELP),
    },
    _COMMANDS
    | {
        "putobject": ("move {o} to {r}", "#PutObject.feedback#"),
        "help": ("help", "#help.feedback#"),
    },
)

GRAMMARS: Final = {"put": PUT, "move": MOVE}
