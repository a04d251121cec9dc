"""Official game files: `game.tw-pddl`, a JSON object of PDDL rules, PDDL problem and grammar.

Reading checks the rules action by action: each has to be one that `engine.py` plays (compared by
a fingerprint of its parsed form), so a file with other rules is refused instead of being played
wrongly. Everything is read through one small reader of s-expressions that knows its lines.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

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

_TOKEN: Final = re.compile(r"(?P<space>\s+|;[^\n]*)|(?P<sign>[()])|(?P<word>[^\s();]+)")
_MAX_DEPTH: Final = 100


class Node(NamedTuple):
    """A list of an s-expression, with the line where it opens. Words are lower case."""

    items: tuple["Node | str", ...]
    line: int

    @property
    def head(self) -> str:
        """The first word, or nothing."""
        return self.items[0] if self.items and isinstance(self.items[0], str) else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the list, sub-lists left out."""
        return tuple(item for item in self.items if isinstance(item, str))

    @property
    def lists(self) -> tuple["Node", ...]:
        """The sub-lists."""
        return tuple(item for item in self.items if isinstance(item, Node))


def read_expression(text: str, where: str) -> Node:
    """The one s-expression of a text. DataError names the line of a damage."""
    open_lists: list[tuple[list[Node | str], int]] = []
    result: Node | None = None
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None, "the three kinds of token cover every character"
        position = match.end()
        value = match.group()
        if match.lastgroup == "space":
            line += value.count("\n")
            continue
        if result is not None or (value != "(" and not open_lists):
            raise DataError(f"unexpected {value[:20]!r}", where=f"{where}, line {line}")
        if value == "(":
            open_lists.append(([], line))
            if len(open_lists) > _MAX_DEPTH:
                raise DataError("lists nested too deeply", where=f"{where}, line {line}")
        elif value == ")":
            items, opened = open_lists.pop()
            node = Node(tuple(items), opened)
            if open_lists:
                open_lists[-1][0].append(node)
            else:
                result = node
        else:
            open_lists[-1][0].append(value.lower())
    if result is None:
        opened = open_lists[-1][1] if open_lists else line
        raise DataError("a list is not closed", where=f"{where}, line {opened}", expected=")")
    return result


def _fingerprints(domain: str, where: str) -> dict[str, str]:
    """A short hash of each action of a domain, white space and comments left out."""
    tree = read_expression(domain, where)
    if tree.head != "define" or not tree.lists or tree.lists[0].words != ("domain", "alfred"):
        raise DataError(
            "not the rules of an ALFWorld game", where=where, expected="(define (domain alfred) …)"
        )
    actions = {}
    for section in tree.lists[1:]:
        if section.head == ":action" and len(section.words) > 1:
            name = section.words[1]
            actions[name] = hashlib.blake2b(_flat(section).encode(), digest_size=8).hexdigest()
        elif section.head not in (":requirements", ":types", ":predicates", ":functions"):
            raise DataError(
                f"unknown section {section.head!r}", where=f"{where}, line {section.line}"
            )
    return actions


def _flat(node: Node | str) -> str:
    if isinstance(node, str):
        return node
    return f"({' '.join(_flat(item) for item in node.items)})"


# The actions that `engine.py` plays, and for cleaning the receptacle types that each form allows.
_PLAYED: Final = {
    "closeobject": "937a5a533ff46e4f",
    "coolobject": "2385185fb7847776",
    "examineobject": "c311276090be0031",
    "examinereceptacle": "3f353b534bb81600",
    "gotolocation": "82430e6587dcd0f8",
    "heatobject": "923de8f6332f0056",
    "inventory": "51ce3971185dd9be",
    "look": "67ad89358006b2f0",
    "openobject": "eb13628f35987745",
    "pickupobject": "736f5a1896f9cf75",
    "putobject": "8bfd81a9586357d8",
    "sliceobject": "6bed10168defa36f",
    "toggleobject": "0d902eacba1db2a5",
}
_HELP: Final = "a2430dd4ee0c135f"
_CLEANERS: Final = {
    "4c7b1bd7651acad8": ("sink", "sinkbasin"),
    "fd89a9db8d6c776a": ("sinkbasin",),
}


class _Rules(NamedTuple):
    cleaners: tuple[str, ...]
    has_help: bool


_rules_known: dict[str, _Rules] = {}


def _read_rules(domain: str, where: str) -> _Rules:
    """Check the rules; texts that were found good are remembered, there are only a few."""
    if domain not in _rules_known:
        _rules_known[domain] = _check_rules(_fingerprints(domain, where), where)
    return _rules_known[domain]


def _check_rules(found: dict[str, str], where: str) -> _Rules:
    for name in sorted(found.keys() | _PLAYED.keys() | {"cleanobject"}):
        have = found.get(name)
        if name == "help":
            good = have == _HELP
        elif name == "cleanobject":
            good = have in _CLEANERS
        else:
            good = have is not None and have == _PLAYED.get(name)
        if not good:
            raise DataError(
                f"the rules of action {name!r} are not ALFWorld's",
                where=where,
                got="no such action" if have is None else "other preconditions or effects",
                expected="the rules of an ALFWorld 0.3 or 0.4 game file",
                fix="play this game with the reference engine (the extra `alfworld`)",
            )
    return _Rules(_CLEANERS[found["cleanobject"]], "help" in found)


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
_CONDITIONS: Final[dict[str, Condition]] = {
    "isclean": "clean",
    "ishot": "hot",
    "iscool": "cool",
    "issliced": "sliced",
}
_TREATMENTS: Final[dict[str, Treatment]] = {"isclean": "clean", "ishot": "hot", "iscool": "cool"}
_CAPABLE: Final = {"clean": "cleanable", "hot": "heatable", "cool": "coolable"}
_Pair = tuple[str, str]


class _Facts:
    """The facts of a problem, by predicate; arguments are identifiers."""

    def __init__(self, problem: Node, where: str) -> None:
        self.where = where
        sections = {section.head: section for section in problem.lists}
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
        place = f"{self.where}, line {fact.line}"
        signature = _SIGNATURES.get(name)
        if signature is None:
            raise DataError(f"unknown predicate {name!r} in :init", where=place)
        if len(arguments) != len(signature) or fact.lists:
            raise DataError(f"{name!r} takes {len(signature)} arguments", where=place)
        for argument, kind in zip(arguments, signature, strict=True):
            if self.kinds.get(argument) != kind:
                raise DataError(
                    f"{name!r} is said of {argument!r}",
                    where=place,
                    got=self.kinds.get(argument, "not among :objects"),
                    expected=kind,
                )
        self._facts[name].add(tuple(arguments))

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
                conditions=tuple(c for name, c in _CONDITIONS.items() if o in flags[name]),
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
    conditions = tuple(c for name, c in _TREATMENTS.items() if name in flags)
    allowed = set(_TREATMENTS) | set(_CAPABLE.values())
    capable = {_CAPABLE[c] for c in conditions}
    if len(kinds) != 1 or not flags <= allowed or flags & set(_CAPABLE.values()) != capable:
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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"not an ALFWorld game file: {error}",
            where=where,
            expected="JSON with pddl_domain, pddl_problem and grammar",
        ) from None
    rules = _read_rules(file.pddl_domain, f"{where}: pddl_domain")
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


def write_official(game: Game, domain: str, grammar: str) -> bytes:
    """The game as an official file, given ALFWorld's texts of rules and grammar.

    `grammar` has "UNKNOWN GOAL." where the task sentence goes. The texts ship with the package
    `alfworld`; the game's own `grammar` and `has_help` should agree with them.
    """
    file = {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL.", game.task),
        "pddl_problem": _problem(game),
        "solvable": True,
    }
    return msgspec.json.format(msgspec.json.encode(file), indent=1)


def _problem(game: Game) -> str:
    objects = ["agent1 - agent"]
    kinds = {t.type for t in game.things}
    kinds.update(kind for fit in game.fits.values() for kind in fit)
    kinds.add(game.goal.thing_type)
    kinds.update(("knife", "butterknife"), filter(None, [game.goal.lamp_type]))
    places = {r.type for r in game.receptacles} | game.fits.keys()
    places |= {"sink", "sinkbasin", "microwave", "fridge"}
    places.update(filter(None, [game.goal.receptacle_type]))
    home = {r.id: r.location for r in game.receptacles}
    locations = {game.start, *home.values()}
    locations |= {place for t in game.things for place in t.locations or ()}
    objects += [f"{kind}type - otype" for kind in sorted(kinds)]
    objects += [f"{kind}type - rtype" for kind in sorted(places)]
    objects += [f"{thing.id} - object" for thing in game.things]
    objects += [f"{receptacle.id} - receptacle" for receptacle in game.receptacles]
    objects += [f"{location} - location" for location in sorted(locations)]
    facts = [f"(atlocation agent1 {game.start})"]
    for place, fit in game.fits.items():
        facts += [f"(cancontain {place}type {kind}type)" for kind in fit]
    for r in game.receptacles:
        facts += [f"(receptacletype {r.id} {r.type}type)"]
        facts += [f"(receptacleatlocation {r.id} {r.location})"]
        flags = (("openable", r.openable), ("opened", r.opened))
        facts += [f"({name} {r.id})" for name, holds in flags if holds]
    for thing in game.things:
        facts += _thing_facts(thing, home)
    return (
        f"(define (problem plan)\n(:domain alfred)\n(:objects\n{_lines(objects)})\n"
        f"(:init\n{_lines(facts)})\n(:goal {_goal(game.goal)}))\n"
    )


def _lines(parts: list[str]) -> str:
    return "".join(f"  {part}\n" for part in parts)


def _thing_facts(thing: Thing, home: dict[str, str]) -> list[str]:
    spots = {home[r] for r in thing.inside} if thing.locations is None else set(thing.locations)
    names = {condition: name for name, condition in _CONDITIONS.items()}
    flags = {
        "pickupable": thing.pickupable,
        "cleanable": thing.cleanable,
        "heatable": thing.heatable,
        "coolable": thing.coolable,
        "sliceable": thing.sliceable,
        "toggleable": thing.toggleable,
        "isreceptacleobject": thing.holds_things,
        "istoggled": thing.toggled,
        **dict.fromkeys((names[condition] for condition in thing.conditions), True),
    }
    return [
        f"(objecttype {thing.id} {thing.type}type)",
        *(f"({name} {thing.id})" for name, holds in flags.items() if holds),
        *(f"(inreceptacle {thing.id} {place})" for place in thing.inside),
        *(f"(objectatlocation {thing.id} {spot})" for spot in sorted(spots)),
        *(f"(inreceptacleobject {inner} {thing.id})" for inner in thing.contains),
    ]


def _goal(goal: Goal) -> str:
    names = {condition: name for name, condition in _TREATMENTS.items()}

    def asked(variable: str) -> str:
        flags = [f"({_CAPABLE[c]} {variable}) ({names[c]} {variable})" for c in goal.conditions]
        return " ".join([f"(objecttype {variable} {goal.thing_type}type)", *flags])

    if goal.lamp_type is not None:
        return (
            "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objecttype ?ot {goal.lamp_type}type) (toggleable ?ot) (istoggled ?ot) "
            "(receptacleatlocation ?r ?l) (atlocation ?a ?l) (inreceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and {asked('?o')} (holds ?a ?o))))"
        )
    place = f"(receptacletype ?r {goal.receptacle_type}type)"
    inner = f"{asked('?o1')} {place} (inreceptacle ?o1 ?r)"
    if goal.count == 2:
        second = f"(not (= ?o1 ?o2)) {asked('?o2')} {place} (inreceptacle ?o2 ?r)"
        inner += f" (exists (?o2 - object) (and {second}))"
    return f"(and (exists (?r - receptacle) (exists (?o1 - object) (and {inner}))))"
