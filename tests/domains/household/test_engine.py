"""The engine against recorded transcripts of the reference engine, and its own promises."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from conftest import shared_data
from domains.household.games import official_games, small_game
from domains.household.record_golden import GOLDEN, fingerprint
from domains.household.reference import spoil
from pivotune.domains.household import engine
from pivotune.domains.household.files import load_game
from pivotune.domains.household.game import (
    Game,
    Goal,
    Receptacle,
    Thing,
    entity_id,
    from_json,
    location_id,
    named,
    rewritten,
    to_json,
)

RECORDED = sorted(GOLDEN.glob("*.json"))
KITCHEN = Game(
    id="kitchen",
    task_type="pick_heat_then_place_in_recep",
    task="put a hot apple in table.",
    scene="",
    start="loc_bar_0",
    receptacles=(
        Receptacle("fridge_bar_1", "fridge", "loc_bar_1", openable=True),
        Receptacle("microwave_bar_1", "microwave", "loc_bar_2", openable=True),
        Receptacle("table_bar_1", "table", "loc_bar_3"),
        Receptacle("table_bar_2", "table", "loc_bar_3"),
    ),
    things=(
        Thing("apple_bar_1", "apple", ("fridge_bar_1",), heatable=True, sliceable=True),
        Thing("knife_bar_1", "knife", ("table_bar_1",)),
        Thing("bowl_bar_1", "bowl", ("table_bar_2",), holds_things=True, contains=("pea_bar_1",)),
        Thing("pea_bar_1", "pea", (), pickupable=False),
    ),
    fits={"table": ("apple", "knife", "bowl"), "fridge": ("apple",), "microwave": ("apple",)},
    goal=Goal("apple", "table", conditions=("hot",)),
)


def play(game: Game, *commands: str) -> list[str]:
    """The opening text, and what each command answers."""
    state, text = engine.start(game)
    texts = [text]
    for command in commands:
        state, text = engine.step(state, command)
        texts.append(text)
    return texts


def random_walk(game: Game, seed: int, steps: int) -> list[tuple[engine.State, str]]:
    rng = random.Random(seed)
    state, text = engine.start(game)
    seen = [(state, text)]
    for _ in range(steps):
        state, text = engine.step(state, rng.choice(engine.admissible(state)))
        seen.append((state, text))
    return seen


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_transcripts_are_the_reference_engines(path: Path) -> None:
    content: dict[str, Any] = json.loads(path.read_text())
    game = from_json(json.dumps(content["game"]).encode(), str(path))
    state, text = engine.start(game)
    for number, step in enumerate(content["steps"]):
        if number:
            state, text = engine.step(state, step["command"])
        assert text == step["text"], (number, step["command"])
        assert state.won == step["won"]
        assert fingerprint(list(engine.admissible(state))) == step["admissible"]


def test_recorded_transcripts_use_both_wordings_and_most_commands() -> None:
    contents = [json.loads(path.read_text()) for path in RECORDED]
    assert {content["game"]["game"].get("grammar", "move") for content in contents} == {
        "move",
        "put",
    }
    verbs = {
        str(step["command"]).split(" ")[0]
        for content in contents
        for step in content["steps"]
        if step["text"] != engine.NOTHING
    }
    assert {"go", "open", "close", "take", "move", "put", "examine", "look", "help"} <= verbs
    assert any(step["won"] for content in contents for step in content["steps"])


def test_recorded_runs_of_the_handcoded_expert_replay(tmp_path: Path) -> None:
    """21 of the 24 runs are on games of the archive; all of them were played under 0.4.2."""
    runs = shared_data() / "trajectories" / "alfworld_expert" / "trajectories.jsonl"
    paths = {"/".join(path.parts[-3:-1]): path for path in official_games(tmp_path)}
    replayed = 0
    for line in runs.read_text().splitlines():
        run = json.loads(line)
        if run["game"] not in paths:
            continue
        opening = run["messages"][0]["content"]
        task = opening.split("Your task is to: ")[1]
        state, text = engine.start(rewritten(load_game(paths[run["game"]]), task))
        assert text == opening
        for action, answer in zip(run["messages"][1::2], run["messages"][2::2], strict=True):
            state, text = engine.step(state, action["content"])
            assert text == answer["content"]
        assert state.won == run["won"]
        replayed += 1
    assert replayed == 21


def test_both_wordings_of_one_game() -> None:
    commands = ("go to table 1", "take knife 1 from table 2", "inventory", "look", "help")
    put = replace(KITCHEN, grammar="put", has_help=False)
    assert play(put, *commands)[1:] == [
        "You arrive at loc 1. On table 1, you see bowl 1.",
        "You take knife 1 from table 2.",
        "You are carrying: knife 1.",
        "You are facing table 2, and table 1. Next to it, you see nothing.",
        "Nothing happens.",
    ]
    texts = play(KITCHEN, *commands)
    assert texts[:-1] == [
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
        "around you, you see a fridge 1, a microwave 1, a table 2, and a table 1.\n\n"
        "Your task is to: put a hot apple in table.",
        "You arrive at table 1. On the table 1, you see a bowl 1.",
        "You pick up the knife 1 from the table 2.",
        "You are carrying: a knife 1.",
        "You are facing the table 2, and table 1. Next to it, you see nothing.",
    ]
    assert texts[-1].startswith("Available commands:\n  look:   ")


def test_peculiarities_of_the_original_rules() -> None:
    texts = play(
        KITCHEN,
        "look",
        "go to table 2",
        "go to table 1",
        "take knife 1 from table 2",
        "go to fridge 1",
        "slice apple 1 with knife 1",
        "go to table 1",
        "move knife 1 to table 1",
        "look",
    )
    assert texts[1].endswith("you see nothing.")  # a second look in the middle of the room
    assert texts[3] == engine.NOTHING  # the other table is at the same location
    assert texts[6] == "You sliced the apple 1 with the knife 1."  # through a closed door
    assert texts[9].endswith("Next to it, you see a knife 1.")  # it left the other table


def test_a_thing_is_not_shown_in_itself() -> None:
    """As the reference engine has it, where a file says so; a literal backslash stays, too."""
    bowl = replace(KITCHEN.things[2], contains=("pea_bar_1", "bowl_bar_1"))
    things = (*KITCHEN.things[:2], bowl, KITCHEN.things[3])
    texts = play(
        replace(KITCHEN, things=things, task=r"put\na mug."),
        "go to table 1",
        "take bowl 1 from table 1",
        "examine bowl 1",
    )
    assert texts[0].endswith(r"Your task is to: put\na mug.")
    assert texts[3] == "This is a normal bowl 1. In it, you see a pea 1."


def test_a_won_game_goes_on_and_can_be_lost_again() -> None:
    state, _ = engine.start(KITCHEN)
    for command in (
        "go to fridge 1",
        "open fridge 1",
        "take apple 1 from fridge 1",
        "go to microwave 1",
        "heat apple 1 with microwave 1",
        "go to table 1",
        "move apple 1 to table 2",
    ):
        assert not state.won
        state, _ = engine.step(state, command)
    assert state.won
    after, text = engine.step(state, "examine table 2")
    assert after.won
    assert text == "On the table 2, you see a apple 1, and a knife 1."
    after, _ = engine.step(after, "take apple 1 from table 2")
    assert not after.won


@pytest.mark.parametrize(
    "command",
    ["", " ", "Look", "LOOK", "go to", "go  to table 1", "go to table 3", "take", "xyzzy", "{r}"],
)
def test_other_commands_change_nothing(command: str) -> None:
    state, _ = engine.start(KITCHEN)
    assert engine.step(state, command) == (state, "Nothing happens.")


@pytest.mark.parametrize("command", ["  look", "look\n", "\tlook "])
def test_white_space_around_a_command_does_not_matter(command: str) -> None:
    assert play(KITCHEN, command)[1] == play(KITCHEN, "look")[1]


@given(st.integers(0, 10_000), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_admissible_commands_are_those_that_do_something(game: int, seed: int) -> None:
    rng = random.Random(seed)
    for state, _ in random_walk(small_game(game), seed, 8):
        commands = engine.admissible(state)
        assert list(commands) == sorted(set(commands))
        for command in commands:
            assert engine.step(state, command)[1] != engine.NOTHING
            spoilt = spoil(command, rng)
            if spoilt.strip() not in commands:
                assert engine.step(state, spoilt) == (state, engine.NOTHING)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_same_commands_lead_to_the_same_texts_and_hashes(game: int, seed: int) -> None:
    first = random_walk(small_game(game), seed, 20)
    second = random_walk(small_game(game), seed, 20)
    assert [text for _, text in first] == [text for _, text in second]
    assert [state.digest for state, _ in first] == [state.digest for state, _ in second]
    assert [state for state, _ in first] == [state for state, _ in second]


def test_playing_on_leaves_a_clone_alone() -> None:
    state, _ = engine.start(KITCHEN)
    state, _ = engine.step(state, "go to fridge 1")
    copy = state.clone()
    digest = copy.digest
    engine.step(engine.step(state, "open fridge 1")[0], "take apple 1 from fridge 1")
    assert copy.digest == digest
    assert engine.step(copy, "open fridge 1")[1].endswith("In it, you see a apple 1.")


def test_a_state_hashes_alike_in_every_process() -> None:
    program = (
        "import sys; from pivotune.domains.household import engine; "
        "from pivotune.domains.household.game import from_json; "
        "state, _ = engine.start(from_json(sys.stdin.buffer.read(), 'test')); "
        "print(engine.step(state, 'go to table 1')[0].digest)"
    )
    state, _ = engine.start(KITCHEN)
    here = engine.step(state, "go to table 1")[0].digest
    for seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", program],
            input=to_json(KITCHEN),
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert result.stdout.decode().strip() == here


def test_names_are_numbered_from_the_last_identifier() -> None:
    names = named(["shelf_bar_a", "shelf_bar_b", "sink_bar_1_bar_sinkbasin", "mug_bar_1"])
    assert names == {
        "shelf_bar_a": "shelf 2",
        "shelf_bar_b": "shelf 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "mug_bar_1": "mug 1",
    }


def test_identifiers_are_spelt_as_the_official_ones() -> None:
    assert (
        entity_id("Mug", -1.52, 0.6, -0.25)
        == "mug_bar__minus_01_dot_52_bar__plus_00_dot_60_bar__minus_00_dot_25"
    )
    assert location_id(-5, 1, 0, 30) == "loc_bar__minus_5_bar_1_bar_0_bar_30"
