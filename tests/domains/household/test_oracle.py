"""The oracle against exhaustive search over the engine, and on cases worked out by hand."""

import random

import pytest
from msgspec.structs import replace

from domains.household.games import small_game, true_distances
from domains.household.test_engine import KITCHEN
from pivotune.domains.household import engine
from pivotune.domains.household.game import Game, Goal, Receptacle, Thing, check
from pivotune.domains.household.oracle import best_command, is_pivotal_mistake, remaining_steps
from pivotune.domains.household.state import State

GAMES = 60
STATES = 40


def after(game: Game, *commands: str) -> State:
    state, _ = engine.start(game)
    for command in commands:
        state, text = engine.step(state, command)
        assert text != engine.NOTHING, command
    return state


def test_the_oracle_is_exhaustive_search() -> None:
    compared = solvable = 0
    for seed in range(GAMES):
        game = small_game(seed)
        check(game, "small game")
        distances = true_distances(game, limit=1200)
        if distances is None:
            continue
        for state, distance in random.Random(seed).sample(distances, min(STATES, len(distances))):
            assert remaining_steps(state) == distance, (seed, state.facts)
            compared += 1
            solvable += distance is not None
    assert compared > 500
    assert solvable > 250


def test_following_the_best_command_takes_exactly_the_remaining_steps() -> None:
    for seed in range(40):
        state, _ = engine.start(small_game(seed))
        steps = remaining_steps(state)
        for left in range(steps or 0, 0, -1):
            assert remaining_steps(state) == left
            command = best_command(state)
            assert command in engine.admissible(state)
            state, _ = engine.step(state, command)
        assert state.won == (steps is not None)
        assert best_command(state) is None


@pytest.mark.parametrize(
    ("commands", "steps"),
    [
        # go, open, take, go, heat, go, put
        ((), 7),
        (("go to fridge 1", "open fridge 1"), 5),
        # The knife is in the way: put it down here, then the seven.
        (("go to table 1", "take knife 1 from table 2"), 8),
        # At the fridge the knife fits nowhere: back to the table with it, then the seven.
        (("go to table 1", "take knife 1 from table 2", "go to fridge 1"), 9),
        (
            (
                "go to fridge 1",
                "open fridge 1",
                "take apple 1 from fridge 1",
                "go to microwave 1",
                "heat apple 1 with microwave 1",
                "open microwave 1",
                "move apple 1 to microwave 1",
            ),
            3,  # take, go, put: it stays hot
        ),
    ],
)
def test_kitchen_by_hand(commands: tuple[str, ...], steps: int) -> None:
    assert remaining_steps(after(KITCHEN, *commands)) == steps


def test_a_thing_that_lies_in_two_places_need_not_be_put_back() -> None:
    apple = Thing("apple_bar_1", "apple", ("fridge_bar_1", "table_bar_1"), heatable=True)
    game = replace(KITCHEN, things=(apple, *KITCHEN.things[1:]))
    # From the table: go, take, go, heat, go, put. From the fridge: go, open, take, go, heat.
    assert remaining_steps(engine.start(game)[0]) == 5


def test_lamps_by_hand() -> None:
    lamp = Thing("lamp_bar_1", "lamp", ("table_bar_2",), pickupable=False, toggleable=True)
    book = Thing("book_bar_1", "book", ("fridge_bar_1",))
    game = replace(
        KITCHEN,
        things=(*KITCHEN.things, lamp, book),
        fits={"table": ("book", "knife")},
        goal=Goal("book", lamp_type="lamp"),
    )
    state, _ = engine.start(game)
    assert remaining_steps(state) == 5  # go, open, take, go, use
    lit = after(game, "go to table 1", "use lamp 1")
    assert remaining_steps(lit) == 4  # go, open, take, go
    fetched = ("go to fridge 1", "open fridge 1", "take book 1 from fridge 1", "go to table 2")
    assert best_command(after(game, *fetched)) == "use lamp 1"


def test_a_closed_place_for_both_things_is_opened_once() -> None:
    """In hand: a pen that only the box takes. The goal's boxes are all closed."""
    game = Game(
        id="boxes",
        task_type="pick_and_place_simple",
        task="put a mug in box.",
        scene="",
        start="loc_bar_0",
        receptacles=(
            Receptacle("box_bar_1", "box", "loc_bar_1", openable=True),
            Receptacle("box_bar_2", "box", "loc_bar_2", openable=True),
            Receptacle("table_bar_1", "table", "loc_bar_3"),
        ),
        things=(
            Thing("mug_bar_1", "mug", ("table_bar_1",)),
            Thing("pen_bar_1", "pen", ("table_bar_1",)),
        ),
        fits={"box": ("mug", "pen"), "table": ("mug",)},
        goal=Goal("mug", "box"),
    )
    holding = after(game, "go to table 1", "take pen 1 from table 1")
    # go, open, put pen, go, take mug, go, put mug
    assert remaining_steps(holding) == 7


def test_a_thing_that_fits_nowhere_ends_the_game() -> None:
    game = replace(KITCHEN, fits={"table": ("apple", "bowl"), "fridge": ("apple",)})
    before = after(game, "go to table 1")
    stuck = after(game, "go to table 1", "take knife 1 from table 2")
    assert remaining_steps(stuck) is None
    assert best_command(stuck) is None
    assert is_pivotal_mistake(before, stuck)
    assert not is_pivotal_mistake(stuck, stuck)


def test_pivotal_mistakes_lengthen_the_way() -> None:
    start = after(KITCHEN)
    assert not is_pivotal_mistake(start, after(KITCHEN, "look"))
    assert not is_pivotal_mistake(start, after(KITCHEN, "go to fridge 1"))
    assert not is_pivotal_mistake(start, after(KITCHEN, "go to table 1"))
    opened = after(KITCHEN, "go to fridge 1", "open fridge 1")
    closed = after(KITCHEN, "go to fridge 1", "open fridge 1", "close fridge 1")
    assert is_pivotal_mistake(opened, closed)


def test_two_things_in_one_place() -> None:
    things = tuple(
        Thing(f"cd_bar_{i}", "cd", (place,))
        for i, place in enumerate(("fridge_bar_1", "table_bar_1"))
    )
    game = replace(
        KITCHEN, things=things, fits={"table": ("cd",)}, goal=Goal("cd", "table", count=2)
    )
    # One lies on a table already: go, open, take, go, put.
    assert remaining_steps(engine.start(game)[0]) == 5
    # In hand, the one from the table: put it back (1), then the five less the first go.
    assert remaining_steps(after(game, "go to table 1", "take cd 1 from table 2")) == 6
