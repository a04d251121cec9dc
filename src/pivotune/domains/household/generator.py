"""New games from a seed: a scene, a task, things in their usual places.

Splits are disjoint by construction. `unseen` games stand in scenes of their own; of ALFRED's
floor plans those in which ALFWorld's unseen games are played are among them. `train` and
`seen` share scenes but no game: a game belongs to `seen` exactly when the hash of its content
(scene, goal, where everything lies) is divisible by four, and the generator draws until the
game belongs to the split that was asked for.

Every game can be won: what the goal needs is placed, its appliance and a target stand in the
room. None is won at the start: what has to be carried never starts in a receptacle of the
target's type (unless it must be cleaned, heated or cooled first).
"""

import math
import random
from typing import Literal, get_args

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.seeds import derive_seed
from pivotune.core.types import content_hash
from pivotune.domains.household.game import (
    Game,
    Goal,
    Receptacle,
    TaskType,
    Thing,
    Treatment,
    entity_id,
    location_id,
)
from pivotune.domains.household.layouts import (
    CAN_CONTAIN,
    CLEANABLE,
    CLOSED_RECEPTACLES,
    COOLABLE,
    HEATABLE,
    LAMP,
    PLANS_OF_UNSEEN_GAMES,
    SCENES_PER_KIND,
    SLICEABLE,
    VESSELS,
    RoomKind,
    RoomSize,
    Scene,
    floor_plan_scene,
    homes,
    scene,
)

Split = Literal["train", "seen", "unseen"]
TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)
UNSEEN_SCENES = 6  # of each kind: the last ones
_SEEN_SHARE = 4  # one game in four belongs to `seen`

_ROOMS: dict[TaskType, tuple[RoomKind, ...]] = {
    "pick_and_place_simple": ("kitchen", "livingroom", "bedroom", "bathroom"),
    "look_at_obj_in_light": ("livingroom", "bedroom"),
    "pick_clean_then_place_in_recep": ("kitchen", "kitchen", "bathroom"),
    "pick_heat_then_place_in_recep": ("kitchen",),
    "pick_cool_then_place_in_recep": ("kitchen",),
    "pick_two_obj_and_place": ("kitchen", "livingroom", "bedroom", "bathroom"),
}
_TREATMENTS: dict[TaskType, tuple[Treatment, str, frozenset[str]]] = {
    "pick_clean_then_place_in_recep": ("clean", "sinkbasin", CLEANABLE),
    "pick_heat_then_place_in_recep": ("hot", "microwave", HEATABLE),
    "pick_cool_then_place_in_recep": ("cool", "fridge", COOLABLE),
}
_SENTENCES: dict[TaskType, tuple[str, str]] = {
    "pick_and_place_simple": ("put a {0} in {1}.", "put some {0} on {1}."),
    "look_at_obj_in_light": ("examine the {0} with the {1}.", "look at {0} under the {1}."),
    "pick_clean_then_place_in_recep": (
        "put a clean {0} in {1}.",
        "clean some {0} and put it in {1}.",
    ),
    "pick_heat_then_place_in_recep": ("put a hot {0} in {1}.", "heat some {0} and put it in {1}."),
    "pick_cool_then_place_in_recep": (
        "put a cool {0} in {1}.",
        "cool some {0} and put it in {1}.",
    ),
    "pick_two_obj_and_place": ("put two {0} in {1}.", "find two {0} and put them in {1}."),
}


class GeneratorConfig(msgspec.Struct, frozen=True):
    """What kind of games to draw.

    size: "tiny" rooms have 6 receptacles of different types and about 5 things, for models of a
        million parameters; "small" ones 8 to 15 and about 10; "full" ones are as large as
        ALFWorld's (about 25 receptacles and 40 things in a kitchen).
    task_types: drawn from uniformly.
    floor_plans: use ALFRED's own rooms (needs the alfworld package) instead of our own scenes.
    """

    size: RoomSize = "small"
    task_types: tuple[TaskType, ...] = TASK_TYPES
    floor_plans: bool = False


_OTHERS: dict[RoomSize, tuple[int, int]] = {"tiny": (3, 5), "small": (7, 11)}
"""How many types of things lie about besides the wanted one."""

TINY_GAMES = GeneratorConfig(size="tiny")
SMALL_GAMES = GeneratorConfig()
FULL_GAMES = GeneratorConfig(size="full")


def generate_game(seed: int, split: Split, config: GeneratorConfig = SMALL_GAMES) -> Game:
    """The game of a seed in a split: the same on every machine.

    How hard it is: `oracle.remaining_steps` of its first state, the optimal length.
    """
    if not config.task_types:
        raise DataError("games of no task type", where="task_types", expected="at least one type")
    rng = random.Random(derive_seed("household game", split, config.size, seed))
    task_type = rng.choice(config.task_types)
    while True:
        room = _draw_scene(rng, split, task_type, config)
        drawn = _draw_content(rng, room, task_type, config.size)
        if drawn is None:
            continue
        goal, things = drawn
        mark = content_hash(room, goal, things)
        is_seen = int(mark, 16) % _SEEN_SHARE == 0
        if split == "unseen" or is_seen == (split == "seen"):
            name = f"{split}-{config.size}-{seed}-{mark[:8]}"
            return _build(rng, name, room, task_type, goal, things)


def _draw_scene(
    rng: random.Random, split: Split, task_type: TaskType, config: GeneratorConfig
) -> Scene:
    kind = rng.choice(_ROOMS[task_type])
    first_unseen = SCENES_PER_KIND - UNSEEN_SCENES + 1
    if config.floor_plans:
        every = range(1, SCENES_PER_KIND + 1)
        unseen = {*range(first_unseen, SCENES_PER_KIND + 1), PLANS_OF_UNSEEN_GAMES[kind]}
        return floor_plan_scene(
            kind, rng.choice([n for n in every if (n in unseen) == (split == "unseen")])
        )
    numbers = (1, first_unseen - 1) if split != "unseen" else (first_unseen, SCENES_PER_KIND)
    return scene(kind, rng.randint(*numbers), config.size)


_Placed = tuple[tuple[str, int], ...]  # (thing type, index of its receptacle in the scene)


def _draw_content(
    rng: random.Random, room: Scene, task_type: TaskType, size: RoomSize
) -> tuple[Goal, _Placed] | None:
    """A goal that the room allows and everything's place; None where the draw does not fit."""
    goal = _draw_goal(rng, room, task_type)
    if goal is None:
        return None
    barred = {goal.receptacle_type} if not goal.conditions else set()
    needed = goal.count + _spare(rng, size)
    placed = _place(rng, room, goal.thing_type, needed, barred)
    if len(placed) < goal.count:
        return None
    if goal.lamp_type:
        placed += _place(rng, room, LAMP, 1, set())
    others = [name for name in homes(room.kind) if name != goal.thing_type]
    if size != "full":
        fewest, most = _OTHERS[size]
        others = rng.sample(others, k=min(len(others), rng.randint(fewest, most)))
    for name in others:
        if name != LAMP or not goal.lamp_type:
            placed += _place(rng, room, name, rng.randint(0, 3) if size == "full" else 1, set())
    return goal, tuple(placed)


def _spare(rng: random.Random, size: RoomSize) -> int:
    """How many more of the wanted things there are than are wanted."""
    if size == "tiny":
        return 0
    return int(rng.random() < 0.25) if size == "small" else rng.randint(0, 1)


def _draw_goal(rng: random.Random, room: Scene, task_type: TaskType) -> Goal | None:
    table, present = homes(room.kind), set(room.receptacles)
    if task_type == "look_at_obj_in_light":
        if not present & table[LAMP].keys():
            return None
        thing = rng.choice([name for name in table if name != LAMP])
        return Goal(thing_type=thing, lamp_type=LAMP)
    condition, appliance, treatable = _TREATMENTS.get(task_type, (None, "", frozenset()))
    if condition and appliance not in present:
        return None
    things = [name for name in table if name != LAMP and (not condition or name in treatable)]
    thing = rng.choice(things)
    targets = sorted({r for r in present if thing in CAN_CONTAIN[r]} - {appliance})
    if not targets:
        return None
    return Goal(
        thing_type=thing,
        receptacle_type=rng.choice(targets),
        count=2 if task_type == "pick_two_obj_and_place" else 1,
        conditions=(condition,) if condition else (),
    )


def _place(
    rng: random.Random, room: Scene, thing: str, count: int, barred: set[str | None]
) -> list[tuple[str, int]]:
    """Up to `count` things of a type in their usual receptacles, none in a barred type."""
    weights = {
        place: math.sqrt(weight)  # flatter than the habits, so that searching is needed
        for place, weight in homes(room.kind)[thing].items()
        if place in room.receptacles and place not in barred
    }
    if not weights:
        return []
    placed = []
    for _ in range(count):
        place = rng.choices(list(weights), list(weights.values()))[0]
        spots = [i for i, kind in enumerate(room.receptacles) if kind == place]
        placed.append((thing, rng.choice(spots)))
    return placed


def _build(
    rng: random.Random, name: str, room: Scene, task_type: TaskType, goal: Goal, placed: _Placed
) -> Game:
    receptacles = _stand(room)
    taken = {receptacle.id for receptacle in receptacles}
    things = [
        _thing(kind, _new_id(rng, kind, taken), receptacles[index].id) for kind, index in placed
    ]
    sentence = rng.choice(_SENTENCES[task_type])
    kinds = sorted({thing.type for thing in things})
    return Game(
        id=name,
        task_type=task_type,
        task=sentence.format(goal.thing_type, goal.receptacle_type or goal.lamp_type),
        scene=room.id,
        start=location_id(0, 0, 0, 30),
        receptacles=receptacles,
        things=tuple(things),
        fits={
            place: tuple(kind for kind in kinds if kind in CAN_CONTAIN[place])
            for place in sorted(set(room.receptacles))
        },
        goal=goal,
    )


def _stand(room: Scene) -> tuple[Receptacle, ...]:
    """The scene's receptacles: always the same ones, each at a location of its own."""
    rng = random.Random(derive_seed("household receptacles", room.id, len(room.receptacles)))
    taken: set[str] = set()
    return tuple(
        Receptacle(
            id=_new_id(rng, kind, taken),
            type=kind,
            location=location_id(number, number, number % 4, 45),
            openable=kind in CLOSED_RECEPTACLES,
        )
        for number, kind in enumerate(room.receptacles, 1)
    )


def _new_id(rng: random.Random, kind: str, taken: set[str]) -> str:
    """An identifier at a random place in the room: its order, hence its number, is random."""
    part = kind if kind.endswith("basin") else ""
    while True:
        x, y, z = (round(rng.uniform(-3, 3), 2) for _ in range(3))
        identifier = entity_id(kind.removesuffix("basin"), x, abs(y), z, part)
        if identifier not in taken:
            taken.add(identifier)
            return identifier


def _thing(kind: str, identifier: str, place: str) -> Thing:
    return Thing(
        id=identifier,
        type=kind,
        inside=(place,),
        pickupable=kind != LAMP,
        cleanable=kind in CLEANABLE,
        heatable=kind in HEATABLE,
        coolable=kind in COOLABLE,
        sliceable=kind in SLICEABLE,
        toggleable=kind == LAMP,
        holds_things=kind in VESSELS,
    )
