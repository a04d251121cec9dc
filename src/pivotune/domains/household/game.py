"""What a household game is made of: plain frozen data, no rules and no texts.

A `Game` can be written down in Python (the generator does), read from an official
`game.tw-pddl` file (`files.py`) and written back as one, or kept in our own compact JSON
(`to_json`, `from_json`). The rules that play it are in `engine.py`, the wording in `grammar.py`:

    state, opening = engine.start(game)
    state, observation = engine.step(state, "go to cabinet 1")
    engine.admissible(state)          # tuple of commands, sorted
    state.won                         # is the goal met here
    oracle.remaining_steps(state)     # optimal number of steps to the goal, None: unreachable

All identifiers and types are lower case. An identifier is `<type>_bar_<anything>` (the official
games put coordinates there; `entity_id` does too). The names that a player sees are derived: the
identifiers of one type are sorted, and numbered from the last to the first, so the greatest
identifier becomes "cabinet 1".
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from pivotune.core.errors import DataError
from pivotune.domains.household.grammar import Grammar

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
Treatment = Literal["clean", "hot", "cool"]
Condition = Literal["clean", "hot", "cool", "sliced"]

FAMILY: Final = "pivotune-household-"
FORMAT: Final = f"{FAMILY}1"
_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9]*_bar_[a-z0-9_]+")
_WORD: Final = re.compile(r"[a-z][a-z0-9]*")


class Receptacle(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A place that holds things. Several may stand at one `location`; a go-to reaches them all."""

    id: str
    type: str
    location: str
    openable: bool = False
    opened: bool = False


class Thing(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An object. It may be `inside` several receptacles at once (official games have that).

    `locations` are where the thing can be sliced, usually those of its receptacles; None says
    exactly those. `contains` are the identifiers of things nested in it, which only `examine`
    shows. `conditions` hold at the start, as does `toggled` (a lamp that has been used).
    """

    id: str
    type: str
    inside: tuple[str, ...] = ()
    locations: tuple[str, ...] | None = None
    pickupable: bool = True
    cleanable: bool = False
    heatable: bool = False
    coolable: bool = False
    sliceable: bool = False
    toggleable: bool = False
    holds_things: bool = False
    contains: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    toggled: bool = False


class Goal(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`count` things (1 or 2) of `thing_type` in one receptacle of the type.

    A single thing can be asked to have `conditions`.
    With a `lamp_type` there is no receptacle: such a thing is held where a lamp stands that has
    been switched on.
    """

    thing_type: str
    receptacle_type: str | None = None
    lamp_type: str | None = None
    count: int = 1
    conditions: tuple[Treatment, ...] = ()


class Game(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One game: everything that decides how it plays and what it says.

    `task` is the sentence after "Your task is to: ", with its full stop. `start` is the location
    where the player begins, usually one without a receptacle ("the middle of a room").
    `fits` maps a receptacle's type to the types of things that may be put there. `grammar` is
    "put" (ALFWorld 0.3), "move" (0.4.2), or the wording read from a file. `has_help`: the
    command `help` exists (with the 0.4.2 rules). `cleaners` are the receptacle types that clean.
    """

    id: str
    task_type: TaskType
    task: str
    scene: str
    start: str
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    fits: dict[str, tuple[str, ...]]
    goal: Goal
    grammar: Literal["put", "move"] | Grammar = "move"
    has_help: bool = True
    cleaners: tuple[str, ...] = ("sinkbasin",)


def entity_id(kind: str, x: float, y: float, z: float, part: str = "") -> str:
    """The identifier of an entity at a position in metres, spelt as the official games do.

    >>> entity_id("Mug", -1.52, 0.6, -0.25)
    'mug_bar__minus_01_dot_52_bar__plus_00_dot_60_bar__minus_00_dot_25'

    Basins are parts: `entity_id("Sink", 0, 1, 0, part="SinkBasin")` is named "sinkbasin 1".
    """
    spots = "_bar_".join(
        f"_{'minus' if v < 0 else 'plus'}_{abs(v):05.2f}".replace(".", "_dot_") for v in (x, y, z)
    )
    return f"{kind}_bar_{spots}{f'_bar_{part}' if part else ''}".lower()


def location_id(x: int, z: int, rotation: int, horizon: int) -> str:
    """The identifier of a standing place, spelt as the official games do."""
    numbers = (x, z, rotation, horizon)
    return "loc" + "".join(f"_bar_{'_minus_' if n < 0 else ''}{abs(n)}" for n in numbers)


def named(identifiers: Iterable[str]) -> dict[str, str]:
    """From identifier to the name shown to the player, such as "cabinet 3"."""
    ordered = sorted(set(identifiers))
    kinds = [_kind(identifier) for identifier in ordered]
    left = Counter(kinds)
    names = {}
    for identifier, kind in zip(ordered, kinds, strict=True):
        names[identifier] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return names


def _kind(identifier: str) -> str:
    kind = identifier.split("_bar_", 1)[0]
    return kind + "basin" if "basin" in identifier else kind


def rewritten(game: Game, task: str | None = None) -> Game:
    """The game under ALFWorld 0.4.2: "move X to Y" for "put X in/on Y", and the command `help`.

    ALFWorld draws the task's wording anew when it rewrites a game: `task` gives it where it is
    known.
    """
    return msgspec.structs.replace(
        game,
        grammar="move",
        has_help=True,
        cleaners=("sinkbasin",),
        task=game.task if task is None else task,
    )


def to_json(game: Game) -> bytes:
    """The game in our own compact format (one JSON object)."""
    return msgspec.json.encode({"format": FORMAT, "game": game})


def from_json(data: bytes, where: str) -> Game:
    """Read `to_json`'s format. DataError names `where` and the damaged place."""
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"not a household game: {error}",
            where=where,
            expected=f"one JSON object of the format {FORMAT}",
            fix="write the file again",
        ) from None
    if envelope.format != FORMAT:
        raise DataError("unknown game format", where=where, got=envelope.format, expected=FORMAT)
    check(envelope.game, where)
    return envelope.game


class _Envelope(msgspec.Struct, frozen=True):
    format: str
    game: Game


def check(game: Game, where: str) -> None:
    """DataError where the parts of a game do not fit together (not: whether it can be won)."""
    entities = [*(r.id for r in game.receptacles), *(t.id for t in game.things)]
    twice = [identifier for identifier, n in Counter(entities).items() if n > 1]
    if twice:
        raise DataError("an identifier is used twice", where=where, got=twice[0])
    places = [game.start, *(r.location for r in game.receptacles)]
    places += [place for t in game.things for place in t.locations or ()]
    for identifier in (*entities, *places):
        if not _IDENTIFIER.fullmatch(identifier):
            raise DataError(
                "an identifier that cannot be numbered",
                where=where,
                got=identifier,
                expected="lower case, <type>_bar_<letters, digits or _>",
            )
    _check_references(game, where)
    _check_goal(game, where)
    for kind in _types(game):
        if not _WORD.fullmatch(kind):
            raise DataError("a type that is not one word", where=where, got=kind)


def _check_references(game: Game, where: str) -> None:
    receptacles = {r.id for r in game.receptacles}
    things = {t.id for t in game.things}
    for thing in game.things:
        for places, known in ((thing.inside, receptacles), (thing.contains, things)):
            for identifier in places:
                if identifier not in known:
                    raise DataError(
                        f"{thing.id} refers to something that the game does not have",
                        where=where,
                        got=identifier,
                    )


def _check_goal(game: Game, where: str) -> None:
    goal = game.goal
    if (goal.receptacle_type is None) == (goal.lamp_type is None):
        raise DataError("the goal needs either a receptacle type or a lamp type", where=where)
    if goal.count not in (1, 2) or (goal.lamp_type and goal.count != 1):
        raise DataError("a goal with this count", where=where, got=goal.count, expected="1 or 2")
    if goal.count == 2 and goal.conditions:
        raise DataError("a goal of two things with conditions", where=where, got=goal.conditions)
    if {"hot", "cool"} <= set(goal.conditions):
        raise DataError("the goal asks for a thing that is hot and cool", where=where)
    movable = [t.id for t in game.things if t.type == goal.lamp_type and t.pickupable]
    if movable:
        raise DataError("the goal's lamp can be picked up", where=where, got=movable[0])


def _types(game: Game) -> list[str]:
    goal = game.goal
    named_in_goal = [t for t in (goal.thing_type, goal.receptacle_type, goal.lamp_type) if t]
    fits = [kind for place, kinds in game.fits.items() for kind in (place, *kinds)]
    entities = [*(r.type for r in game.receptacles), *(t.type for t in game.things)]
    return entities + fits + named_in_goal
