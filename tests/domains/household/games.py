"""Games for the tests: the official archive, and small random ones with every kind of corner."""

import random
import tarfile
from collections import deque
from pathlib import Path

import pytest

from conftest import shared_data
from pivotune.domains.household import engine
from pivotune.domains.household.game import Game, Goal, Receptacle, Thing
from pivotune.domains.household.state import State

_KINDS = ("table", "box", "sinkbasin", "microwave", "fridge", "shelf")
_IDLE = ("look", "inventory", "help", "examineobject", "examinereceptacle", "sliceobject")


def official_games(folder: Path) -> list[Path]:
    """The official game files, unpacked into `folder`, sorted; skips the test without them."""
    archives = sorted((shared_data() / "household").glob("*.tgz"))
    if not archives:
        pytest.skip("needs the archive of official games")
    for archive in archives:
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
    return sorted(folder.rglob("game.tw-pddl"))


def small_game(seed: int) -> Game:
    """A tiny random game: shared locations, things in several places, odd fits, any task."""
    rng = random.Random(seed)
    target = rng.choice(("table", "box", "shelf", "fridge"))
    count = rng.randint(2, 5)
    kinds = [target] + [rng.choice(_KINDS) for _ in range(count - 1)]
    places = rng.randint(max(1, count - 2), count)
    receptacles = tuple(_receptacle(rng, i, kind, places) for i, kind in enumerate(kinds))
    task = rng.choice(("place", "clean", "hot", "cool", "two", "two", "light", "clean hot"))
    first = ["mug", "mug" if task == "two" else rng.choice(("mug", "pen"))]
    others = [rng.choice(("mug", "pen", "lamp")) for _ in range(rng.randint(0, 1))]
    names = [*first, *others, *(["lamp"] if task == "light" else [])]
    things = tuple(_thing(rng, i, kind, receptacles) for i, kind in enumerate(names))
    fits = {kind: tuple(t for t in ("mug", "pen") if rng.random() < 0.75) for kind in _KINDS}
    if rng.random() < 0.9:
        fits[target] = ("mug", "pen")
    goal = Goal("mug", lamp_type="lamp")
    if task != "light":
        asked = tuple(c for c in ("clean", "hot", "cool") if c in task)
        goal = Goal("mug", target, count=2 if task == "two" else 1, conditions=asked)
    start = rng.choice(("loc_bar_x", "loc_bar_0"))
    task_type = "pick_and_place_simple"
    return Game(f"small-{seed}", task_type, "t.", "", start, receptacles, things, fits, goal)


def _receptacle(rng: random.Random, number: int, kind: str, places: int) -> Receptacle:
    openable = kind in ("microwave", "fridge", "box") and rng.random() < 0.9
    location = f"loc_bar_{rng.randrange(places)}"
    opened = openable and rng.random() < 0.2
    return Receptacle(f"{kind}_bar_{number}", kind, location, openable, opened)


def _thing(
    rng: random.Random, number: int, kind: str, receptacles: tuple[Receptacle, ...]
) -> Thing:
    inside = tuple(sorted({rng.choice(receptacles).id for _ in range(rng.choice((1, 1, 1, 2)))}))
    if kind == "lamp":
        return Thing(f"lamp_bar_{number}", kind, inside, pickupable=False, toggleable=True)
    return Thing(
        f"{kind}_bar_{number}",
        kind,
        inside,
        pickupable=rng.random() < 0.95,
        cleanable=rng.random() < 0.9,
        heatable=rng.random() < 0.9,
        coolable=rng.random() < 0.9,
        conditions=tuple(c for c in ("clean", "hot") if rng.random() < 0.1),
    )


def true_distances(game: Game, limit: int) -> list[tuple[State, int | None]] | None:
    """Every reachable state with its distance to the goal, by search over the engine itself.

    None where there are more than `limit` states. Commands that change nothing are left out.
    """
    start, _ = engine.start(game)
    states = {_key(start): start}
    before: dict[object, list[object]] = {}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for action in engine.actions(state).values():
            if action.verb in _IDLE:
                continue
            after = engine.apply(state, action)
            key = _key(after)
            before.setdefault(key, []).append(_key(state))
            if key not in states:
                if len(states) == limit:
                    return None
                states[key] = after
                waiting.append(after)
    distance = {key: 0 for key, state in states.items() if state.won}
    keys = deque(distance)
    while keys:
        key = keys.popleft()
        for earlier in before.get(key, ()):
            if earlier not in distance:
                distance[earlier] = distance[key] + 1
                keys.append(earlier)
    return [(state, distance.get(key)) for key, state in states.items()]


def _key(state: State) -> object:
    conditions = (state.clean, state.hot, state.cool, state.toggled)
    return (state.at, state.opened, state.held, state.contents, conditions)
