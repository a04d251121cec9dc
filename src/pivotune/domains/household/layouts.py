"""Rooms: which receptacles stand in them, and where things are usually kept.

The tables below are our own summary of the habits of ALFRED's 120 rooms (30 of each kind):
how many of each receptacle a room has, and how often an object of a type lies in a receptacle
of a type. A scene is drawn once from its kind and number, so "kitchen-07" is the same room in
every game and on every machine. The generator places things by these tables and the searching
expert looks for them by the same tables, as anybody who knows houses would.
"""

import importlib.util
import random
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.seeds import derive_seed

RoomKind = Literal["kitchen", "livingroom", "bedroom", "bathroom"]
RoomSize = Literal["tiny", "small", "full"]
ROOM_KINDS: tuple[RoomKind, ...] = ("kitchen", "livingroom", "bedroom", "bathroom")
SCENES_PER_KIND = 30
_FEWEST_RECEPTACLES = 8
_TINY_RECEPTACLES = 6
_TINY_ALWAYS: dict[RoomKind, tuple[str, ...]] = {
    "kitchen": ("countertop", "fridge", "microwave", "sinkbasin"),
    "livingroom": ("coffeetable", "sidetable", "sofa"),
    "bedroom": ("bed", "desk", "drawer"),
    "bathroom": ("cabinet", "countertop", "sinkbasin"),
}
"""What a tiny room of a kind never lacks, so that every type of task has a place."""

CLOSED_RECEPTACLES = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
"""Types that have a door or a lid; they are shut when a game starts."""

_FOOD = "apple bread egg lettuce potato tomato"
_DISHES = "bowl cup mug plate"
_CUTLERY = "butterknife fork knife ladle spatula spoon"
_POTS = "kettle pan pot"
_SPICES = "peppershaker saltshaker"
_BOTTLES = "glassbottle winebottle"
_POCKET = "cellphone creditcard keychain"
_DESKWARE = "alarmclock book cd laptop newspaper pen pencil remotecontrol"
_WASHING = "cloth dishsponge handtowel soapbar"
_BATH = "candle soapbottle spraybottle tissuebox toiletpaper"
_DECOR = "statue vase watch"
_SEATED = f"{_POCKET} book laptop newspaper pillow remotecontrol"
_SURFACE = f"{_POCKET} {_DESKWARE} {_DISHES} {_DECOR} {_BOTTLES} {_BATH} cloth wateringcan"

CLEANABLE = frozenset(f"{_FOOD} {_DISHES} {_CUTLERY} {_POTS} cloth dishsponge soapbar".split()) - {
    "bread"
}
HEATABLE = frozenset(f"{_FOOD} cup mug plate".split()) - {"lettuce"}
COOLABLE = frozenset(f"{_FOOD} {_DISHES} pan pot winebottle".split())
SLICEABLE = frozenset(_FOOD.split())
LAMP = "desklamp"
VESSELS = frozenset(f"{_DISHES} pan pot".split())
"""Things that hold other things; nothing starts inside one in generated games."""

CAN_CONTAIN: dict[str, frozenset[str]] = {
    receptacle: frozenset(objects.split())
    for receptacle, objects in {
        "armchair": _SEATED,
        "bathtubbasin": _WASHING,
        "bed": "book cellphone laptop newspaper pillow",
        "cabinet": f"{_DISHES} {_POTS} {_SPICES} {_BOTTLES} {_WASHING} {_BATH} book ladle newspaper"
        " vase wateringcan",
        "cart": f"{_BATH} {_WASHING} vase",
        "coffeemachine": "mug",
        "coffeetable": _SURFACE,
        "countertop": f"{_FOOD} {_CUTLERY} {_POTS} {_SPICES} {_SURFACE} {_WASHING}",
        "desk": f"{_SURFACE}",
        "diningtable": f"{_FOOD} {_CUTLERY} {_POTS} {_SPICES} {_SURFACE} dishsponge",
        "drawer": f"{_CUTLERY} {_SPICES} {_POCKET} {_WASHING} {_BATH} book cd newspaper pen pencil"
        " remotecontrol watch",
        "dresser": _SURFACE,
        "fridge": f"{_FOOD} {_DISHES} {_BOTTLES} pan pot",
        "garbagecan": f"{_FOOD} {_BATH} cd cloth dishsponge newspaper pen pencil soapbar"
        " winebottle",
        "handtowelholder": "handtowel",
        "laundryhamper": "cloth",
        "microwave": f"{_DISHES} apple bread egg potato tomato",
        "ottoman": _SEATED,
        "safe": f"{_POCKET} cd {_DECOR}",
        "shelf": f"{_SURFACE} {_SPICES} dishsponge handtowel kettle pot soapbar",
        "sidetable": f"{_FOOD} {_CUTLERY} {_SPICES} {_SURFACE} pan pot",
        "sinkbasin": f"{_FOOD} {_DISHES} {_CUTLERY} {_POTS} {_WASHING} glassbottle",
        "sofa": _SEATED,
        "stoveburner": _POTS,
        "tvstand": "remotecontrol statue tissuebox vase",
        "toaster": "",
        "toilet": f"{_WASHING} {_BATH}",
        "toiletpaperhanger": "toiletpaper",
        "towelholder": "",
    }.items()
}
"""What may be put where, by receptacle type."""

_RECEPTACLES: dict[RoomKind, str] = {  # type, chance that the room has it, count full, count small
    "kitchen": """
        cabinet           1.0  4-18  2-4
        coffeemachine     1.0  1     0-1
        countertop        1.0  1-3   1-2
        diningtable       0.5  1-2   1
        drawer            0.9  1-8   1-3
        fridge            1.0  1     1
        garbagecan        1.0  1     0-1
        microwave         1.0  1     1
        shelf             0.3  2-3   1
        sidetable         0.1  1     1
        sinkbasin         1.0  1     1
        stoveburner       1.0  4     0-1
        toaster           1.0  1     0
    """,
    "livingroom": """
        armchair          0.9  1-2   1
        cabinet           0.2  4-8   1-2
        coffeetable       0.8  1-2   1
        diningtable       0.5  1     1
        drawer            0.8  2-9   1-3
        dresser           0.4  1     1
        garbagecan        1.0  1     0-1
        safe              0.2  1     1
        shelf             0.5  1-12  1-3
        sidetable         1.0  1-3   1-2
        sofa              1.0  1-2   1
        tvstand           0.4  1     1
    """,
    "bedroom": """
        armchair          0.2  1     1
        bed               1.0  1     1
        cabinet           0.1  2-4   1
        desk              0.8  1-2   1
        diningtable       0.1  1     1
        drawer            1.0  2-11  2-4
        dresser           0.5  1     1
        garbagecan        1.0  1     0-1
        laundryhamper     0.3  1     0-1
        safe              0.3  1     1
        shelf             0.7  1-10  1-3
        sidetable         0.8  1-2   1
    """,
    "bathroom": """
        bathtubbasin      0.7  1     1
        cabinet           0.7  3-6   2-3
        cart              0.1  1     1
        countertop        1.0  1     1
        drawer            0.5  2-8   1-3
        garbagecan        1.0  1     1
        handtowelholder   1.0  1-2   0-1
        shelf             0.3  1-3   1
        sinkbasin         1.0  1-2   1
        toilet            1.0  1     1
        toiletpaperhanger 1.0  1     0-1
        towelholder       1.0  1     0
    """,
}

_HOMES: dict[RoomKind, str] = {  # type: receptacle types with relative frequencies
    "kitchen": """
        apple: fridge 5 countertop 4 garbagecan 3 microwave 2 diningtable 3 sinkbasin 1
        bowl: fridge 4 cabinet 5 countertop 3 sinkbasin 1 shelf 2 diningtable 2
        bread: countertop 7 fridge 3 diningtable 4 sidetable 1
        butterknife: countertop 7 sinkbasin 1 diningtable 4 drawer 2
        cellphone: countertop 5 drawer 2 shelf 2
        creditcard: countertop 4 drawer 3 shelf 3
        cup: fridge 3 cabinet 4 countertop 3 sinkbasin 2 microwave 1 shelf 1 diningtable 2
        dishsponge: countertop 4 cabinet 3 drawer 3 shelf 1 sinkbasin 1 garbagecan 1
        egg: countertop 4 fridge 5 garbagecan 2 sinkbasin 2 microwave 1 diningtable 1
        fork: countertop 5 drawer 4 sinkbasin 2 diningtable 3
        glassbottle: cabinet 4 countertop 4 sinkbasin 1 shelf 1 diningtable 1
        kettle: stoveburner 4 countertop 4 cabinet 2
        knife: countertop 7 drawer 2 diningtable 3 sinkbasin 1
        ladle: countertop 4 cabinet 2 diningtable 2 drawer 2
        lettuce: countertop 5 fridge 4 diningtable 3 sinkbasin 1
        mug: countertop 4 fridge 2 coffeemachine 3 cabinet 3 microwave 1 shelf 1 sinkbasin 1
        pan: stoveburner 6 countertop 3 fridge 1 cabinet 1 diningtable 1
        peppershaker: cabinet 4 countertop 4 drawer 3 shelf 2 diningtable 1
        plate: cabinet 5 fridge 3 countertop 3 shelf 1 diningtable 2
        pot: stoveburner 7 countertop 2 cabinet 1 diningtable 1
        potato: fridge 5 countertop 4 sinkbasin 3 microwave 1 garbagecan 1 diningtable 2
        saltshaker: drawer 4 cabinet 4 countertop 3 shelf 2 diningtable 1
        soapbottle: countertop 4 cabinet 4 garbagecan 1 shelf 1 diningtable 1
        spatula: countertop 4 drawer 4 sinkbasin 2 diningtable 2
        spoon: countertop 4 drawer 4 sinkbasin 2 diningtable 2
        statue: countertop 4 shelf 3
        tomato: countertop 4 fridge 4 sinkbasin 2 garbagecan 1 diningtable 2
        vase: cabinet 3 shelf 3 countertop 3
        winebottle: cabinet 4 diningtable 3 countertop 2 shelf 1 fridge 2
    """,
    "livingroom": """
        book: dresser 3 armchair 2 coffeetable 3 sofa 2 shelf 2
        candle: sidetable 3 diningtable 2 shelf 2 coffeetable 1
        cellphone: dresser 4 armchair 3 coffeetable 3 sofa 2 sidetable 2 drawer 1
        creditcard: drawer 4 shelf 3 sidetable 3 coffeetable 3 armchair 2 dresser 2 sofa 1
        desklamp: sidetable 6 dresser 2 shelf 1
        keychain: sidetable 4 drawer 4 coffeetable 4 dresser 3 sofa 2 safe 1
        laptop: dresser 4 sofa 3 diningtable 3 sidetable 2 armchair 2 coffeetable 2
        newspaper: diningtable 3 dresser 3 shelf 2 sidetable 3 sofa 3 cabinet 2 coffeetable 1
        pen: coffeetable 3 sidetable 2 dresser 2 garbagecan 1
        pencil: sidetable 4 coffeetable 3 drawer 1
        pillow: armchair 5 sofa 5
        plate: coffeetable 3 diningtable 3 sidetable 1
        remotecontrol: dresser 3 sofa 3 sidetable 3 armchair 2 coffeetable 2 tvstand 3 drawer 1
        statue: shelf 4 sidetable 4 coffeetable 3 dresser 2 diningtable 2 tvstand 2
        tissuebox: cabinet 3 sidetable 4 coffeetable 3 shelf 2 dresser 1 tvstand 1
        vase: shelf 5 cabinet 2 safe 2 sidetable 2 dresser 1 coffeetable 1
        watch: drawer 4 safe 3 sidetable 3 dresser 2 coffeetable 1
        wateringcan: coffeetable 2 sidetable 2 cabinet 2
    """,
    "bedroom": """
        alarmclock: desk 5 shelf 4 dresser 3 sidetable 3
        book: bed 5 drawer 3 desk 2 dresser 1 shelf 1
        bowl: desk 5 shelf 4 dresser 2
        cd: drawer 4 desk 4 garbagecan 2 shelf 1 dresser 1 sidetable 1
        cellphone: drawer 3 bed 3 safe 2 desk 2 shelf 1 dresser 1 sidetable 1
        cloth: drawer 2 desk 2 shelf 1
        creditcard: drawer 5 desk 4 shelf 2 dresser 2 sidetable 1
        desklamp: desk 6 shelf 2 sidetable 3 dresser 2
        keychain: drawer 4 desk 3 safe 3 shelf 2 sidetable 1
        laptop: bed 6 desk 4
        mug: desk 5 shelf 3 dresser 1 sidetable 1
        pen: drawer 4 shelf 3 desk 3 sidetable 1 dresser 1
        pencil: desk 5 shelf 2 drawer 3 dresser 1 garbagecan 1 sidetable 1
        pillow: bed 9 armchair 2
        tissuebox: sidetable 2 dresser 2 desk 1
        vase: dresser 3 shelf 2
    """,
    "bathroom": """
        candle: cabinet 4 countertop 4 toilet 3 shelf 1 cart 1
        cloth: cabinet 6 countertop 2 drawer 2 bathtubbasin 2 sinkbasin 1
        dishsponge: toilet 3 drawer 3 shelf 2 bathtubbasin 2
        handtowel: handtowelholder 8 countertop 2
        soapbar: countertop 4 toilet 3 cabinet 3 sinkbasin 2 bathtubbasin 2 drawer 1
        soapbottle: countertop 5 cabinet 5 toilet 2 shelf 1 cart 1
        spraybottle: countertop 5 cabinet 3 toilet 3 garbagecan 1
        tissuebox: drawer 3 countertop 2 cart 1 toilet 1
        toiletpaper: cabinet 3 toilet 3 countertop 2 toiletpaperhanger 2 garbagecan 1 drawer 1
    """,
}


class Scene(msgspec.Struct, frozen=True):
    """A room: its id ("kitchen-07"), kind, and receptacle types, one entry per receptacle."""

    id: str
    kind: RoomKind
    receptacles: tuple[str, ...]


@cache
def homes(kind: RoomKind) -> dict[str, dict[str, int]]:
    """Object type -> receptacle type -> relative frequency, for a kind of room."""
    table = {}
    for line in _HOMES[kind].strip().splitlines():
        name, _, places = line.strip().partition(": ")
        words = places.split()
        table[name] = {
            place: int(weight) for place, weight in zip(words[::2], words[1::2], strict=True)
        }
    return table


def kind_of_room(receptacle_types: Collection[str]) -> RoomKind:
    """The kind of room that a player recognises by what stands in it."""
    signs: tuple[tuple[str, RoomKind], ...] = (
        ("fridge", "kitchen"),
        ("toilet", "bathroom"),
        ("bed", "bedroom"),
    )
    return next((kind for sign, kind in signs if sign in receptacle_types), "livingroom")


@cache
def scene(kind: RoomKind, number: int, size: RoomSize) -> Scene:
    """The room of a kind and number (1 to 30), drawn once from its name."""
    name = f"{kind}-{number:02d}"
    rng = random.Random(derive_seed("household scene", name, size))
    while True:
        receptacles = _furnish(rng, kind, size)
        if len(receptacles) >= _FEWEST_RECEPTACLES:
            kept = _shrink(rng, kind, receptacles) if size == "tiny" else receptacles
            return Scene(id=name, kind=kind, receptacles=kept)


def _shrink(rng: random.Random, kind: RoomKind, receptacles: tuple[str, ...]) -> tuple[str, ...]:
    """One receptacle of each type, six in all."""
    always = _TINY_ALWAYS[kind]
    others = sorted(set(receptacles) - set(always))
    drawn = rng.sample(others, min(len(others), _TINY_RECEPTACLES - len(always)))
    return tuple(sorted({*always, *drawn}))


def _furnish(rng: random.Random, kind: RoomKind, size: RoomSize) -> tuple[str, ...]:
    receptacles: list[str] = []
    for line in _RECEPTACLES[kind].strip().splitlines():
        receptacle, chance, full, small = line.split()
        if rng.random() < float(chance):
            low, _, high = (full if size == "full" else small).partition("-")
            receptacles += [receptacle] * rng.randint(int(low), int(high or low))
    return tuple(receptacles)


_PLAN_NUMBERS: dict[RoomKind, int] = {
    "kitchen": 0,
    "livingroom": 200,
    "bedroom": 300,
    "bathroom": 400,
}


PLANS_OF_UNSEEN_GAMES: dict[RoomKind, int] = {
    "kitchen": 10,
    "livingroom": 19,
    "bedroom": 8,
    "bathroom": 24,
}
"""The room of each kind in which ALFWorld's own unseen games are played (its valid_unseen)."""


@cache
def floor_plan_scene(kind: RoomKind, number: int) -> Scene:
    """The room of one of ALFRED's own floor plans; needs the `alfworld` package beside us.

    The plans list every receptacle that opens or was searched; of the others (a toaster, the
    four stove burners) they only say that the room has some.
    """
    package = importlib.util.find_spec("alfworld")
    if package is None or package.origin is None:
        raise DataError(
            "floor plans need the alfworld package", fix="pip install 'pivotune[alfworld]'"
        )
    plan = f"FloorPlan{_PLAN_NUMBERS[kind] + number}"
    folder = Path(package.origin).parent / "gen" / "layouts"
    places = _read_plan(folder / f"{plan}-openable.json", dict[str, Any])
    kinds = _read_plan(folder / f"{plan}-objects.json", list[str])
    receptacles = [
        place.split("|")[-1 if place.endswith("Basin") else 0].lower() for place in places
    ]
    for name in sorted(name.lower() for name in kinds):
        if name in CAN_CONTAIN and name not in receptacles:
            receptacles += [name] * (4 if name == "stoveburner" else 1)
    return Scene(id=plan.lower(), kind=kind, receptacles=tuple(sorted(receptacles)))


def _read_plan(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"a floor plan that cannot be read: {error}",
            where=str(path),
            fix="pip install --force-reinstall 'pivotune[alfworld]'",
        ) from None
