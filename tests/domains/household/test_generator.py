import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pivotune.core.errors import DataError
from pivotune.domains.household import engine
from pivotune.domains.household.game import Game, check
from pivotune.domains.household.generator import (
    FULL_GAMES,
    SMALL_GAMES,
    TASK_TYPES,
    TINY_GAMES,
    GeneratorConfig,
    Split,
    generate_game,
)
from pivotune.domains.household.layouts import (
    CAN_CONTAIN,
    LAMP,
    PLANS_OF_UNSEEN_GAMES,
    ROOM_KINDS,
    SCENES_PER_KIND,
    floor_plan_scene,
    homes,
    kind_of_room,
    scene,
)
from pivotune.domains.household.oracle import remaining_steps

SPLITS: tuple[Split, ...] = ("train", "seen", "unseen")
CONFIGS = {"tiny": TINY_GAMES, "small": SMALL_GAMES, "full": FULL_GAMES}
PLANS = GeneratorConfig(size="full", floor_plans=True)
PLAN_ROOMS = {  # first number, and what stands in every room of the kind
    0: "CounterTop|1 Cabinet|1 Cabinet|2 Fridge|1 Microwave|1 Sink|1|SinkBasin",
    200: "Sofa|1 CoffeeTable|1 SideTable|1 Drawer|1",
    300: "Bed|1 Desk|1 Drawer|1 Drawer|2 Dresser|1",
    400: "Toilet|1 Cabinet|1 CounterTop|1 Sink|1|SinkBasin",
}


def games(split: Split, config: GeneratorConfig, count: int) -> list[Game]:
    return [generate_game(seed, split, config) for seed in range(count)]


def content(game: Game) -> tuple[object, ...]:
    """What makes a game the same as another, whatever its name and seed."""
    place = {r.id: i for i, r in enumerate(game.receptacles)}
    lies = sorted((t.type, tuple(place[r] for r in t.inside)) for t in game.things)
    return game.scene, len(game.receptacles), game.goal, tuple(lies)


@pytest.mark.parametrize("size", CONFIGS)
@pytest.mark.parametrize("split", SPLITS)
def test_every_game_is_sound_can_be_won_and_is_not_won_yet(split: Split, size: str) -> None:
    for game in games(split, CONFIGS[size], 40):
        check(game, game.id)
        state, opening = engine.start(game)
        assert not state.won
        remaining = remaining_steps(state)
        assert remaining is not None
        assert 3 <= remaining <= 12  # how hard a game is
        assert opening.endswith(f"Your task is to: {game.task}")


def test_the_same_seed_gives_the_same_game_and_another_seed_another() -> None:
    assert generate_game(5, "train") == generate_game(5, "train")
    assert len({content(game) for game in games("train", SMALL_GAMES, 80)}) > 75
    assert generate_game(5, "train") != generate_game(5, "train", FULL_GAMES)


@pytest.mark.parametrize("size", CONFIGS)
def test_splits_share_no_game_and_unseen_shares_no_scene(size: str) -> None:
    by_split = {split: games(split, CONFIGS[size], 150) for split in SPLITS}
    train, seen, unseen = ({content(game) for game in by_split[split]} for split in SPLITS)
    assert not train & seen
    assert not train & unseen
    assert not seen & unseen
    scenes = {split: {game.scene for game in by_split[split]} for split in SPLITS}
    assert not (scenes["train"] | scenes["seen"]) & scenes["unseen"]
    assert len(scenes["seen"] & scenes["train"]) > 40


def test_a_game_of_no_task_type_is_an_error() -> None:
    with pytest.raises(DataError, match="no task type"):
        generate_game(0, "train", GeneratorConfig(task_types=()))


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package laid out like `alfworld`, with the same room in all plans of a kind."""
    folder = tmp_path / "alfworld" / "gen" / "layouts"
    folder.mkdir(parents=True)
    (tmp_path / "alfworld" / "__init__.py").touch()
    for first, places in PLAN_ROOMS.items():
        for number in range(first + 1, first + SCENES_PER_KIND + 1):
            plan = {place: [0.0, 0.0, 0, 30] for place in places.split()}
            (folder / f"FloorPlan{number}-openable.json").write_text(json.dumps(plan))
            kinds = ["Apple", "StoveBurner", "Toaster", "Window"] if first == 0 else ["Window"]
            (folder / f"FloorPlan{number}-objects.json").write_text(json.dumps(kinds))
    monkeypatch.delitem(sys.modules, "alfworld", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    floor_plan_scene.cache_clear()
    yield folder
    floor_plan_scene.cache_clear()


def test_a_floor_plan_is_a_scene(plans: Path) -> None:
    kitchen = "cabinet cabinet countertop fridge microwave sinkbasin"
    room = floor_plan_scene("kitchen", 7)
    assert room.id == "floorplan7"
    assert " ".join(room.receptacles) == f"{kitchen}{' stoveburner' * 4} toaster"
    assert floor_plan_scene("bathroom", 30).id == "floorplan430"


def test_games_on_floor_plans_are_sound_and_keep_to_their_split(plans: Path) -> None:
    by_split = {split: games(split, PLANS, 60) for split in SPLITS}
    for game in (game for found in by_split.values() for game in found):
        check(game, game.id)
        state, _ = engine.start(game)
        assert not state.won
        assert remaining_steps(state) is not None
    scenes = {split: {game.scene for game in found} for split, found in by_split.items()}
    assert not (scenes["train"] | scenes["seen"]) & scenes["unseen"]
    firsts = dict(zip(ROOM_KINDS, PLAN_ROOMS, strict=True))
    official = {f"floorplan{firsts[kind] + n}" for kind, n in PLANS_OF_UNSEEN_GAMES.items()}
    assert not official & (scenes["train"] | scenes["seen"])
    assert official & scenes["unseen"]


@pytest.mark.parametrize("content", [None, "", "[]", "{", "[3]"])
def test_a_damaged_floor_plan_is_one_clear_error(plans: Path, content: str | None) -> None:
    path = plans / "FloorPlan7-openable.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match="cannot be read") as caught:
        floor_plan_scene("kitchen", 7)
    assert str(path) in str(caught.value)


def test_floor_plans_without_the_package_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "alfworld", None)  # so Python holds it to be absent
    floor_plan_scene.cache_clear()
    with pytest.raises(DataError, match=r"pip install 'pivotune\[alfworld\]'"):
        generate_game(0, "train", PLANS)


def test_all_task_types_are_drawn_about_equally_often() -> None:
    counts = Counter(game.task_type for game in games("train", SMALL_GAMES, 300))
    assert set(counts) == set(TASK_TYPES)
    assert min(counts.values()) > 25  # 50 expected


def test_only_the_task_types_asked_for_are_drawn() -> None:
    config = GeneratorConfig(task_types=("look_at_obj_in_light",))
    assert {game.task_type for game in games("seen", config, 30)} == {"look_at_obj_in_light"}


def test_sizes() -> None:
    small = [len(game.receptacles) for game in games("train", SMALL_GAMES, 80)]
    full = [len(game.receptacles) for game in games("train", FULL_GAMES, 80)]
    assert min(small) >= 8
    assert max(small) <= 15
    assert sum(full) / len(full) > 17


def test_things_lie_only_where_their_kind_may_be_put() -> None:
    for game in games("train", FULL_GAMES, 30):
        kind = {r.id: r.type for r in game.receptacles}
        for thing in game.things:
            if thing.type != LAMP:
                assert thing.type in game.fits[kind[thing.inside[0]]]


def test_usual_places_are_possible_places() -> None:
    for room in ROOM_KINDS:
        for thing, places in homes(room).items():
            for place in places:
                assert thing == LAMP or thing in CAN_CONTAIN[place], (thing, place)


def test_scenes_are_stable_and_recognisable() -> None:
    rooms = [scene(kind, n, "small") for kind in ROOM_KINDS for n in range(1, SCENES_PER_KIND + 1)]
    assert len({room.id for room in rooms}) == 120
    assert all(kind_of_room(room.receptacles) == room.kind for room in rooms)
    kitchen = (  # changes only if every game made so far is to change
        "cabinet cabinet countertop countertop drawer fridge garbagecan microwave sinkbasin"
        " stoveburner"
    )
    assert " ".join(scene("kitchen", 7, "small").receptacles) == kitchen
