"""From a grammar's rules to sentences about a state.

Compiles each text once into pieces; a piece maps (state, names bound to entities) to a string.
Variables carry a kind: agent, location, receptacle or object. Queries are conjunctions of
predicates; their answers come in the order of the entities' identifiers, predicate by predicate,
as the reference engine's do.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, NamedTuple, NoReturn

from pivotune.core.errors import DataError
from pivotune.domains.household.grammar import (
    ACTIONS,
    GRAMMARS,
    LISTING,
    Grammar,
    references,
)
from pivotune.domains.household.state import State

Bound = dict[str, int]
Piece = Callable[[State, Bound], str]
_Pairs = list[tuple[int, int]]

# The kinds of the variables that an action's parameters bind.
_PARAMETERS: Final = {
    "a": "agent",
    "l": "location",
    "lstart": "location",
    "lend": "location",
    "r": "receptacle",
    "o": "object",
    "co": "object",
    "ko": "object",
}
_PREDICATE: Final = re.compile(r"(\w+)\(([^()]*)\)")
_LITERAL: Final = re.compile(r'[^;|"<>\[\]{}#]+')
_MOST_RULES: Final = 1000  # in one text; ALFWorld's longest needs 9
_DEEPEST: Final = 50
_TERM: Final = re.compile(r"(\w+)(?:\.(name|indefinite|id)(?: or \1\.(?:name|id))?)?")


class Atom(NamedTuple):
    """One predicate of a query, with the names of its one or two variables."""

    predicate: str
    variables: tuple[str, ...]


class Wording:
    """All sentences of one grammar."""

    def __init__(self, grammar: Grammar) -> None:
        _check(grammar)
        self._grammar = grammar
        self._rules: dict[str, list[tuple[list[Atom], list[Piece]]]] = {}
        for name in grammar.rules:
            self._compile_rule(name)
        self._feedback = {
            action: _text(self, feedback, dict(_PARAMETERS))
            for action, (_, feedback) in grammar.commands.items()
        }
        self._opening = _text(self, "#intro#", dict(_PARAMETERS))

    def opening(self, state: State) -> str:
        """The text that starts a game: welcome, room, task."""
        return self._told(self._opening, state, {})

    def feedback(self, action: str, state: State, bound: Bound) -> str:
        """What is said after `action` has led to `state`."""
        return self._told(self._feedback[action], state, bound)

    def _told(self, pieces: list[Piece], state: State, bound: Bound) -> str:
        try:
            return _say(pieces, state, bound)
        except KeyError as error:
            raise DataError(f"the game's grammar names {error}, which is nothing here") from None

    def command(self, action: str) -> tuple[str, ...]:
        """The fixed parts of a command: ("take ", " from ", "") for `take {o} from {r}`."""
        template = self._grammar.commands[action][0]
        template = re.sub(r"\[\{(\w+)\.name \| [^{}\[\]]*\}\]", r"{\1}", template)
        parts = tuple(re.split(r"\{\w+\}", template))
        slots = re.findall(r"\{(\w+)\}", template)
        if slots != list(_SLOTS.get(action, ())) or any(sign in "".join(parts) for sign in "{}"):
            _refuse(f"the command template of {action} has other slots", template)
        return parts

    def knows(self, action: str) -> bool:
        """Does the grammar have words for the action."""
        return action in self._feedback

    def say_rule(self, name: str, state: State, bound: Bound) -> str:
        """The first alternative of a rule whose condition holds."""
        for condition, pieces in self._rules[name]:
            if not condition or next(solve(condition, state, bound), None) is not None:
                return _say(pieces, state, bound)
        raise DataError(f"no alternative of the grammar's rule {name!r} applies")

    def _compile_rule(self, name: str) -> None:
        self._rules[name] = []
        for condition, text in self._grammar.rules[name]:
            kinds = dict(_PARAMETERS)
            atoms = _query(condition, kinds) if condition else []
            self._rules[name].append((atoms, _text(self, text, kinds)))


def _check(grammar: Grammar) -> None:
    """Every action and rule has to be there, and every text has to come to an end soon."""
    missing = sorted(set(ACTIONS) - {"help"} - grammar.commands.keys())
    if missing:
        raise DataError(f"the grammar has no action {missing[0]!r}")
    sizes: dict[str, int] = {"goal": 1}  # rules that are used when one is spelt out

    def visit(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            raise DataError(f"the grammar's rule {name!r} leads back to itself")
        if name in sizes:
            return sizes[name]
        if name not in grammar.rules:
            raise DataError(f"the grammar has no rule {name!r}")
        if len(above) > _DEEPEST:
            raise DataError(f"the grammar's rule {name!r} is used by too long a chain of rules")
        below = [
            sum(visit(other, (*above, name)) for other in references(text))
            for _, text in grammar.rules[name]
        ]
        sizes[name] = 1 + max(below, default=0)
        if sizes[name] > _MOST_RULES:
            raise DataError(f"the grammar's rule {name!r} uses too many other rules")
        return sizes[name]

    starts = ["#intro#", *(feedback for _, feedback in grammar.commands.values())]
    for name in [*LISTING, *(name for start in starts for name in references(start))]:
        visit(name, ())


# Which variables a command names, in order.
_SLOTS: Final = {
    "gotolocation": ("r",),
    "openobject": ("r",),
    "closeobject": ("r",),
    "pickupobject": ("o", "r"),
    "putobject": ("o", "r"),
    "heatobject": ("o", "r"),
    "cleanobject": ("o", "r"),
    "coolobject": ("o", "r"),
    "sliceobject": ("co", "ko"),
    "toggleobject": ("o",),
    "examineobject": ("o",),
    "examinereceptacle": ("r",),
}


def wording_of(grammar: str | Grammar) -> Wording:
    """The compiled grammar; those of `GRAMMARS` are compiled once in a process."""
    return _published(grammar) if isinstance(grammar, str) else Wording(grammar)


@cache
def _published(name: str) -> Wording:
    return Wording(GRAMMARS[name])


def _say(pieces: list[Piece], state: State, bound: Bound) -> str:
    return "".join([piece(state, bound) for piece in pieces])


def _text(wording: Wording, text: str, kinds: dict[str, str]) -> list[Piece]:
    """Compile a rule's text. White space at its start is not shown; a stray sign ends it."""
    pieces: list[Piece] = []
    text = text.lstrip()
    position = 0
    while position < len(text):
        sign = text[position]
        if sign == '"':
            position += 1
        elif sign == "#":
            end = _end(text, position, "#")
            pieces.append(_rule(wording, text[position + 1 : end]))
            position = end + 1
        elif sign == "{":
            end = _end(text, position, "}")
            pieces.append(_term(text[position + 1 : end], kinds))
            position = end + 1
        elif sign == "[":
            end = _end(text, position, "]")
            pieces.append(_listing(wording, text[position + 1 : end], kinds))
            position = end + 1
        elif literal := _LITERAL.match(text, position):
            pieces.append(_literal(literal.group()))
            position = literal.end()
        else:
            break
    return pieces


def _end(text: str, start: int, sign: str) -> int:
    end = text.find(sign, start + 1)
    if end < 0:
        _refuse(f"a text lacks its closing {sign!r}", text)
    return end


def _literal(text: str) -> Piece:
    return lambda state, bound: text


def _rule(wording: Wording, name: str) -> Piece:
    if name == "goal":
        return lambda state, bound: state.world.game.task
    return lambda state, bound: wording.say_rule(name, state, bound)


def _term(expression: str, kinds: dict[str, str]) -> Piece:
    """`o.name`, `r.name or r.id`, `o.indefinite + ' ' + o.name`: a sum of names and quotes."""
    pieces = [_summand(part.strip(), kinds) for part in expression.split(" + ")]
    if len(pieces) == 1:
        return pieces[0]
    return lambda state, bound: _say(pieces, state, bound)


def _summand(part: str, kinds: dict[str, str]) -> Piece:
    if len(part) >= 2 and part[0] == part[-1] and part[0] in "'\"":
        return _literal(part[1:-1])
    match = _TERM.fullmatch(part)
    if match is None:
        _refuse("an expression that is not understood", part)
    variable, attribute = match.group(1), match.group(2)
    kind = kinds.get(variable)
    if attribute == "indefinite":
        return _literal("a")
    if kind == "object":
        return lambda state, bound: state.world.thing_names[bound[variable]]
    if kind == "receptacle":
        return lambda state, bound: state.world.receptacle_names[bound[variable]]
    if kind != "location":
        _refuse(f"a variable {variable!r} that nothing binds", part)
    return lambda state, bound: state.world.location_names[bound[variable]]


def _listing(wording: Wording, inner: str, kinds: dict[str, str]) -> Piece:
    """`[{item | query}]`: "x", "x, and y", "x, y, and z", or the word for nothing."""
    match = re.fullmatch(r"\{([^|{}]*)\|([^{}]*)\}", inner)
    if match is None:
        _refuse("a list that is not understood", inner)
    kinds = dict(kinds)
    atoms = _query(match.group(2), kinds)
    item = match.group(1).strip()
    spoken = _rule(wording, item[1:-1]) if item.startswith("#") else _term(item, kinds)

    def say(state: State, bound: Bound) -> str:
        items = [spoken(state, answer) for answer in solve(atoms, state, bound)]
        if not items:
            return wording.say_rule("list_empty", state, bound)
        if len(items) == 1:
            return items[0]
        separator = wording.say_rule("list_separator", state, bound)
        last = wording.say_rule("list_last_separator", state, bound)
        return separator.join(items[:-1]) + last + items[-1]

    return say


def _query(text: str, kinds: dict[str, str]) -> list[Atom]:
    """Parse `p(x:kind, y:kind) & …`; the kinds of its variables are added to `kinds`."""
    atoms = []
    for part in text.split("&"):
        match = _PREDICATE.fullmatch(part.strip())
        if match is None or match.group(1) not in _ARITY:
            _refuse("a condition that is not understood", part.strip())
        variables = []
        for argument in match.group(2).split(","):
            name, _, kind = argument.strip().partition(":")
            kinds[name] = kind.strip()
            variables.append(name)
        if len(variables) != _ARITY[match.group(1)]:
            _refuse("a condition with another number of arguments", part.strip())
        atoms.append(Atom(match.group(1), tuple(variables)))
    return atoms


def solve(atoms: list[Atom], state: State, bound: Bound) -> Iterator[Bound]:
    """All ways to bind the query's variables, in the reference engine's order."""
    if not atoms:
        yield bound
        return
    (predicate, variables), rest = atoms[0], atoms[1:]
    if len(variables) == 1:
        (name,) = variables
        mask = _UNARY[predicate](state)
        if name in bound:
            if mask >> bound[name] & 1:
                yield from solve(rest, state, bound)
            return
        for index in range(mask.bit_length()):
            if mask >> index & 1:
                yield from solve(rest, state, {**bound, name: index})
        return
    first, second = variables
    pairs = _BINARY[predicate](state, bound.get(first), bound.get(second))
    for x, y in pairs:
        yield from solve(rest, state, {**bound, first: x, second: y})


def _set(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _at_location(state: State, agent: int | None, place: int | None) -> _Pairs:
    return [(0, state.at)] if place is None or place == state.at else []


def _receptacle_at(state: State, r: int | None, place: int | None) -> _Pairs:
    location_of = state.world.location_of
    if r is not None:
        return [(r, location_of[r])] if place is None or place == location_of[r] else []
    if place is not None:
        return [(found, place) for found in state.world.receptacles_at[place]]
    return list(enumerate(location_of))


def _object_at(state: State, o: int | None, place: int | None) -> _Pairs:
    objects = range(len(state.spots)) if o is None else (o,)
    if place is None:
        return [(i, found) for i in objects for found in _set(state.spots[i])]
    return [(i, place) for i in objects if state.spots[i] >> place & 1]


def _among(masks: tuple[int, ...], o: int | None, r: int | None) -> _Pairs:
    """Pairs of an object and a holder, where `masks` has one mask of objects per holder."""
    if r is not None:
        mask = masks[r] if o is None else masks[r] & 1 << o
        return [(i, r) for i in _set(mask)]
    holders = range(len(masks))
    objects = _set(_union(masks)) if o is None else [o]
    return [(i, holder) for i in objects for holder in holders if masks[holder] >> i & 1]


def _union(masks: tuple[int, ...]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _holds(state: State, agent: int | None, o: int | None) -> _Pairs:
    return [(0, state.held)] if state.held >= 0 and o in (None, state.held) else []


_UNARY: Final[dict[str, Callable[[State], int]]] = {
    "holdsany": lambda state: int(state.held >= 0),
    "openable": lambda state: state.world.openable,
    "opened": lambda state: state.opened,
    "isreceptacleobject": lambda state: state.world.holds_things,
    "isclean": lambda state: state.clean,
    "ishot": lambda state: state.hot,
    "iscool": lambda state: state.cool,
    "issliced": lambda state: state.sliced,
    "sliceable": lambda state: state.world.sliceable,
    "toggleable": lambda state: state.world.toggleable,
    "istoggled": lambda state: state.toggled,
    # The reference engine knows a negation only after an action has made it true, and no action
    # takes `istoggled` away.
    "not_istoggled": lambda state: 0,
}
_BINARY: Final[dict[str, Callable[[State, int | None, int | None], _Pairs]]] = {
    "atlocation": _at_location,
    "receptacleatlocation": _receptacle_at,
    "objectatlocation": _object_at,
    "inreceptacle": lambda state, o, r: _among(state.contents, o, r),
    "not_inreceptacle": lambda state, o, r: _among(state.left, o, r),
    "inreceptacleobject": lambda state, o, outer: _among(state.world.nested, o, outer),
    "holds": _holds,
}
_ARITY: Final = {**dict.fromkeys(_UNARY, 1), **dict.fromkeys(_BINARY, 2)}


def _refuse(what: str, got: str) -> NoReturn:
    raise DataError(
        f"the game's grammar has {what}",
        got=got,
        expected="the constructs of ALFWorld's grammars 0.3 and 0.4",
    )
