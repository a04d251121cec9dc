"""Writing a game as an official `game.tw-pddl`, so that the reference engine can play it."""

import msgspec

from pivotune.core.errors import DataError
from pivotune.domains.household.game import Game, Goal, Thing
from pivotune.domains.household.official import (
    CAPABILITIES,
    CONDITION_PREDICATES,
    TREATMENT_PREDICATES,
)


def write_official(game: Game, domain: str, grammar: str) -> bytes:
    """The game as an official file, given ALFWorld's texts of rules and grammar.

    `grammar` has "UNKNOWN GOAL." where the task sentence goes. The texts ship with the package
    `alfworld`; the game's own `grammar` and `has_help` should agree with them.
    """
    file = {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL.", _escaped(game.task)),
        "pddl_problem": _problem(game),
        "solvable": True,
    }
    return msgspec.json.format(msgspec.json.encode(file), indent=1)


def _escaped(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


def _problem(game: Game) -> str:
    objects = ["agent1 - agent"]
    kinds = {t.type for t in game.things}
    kinds.update(kind for fit in game.fits.values() for kind in fit)
    kinds.add(game.goal.thing_type)
    kinds.update(("knife", "butterknife", "sink"), filter(None, [game.goal.lamp_type]))
    places = {r.type for r in game.receptacles} | game.fits.keys()
    places |= {"sinkbasin", "microwave", "fridge"}
    places.update(filter(None, [game.goal.receptacle_type]))
    kinds -= {"sink"} & places
    if kinds & places:
        raise DataError(
            "PDDL cannot have one type for things and receptacles",
            where=game.id,
            got=sorted(kinds & places)[0],
        )
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
    names = {condition: name for name, condition in CONDITION_PREDICATES.items()}
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
    names = {condition: name for name, condition in TREATMENT_PREDICATES.items()}

    def asked(variable: str) -> str:
        flags = [f"({CAPABILITIES[c]} {variable}) ({names[c]} {variable})" for c in goal.conditions]
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
