"""Official game files: `game.tw-pddl`, a JSON object of PDDL rules, PDDL problem and grammar."""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final, Literal

import msgspec

from pivotune.core.errors import DataError
from pivotune.domains.household.game import (
    Condition,
    Game,
    Goal,
    Receptacle,
    TaskType,
    Thing,
    Treatment,
    check,
)
from pivotune.domains.household.grammar import GRAMMARS, Grammar, read_grammar
from pivotune.domains.household.pddl import Node, read_expression, read_rules

_KINDS: Final = ("agent", "location", "receptacle", "object", "rtype", "otype")
_SIGNATURES: Final = {
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "objectatlocation": ("object", "location"),
    "openable": ("receptacle",),
    "opened": ("receptacle",),
    "inreceptacle": ("object", "receptacle"),
    "isreceptacleobject": ("object",),
    "inreceptacleobject": ("object", "object"),
    "receptacletype": ("receptacle", "rtype"),
    "cancontain": ("rtype", "otype"),
    "objecttype": ("object", "otype"),
    "isclean": ("object",),
    "cleanable": ("object",),
    "ishot": ("object",),
    "heatable": ("object",),
    "iscool": ("object",),
    "coolable": ("object",),
    "pickupable": ("object",),
    "toggleable": ("object",),
    "istoggled": ("object",),
    "sliceable": ("object",),
    "issliced": ("object",),
    # No action's precondition, no goal and no text asks for these.
    "ison": ("object",),
    "moveable": ("object",),
    "isreceptacleobjectfull": ("object",),
    "wasinreceptacle": ("object", "receptacle"),
    "full": ("receptacle",),
}
CONDITION_PREDICATES: Final[dict[str, Condition]] = {
    "isclean": "clean",
    "ishot": "hot",
    "iscool": "cool",
    "issliced": "sliced",
}
TREATMENT_PREDICATES: Final[dict[str, Treatment]] = {
    "isclean": "clean",
    "ishot": "hot",
    "iscool": "cool",
}
CAPABILITIES: Final = {"clean": "cleanable", "hot": "heatable", "cool": "coolable"}
_Pair = tuple[str, str]


class _Facts:
    """The facts of a problem, by predicate; arguments are identifiers."""

    def __init__(self, problem: Node, where: str) -> None:
        self.where = where
        sections = {section.head: section for section in problem.lists}
        for name, section in sections.items():
            if name not in ("problem", ":domain", ":objects", ":init", ":goal", ":metric"):
                place = f"{where}, line {section.line}"
                raise DataError(f"unknown section {name!r} of the problem", where=place)
        if problem.head != "define" or "problem" not in sections:
            raise DataError("not a PDDL problem", where=where, expected="(define (problem …) …)")
        for name in (":domain", ":objects", ":init", ":goal"):
            if name not in sections:
                raise DataError(f"the problem has no {name}", where=where)
        if sections[":domain"].words != (":domain", "alfred"):
            raise DataError("a problem of another domain", where=where, expected="alfred")
        self.kinds = _read_objects(sections[":objects"], where, skip=1)
        self.goal = sections[":goal"]
        self._facts: dict[str, set[tuple[str, ...]]] = {name: set() for name in _SIGNATURES}
        for fact in sections[":init"].lists:
            if fact.head != "=":
                self._add(fact)

    def _add(self, fact: Node) -> None:
        name, *arguments = fact.words or ("()",)
        signature = _SIGNATURES.get(name)
        if signature is None:
            raise self._bad(fact, f"unknown predicate {name!r} in :init")
        if len(arguments) != len(signature) or len(fact.items) != len(signature) + 1:
            raise self._bad(fact, f"{name!r} takes {len(signature)} arguments")
        for argument, kind in zip(arguments, signature, strict=True):
            got = self.kinds.get(argument, "not among :objects")
            if got != kind:
                raise self._bad(fact, f"{name!r} is said of {argument!r}", got, kind)
        self._facts[name].add(tuple(arguments))

    def _bad(
        self, fact: Node, what: str, got: str | None = None, expected: str | None = None
    ) -> DataError:
        where = f"{self.where}, line {fact.line}"
        return DataError(what, where=where, got=got, expected=expected)

    def flags(self, name: str) -> set[str]:
        """All entities of which a predicate of one argument holds."""
        return {arguments[0] for arguments in self._facts[name]}

    def pairs(self, name: str) -> list[_Pair]:
        """All pairs of a predicate of two arguments, sorted."""
        return sorted((first, second) for first, second in self._facts[name])

    def grouped(self, name: str) -> dict[str, list[str]]:
        """The second arguments by the first."""
        groups: dict[str, list[str]] = {}
        for first, second in self.pairs(name):
            groups.setdefault(first, []).append(second)
        return groups

    def only(self, name: str, identifier: str, groups: dict[str, list[str]]) -> str:
        """The one second argument that an entity must have."""
        found = groups.get(identifier, [])
        if len(found) != 1:
            raise DataError(
                f"{identifier} needs exactly one {name}", where=self.where, got=str(found)
            )
        return found[0]

    def mentioned(self, kind: str) -> list[str]:
        """All entities of a kind that occur in some fact, sorted."""
        facts = (arguments for group in self._facts.values() for arguments in group)
        return sorted({a for arguments in facts for a in arguments if self.kinds[a] == kind})


def _read_objects(section: Node, where: str, skip: int) -> dict[str, str]:
    """The kinds of the names in a typed list, whose first `skip` words are no names."""
    kinds: dict[str, str] = {}
    untyped: list[str] = []
    words = iter(section.words[skip:])
    for word in words:
        if word != "-":
            untyped.append(word)
            continue
        kind = next(words, "")
        if kind not in _KINDS:
            raise DataError(
                f"unknown type {kind!r}",
                where=f"{where}, line {section.line}",
                expected=", ".join(_KINDS),
            )
        kinds.update(dict.fromkeys(untyped, kind))
        untyped = []
    if untyped or section.lists:
        raise DataError("objects without a type", where=f"{where}, line {section.line}")
    return kinds


def _read_receptacles(facts: _Facts) -> tuple[Receptacle, ...]:
    places = facts.grouped("receptacleatlocation")
    types = facts.grouped("receptacletype")
    openable, opened = facts.flags("openable"), facts.flags("opened")
    return tuple(
        Receptacle(
            id=r,
            type=_type(facts.only("receptacleType", r, types)),
            location=facts.only("receptacleAtLocation", r, places),
            openable=r in openable,
            opened=r in opened,
        )
        for r in facts.mentioned("receptacle")
    )


def _read_things(facts: _Facts, homes: dict[str, str]) -> tuple[Thing, ...]:
    types = facts.grouped("objecttype")
    inside, spots = facts.grouped("inreceptacle"), facts.grouped("objectatlocation")
    nested: dict[str, list[str]] = {}
    for inner, outer in facts.pairs("inreceptacleobject"):
        nested.setdefault(outer, []).append(inner)
    flags = {name: facts.flags(name) for name, s in _SIGNATURES.items() if s == ("object",)}
    things = []
    for o in facts.mentioned("object"):
        holders = tuple(inside.get(o, ()))
        places = tuple(spots.get(o, ()))
        usual = {homes[r] for r in holders}
        things.append(
            Thing(
                id=o,
                type=_type(facts.only("objectType", o, types)),
                inside=holders,
                locations=None if usual == set(places) else places,
                pickupable=o in flags["pickupable"],
                cleanable=o in flags["cleanable"],
                heatable=o in flags["heatable"],
                coolable=o in flags["coolable"],
                sliceable=o in flags["sliceable"],
                toggleable=o in flags["toggleable"],
                holds_things=o in flags["isreceptacleobject"],
                contains=tuple(nested.get(o, ())),
                conditions=tuple(c for name, c in CONDITION_PREDICATES.items() if o in flags[name]),
                toggled=o in flags["istoggled"],
            )
        )
    return tuple(things)


def _type(word: str) -> str:
    return word.removesuffix("type")


def _read_goal(facts: _Facts) -> Goal:
    """The goal, from its literals: ALFWorld's goals differ in them, not in their nesting.

    A goal that asks for anything more, less or else is refused, for it would be played wrongly.
    """
    section = facts.goal
    literals = frozenset(_literals(facts, section.lists, {}, count()))
    toggled = any(literal[0] == "istoggled" for literal in literals)
    goal = _lamp_goal(literals) if toggled else _place_goal(literals)
    if goal is None:
        raise DataError(
            "a goal that this engine does not know",
            where=f"{facts.where}, line {section.line}",
            got=" ".join(f"({' '.join(literal)})" for literal in sorted(literals)),
            expected="a goal of ALFWorld's six task types",
        )
    return goal


_Literal = tuple[str, ...]
_GOAL_SIGNATURES: Final = _SIGNATURES | {"holds": ("agent", "object"), "=": ("object", "object")}


def _literals(
    facts: _Facts, nodes: tuple[Node, ...], bound: dict[str, _Pair], numbers: Iterator[int]
) -> Iterator[_Literal]:
    """The literals of a goal. `bound` gives each variable a name of its own, and its kind."""
    for node in nodes:
        if node.head == "and":
            yield from _literals(facts, node.lists, bound, numbers)
        elif node.head == "exists" and node.lists:
            kinds = _read_objects(node.lists[0], facts.where, skip=0)
            found = {name: (f"{name}#{next(numbers)}", kind) for name, kind in kinds.items()}
            yield from _literals(facts, node.lists[1:], bound | found, numbers)
        elif node.head == "not" and len(node.lists) == 1:
            name, *arguments = _literal(facts, node.lists[0], bound)
            yield ("not", name, *sorted(arguments))
        elif not node.lists:
            yield _literal(facts, node, bound)
        else:
            place = f"{facts.where}, line {node.line}"
            raise DataError(f"the goal uses {node.head!r}", where=place)


def _literal(facts: _Facts, node: Node, bound: dict[str, _Pair]) -> _Literal:
    """One literal, checked against what its predicate can be said of."""
    place = f"{facts.where}, line {node.line}"
    name, *arguments = node.words or ("()",)
    signature = _GOAL_SIGNATURES.get(name)
    if signature is None:
        raise DataError(f"unknown predicate {name!r} in the goal", where=place)
    known = [bound.get(word, (word, facts.kinds.get(word, ""))) for word in arguments]
    got = tuple(kind or f"{word}, which is not declared" for word, kind in known)
    if got != signature:
        raise DataError(
            f"{name!r} in the goal is said of something else",
            where=place,
            got=", ".join(got),
            expected=", ".join(signature),
        )
    return (name, *(word for word, _ in known))


def _place_goal(literals: frozenset[_Literal]) -> Goal | None:
    """One thing, or two different ones, in one receptacle; None for any other goal."""
    things = sorted({x[1] for x in literals if x[0] == "inreceptacle"})
    places = {x[2] for x in literals if x[0] == "inreceptacle"}
    kinds = {x[2] for x in literals if x[0] == "objecttype"}
    homes = {x[2] for x in literals if x[0] == "receptacletype"}
    if len(things) not in (1, 2) or not len(places) == len(kinds) == len(homes) == 1:
        return None
    (place,), (kind,), (home,) = places, kinds, homes
    conditions = _conditions(literals, things[0])
    expected: set[_Literal] = {("receptacletype", place, home)}
    for thing in things:
        expected |= {("inreceptacle", thing, place)} | _asked(thing, kind, conditions)
    if len(things) == 2:
        expected.add(("not", "=", *things))
    if literals != expected:
        return None
    return Goal(_type(kind), _type(home), count=len(things), conditions=conditions)


def _lamp_goal(literals: frozenset[_Literal]) -> Goal | None:
    """A thing in hand, at a lamp that is on; None for any other goal."""
    kinds = {x[1]: x[2] for x in literals if x[0] == "objecttype"}
    held = [x[1:] for x in literals if x[0] == "holds"]
    lamps = [x[1:] for x in literals if x[0] == "inreceptacle"]
    spots = [x[1:] for x in literals if x[0] == "atlocation"]
    if not len(held) == len(lamps) == len(spots) == 1 or len(kinds) != 2:
        return None
    ((holder, thing),), ((lamp, r),), ((agent, location),) = held, lamps, spots
    if kinds.keys() != {thing, lamp}:
        return None
    conditions = _conditions(literals, thing)
    expected: set[_Literal] = {
        ("holds", holder, thing),
        ("objecttype", lamp, kinds[lamp]),
        ("toggleable", lamp),
        ("istoggled", lamp),
        ("inreceptacle", lamp, r),
        ("receptacleatlocation", r, location),
        ("atlocation", agent, location),
    }
    if literals != expected | _asked(thing, kinds[thing], conditions):
        return None
    return Goal(_type(kinds[thing]), lamp_type=_type(kinds[lamp]), conditions=conditions)


def _conditions(literals: frozenset[_Literal], thing: str) -> tuple[Treatment, ...]:
    return tuple(c for name, c in TREATMENT_PREDICATES.items() if (name, thing) in literals)


def _asked(thing: str, kind: str, conditions: tuple[Treatment, ...]) -> set[_Literal]:
    """What a goal says of a thing of a type that is to have `conditions`."""
    names = {condition: name for name, condition in TREATMENT_PREDICATES.items()}
    able = {(CAPABILITIES[c], thing) for c in conditions}
    return {("objecttype", thing, kind)} | able | {(names[c], thing) for c in conditions}


def task_type_of(goal: Goal) -> TaskType:
    """ALFWorld's name for the kind of task."""
    if goal.lamp_type is not None:
        return "look_at_obj_in_light"
    if goal.count > 1:
        return "pick_two_obj_and_place"
    if "clean" in goal.conditions:
        return "pick_clean_then_place_in_recep"
    if "hot" in goal.conditions:
        return "pick_heat_then_place_in_recep"
    if "cool" in goal.conditions:
        return "pick_cool_then_place_in_recep"
    return "pick_and_place_simple"


class _File(msgspec.Struct, frozen=True):
    """What is read of an official file; other keys (walkthrough, solvable) are not used."""

    pddl_domain: str
    pddl_problem: str
    grammar: str


def read_official(data: bytes, path: Path) -> Game:
    """The game of an official file. DataError names the file, the part and the line."""
    where = str(path)
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"not an ALFWorld game file: {error}",
            where=where,
            expected="JSON with pddl_domain, pddl_problem and grammar",
        ) from None
    rules = read_rules(file.pddl_domain, f"{where}: pddl_domain")
    problem = f"{where}: pddl_problem"
    facts = _Facts(read_expression(file.pddl_problem, problem), problem)
    starts = facts.pairs("atlocation")
    if len(starts) != 1:
        raise DataError("the player needs one location", where=problem, got=str(starts))
    receptacles = _read_receptacles(facts)
    grammar, task = read_grammar(file.grammar, f"{where}: grammar")
    goal = _read_goal(facts)
    fits = facts.grouped("cancontain")
    game = Game(
        id="/".join(path.parts[-3:-1]) or path.stem,
        task_type=task_type_of(goal),
        task=task,
        scene=_scene(path),
        start=starts[0][1],
        receptacles=receptacles,
        things=_read_things(facts, {r.id: r.location for r in receptacles}),
        fits={_type(place): tuple(map(_type, kinds)) for place, kinds in fits.items()},
        goal=goal,
        grammar=_named(grammar),
        has_help=rules.has_help,
        cleaners=rules.cleaners,
    )
    check(game, where)
    return game


def _named(grammar: Grammar) -> Literal["put", "move"] | Grammar:
    if grammar == GRAMMARS["put"]:
        return "put"
    return "move" if grammar == GRAMMARS["move"] else grammar


def _scene(path: Path) -> str:
    """The floor plan's number, which official folder names end in."""
    match = re.fullmatch(r".*-(\d+)", path.parent.parent.name)
    return f"FloorPlan{match.group(1)}" if match else ""
