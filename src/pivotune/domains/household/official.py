"""Official game files: `game.tw-pddl`, a JSON object of PDDL rules, PDDL problem and grammar."""

import re
from collections.abc import Iterator
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
        self.kinds = _read_objects(sections[":objects"], where)
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


def _read_objects(section: Node, where: str) -> dict[str, str]:
    kinds: dict[str, str] = {}
    untyped: list[str] = []
    words = iter(section.words[1:])
    for word in words:
        if word != "-":
            untyped.append(word)
            continue
        kind = next(words, "")
        if kind not in _KINDS:
            raise DataError(
                f"unknown type {kind!r} in :objects",
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


def _read_goal(section: Node, where: str) -> Goal:
    """The goal, from its literals: ALFWorld's goals differ in them, not in their nesting."""
    literals = list(_literals(section.lists, where))
    place = f"{where}, line {section.line}"
    if any(literal[0] == "istoggled" for literal in literals):
        goal = _lamp_goal(literals)
    else:
        goal = _place_goal(literals)
    if goal is None:
        raise DataError(
            "a goal that this engine does not know",
            where=place,
            got=" ".join(f"({' '.join(literal)})" for literal in literals),
            expected="a goal of ALFWorld's six task types",
        )
    return goal


def _literals(nodes: tuple[Node, ...], where: str) -> Iterator[tuple[str, ...]]:
    for node in nodes:
        if node.head == "and":
            yield from _literals(node.lists, where)
        elif node.head == "exists":
            yield from _literals(node.lists[1:], where)
        elif node.head == "not" and len(node.lists) == 1:
            yield ("not", *node.lists[0].words)
        elif not node.lists:
            yield node.words
        else:
            raise DataError(f"the goal uses {node.head!r}", where=f"{where}, line {node.line}")


def _of(literals: list[tuple[str, ...]], variable: str) -> tuple[str, tuple[Treatment, ...]] | None:
    """Type and conditions that the goal asks of a variable; None if it asks for more."""
    kinds = [x[2] for x in literals if x[:2] == ("objecttype", variable)]
    flags = {x[0] for x in literals if len(x) == 2 and x[1] == variable}
    conditions = tuple(c for name, c in TREATMENT_PREDICATES.items() if name in flags)
    allowed = set(TREATMENT_PREDICATES) | set(CAPABILITIES.values())
    capable = {CAPABILITIES[c] for c in conditions}
    if len(kinds) != 1 or not flags <= allowed or flags & set(CAPABILITIES.values()) != capable:
        return None
    return _type(kinds[0]), conditions


def _place_goal(literals: list[tuple[str, ...]]) -> Goal | None:
    inside = [x[1:] for x in literals if x[0] == "inreceptacle"]
    things = [x[0] for x in inside]
    places = {x[1] for x in inside}
    kinds = {x[2] for x in literals if x[0] == "receptacletype" and x[1] in places}
    different = [x for x in literals if x[0] == "not"]
    if len(places) != 1 or len(kinds) != 1 or len(set(things)) != len(things):
        return None
    if len(things) == 2:
        if [set(x[2:]) for x in different if x[1] == "="] != [set(things)]:
            return None
    elif len(things) != 1 or different:
        return None
    asked = {_of(literals, thing) for thing in things}
    (one,) = asked if len(asked) == 1 else (None,)
    known = 0 if one is None else sum(len(x) == 2 for x in literals)
    if one is None or known != 2 * len(one[1]) * len(things):
        return None
    return Goal(one[0], _type(kinds.pop()), count=len(things), conditions=one[1])


def _lamp_goal(literals: list[tuple[str, ...]]) -> Goal | None:
    held = [x[2] for x in literals if x[0] == "holds"]
    lamps = [x[1] for x in literals if x[0] == "istoggled"]
    if len(held) != 1 or len(lamps) != 1:
        return None
    lamp = lamps[0]
    kinds = [x[2] for x in literals if x[:2] == ("objecttype", lamp)]
    asked = _of(literals, held[0])
    names = sorted(x[0] for x in literals if held[0] not in x)
    wanted = ["atlocation", "inreceptacle", "istoggled", "objecttype", "receptacleatlocation"]
    if asked is None or len(kinds) != 1 or names != [*wanted, "toggleable"]:
        return None
    return Goal(asked[0], lamp_type=_type(kinds[0]), conditions=asked[1])


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
    goal = _read_goal(facts.goal, problem)
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
