from collections import Counter

import pytest

from pivotune.domains.household import engine
from pivotune.domains.household.game import Game, check
from pivotune.domains.household.generator import (
    FULL_GAMES,
    SMALL_GAMES,
    TASK_TYPES,
    GeneratorConfig,
    Split,
    generate_game,
)
from pivotune.domains.household.layouts import (
    CAN_CONTAIN,
    LAMP,
    ROOM_KINDS,
    SCENES_PER_KIND,
    homes,
    kind_of_room,
    scene,
)
from pivotune.domains.household.oracle import remaining_steps

SPLITS: tuple[Split, ...] = ("train", "seen", "unseen")
CONFIGS = {"small": SMALL_GAMES, "full": FULL_GAMES}


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
        assert 3 <= remaining <= 12
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
    scenes = {split: {game.scene for game in by_split[split]} for split in SPLITS}
    assert not (scenes["train"] | scenes["seen"]) & scenes["unseen"]
    assert len(scenes["seen"] & scenes["train"]) > 40


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
