"""Our engine against the reference engine: every byte, every set of admissible commands.

Minutes of work for the reference engine, so it runs only when asked: `pytest -m reference -s`.
PIVOTUNE_REFERENCE_PYTHON names an interpreter that has `alfworld`; without it the test makes an
environment of its own. Where the official games are absent, only generated ones are played.

Most walks are compared with the engine quickened (`reference_driver.py`: nothing that could change
an answer); the planner's test compares with the engine as it comes.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from domains.household.games import official_games, small_game
from domains.household.reference import (
    Reference,
    differences,
    expert_walk,
    reference_python,
    walk,
)
from domains.household.test_engine import KITCHEN
from pivotune.domains.household import engine, oracle
from pivotune.domains.household.export import write_official
from pivotune.domains.household.files import load_game
from pivotune.domains.household.game import Game
from pivotune.domains.household.generator import (
    FULL_GAMES,
    SMALL_GAMES,
    TINY_GAMES,
    GeneratorConfig,
    generate_game,
)
from pivotune.domains.household.grammar import TASK_PREFIX
from pivotune.domains.household.layouts import (
    CAN_CONTAIN,
    ROOM_KINDS,
    SCENES_PER_KIND,
    floor_plan_scene,
    kind_of_room,
)
from pivotune.domains.household.official import read_official

pytestmark = pytest.mark.reference

STEPS = 50
GENERATED = 200
ODD = 60
PLANNED = 6
PLANS = GeneratorConfig(size="full", floor_plans=True)
CONFIGS = (FULL_GAMES, SMALL_GAMES, PLANS, TINY_GAMES)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return reference_python(tmp_path_factory.mktemp("reference"))


@pytest.fixture
def floor_plans(
    python: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The floor plans that ship with the reference engine, as if it were installed here."""
    program = "import alfworld; print(alfworld.__path__[0])"
    found = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    folder = tmp_path_factory.mktemp("packages")
    (folder / "alfworld").symlink_to(found.stdout.strip())
    monkeypatch.syspath_prepend(str(folder))
    floor_plan_scene.cache_clear()
    yield
    floor_plan_scene.cache_clear()


@pytest.fixture(scope="module")
def reference(python: str) -> Iterator[Reference]:
    with Reference(python) as running:
        yield running


def rewritten(path: Path, folder: Path, data: dict[str, str], with_rules: bool) -> Path:
    """The game with the grammar of alfworld 0.4.2, and on request with its rules too."""
    file = json.loads(path.read_text())
    task = read_official(path.read_bytes(), path).task
    assert f"{TASK_PREFIX}{task}" in file["grammar"]
    file["grammar"] = data["grammar"].replace("UNKNOWN GOAL.", task)
    if with_rules:
        file["pddl_domain"] = data["domain"]
    target = folder / "/".join(path.parts[-3:])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(file))
    return target


def check_walks(reference: Reference, path: Path, seed: int) -> tuple[int, list[str]]:
    """Steps compared, and what differed, on a random and an expert walk of one game file.

    The expert is the oracle for every other game, else the one that searches.
    """
    game = load_game(path)
    steps, found = 0, []
    expert = expert_walk(game, seed, STEPS) if seed % 2 else walk(game, seed, STEPS, 0.9)
    for commands in (walk(game, seed, STEPS, 0.0), expert):
        found += differences(reference, path, game, commands)
        steps += len(commands) + 1
    return steps, found


def winnable(game: Game) -> bool:
    """The reference engine plays no game whose goal is out of reach from the start."""
    return oracle.remaining_steps(engine.start(game)[0]) is not None


def report(name: str, games: int, steps: int, found: list[str], began: float) -> None:
    seconds = time.monotonic() - began
    print(f"{name}: {games} games, {steps} steps, {len(found)} differences, {seconds:.0f} s")
    assert not found, "\n".join(found[:5])


@pytest.mark.parametrize("grammar", ["original", "rewritten"])
def test_official_games_play_identically(
    reference: Reference, grammar: str, tmp_path: Path
) -> None:
    paths = official_games(tmp_path / "official")
    data = reference.ask({"data": 0})
    began, steps, found = time.monotonic(), 0, []
    for number, original in enumerate(paths):
        path = original
        if grammar == "rewritten":
            path = rewritten(original, tmp_path / "rewritten", data, with_rules=number % 2 == 0)
        played, differ = check_walks(reference, path, number)
        steps, found = steps + played, found + differ
    report(f"official, {grammar}", len(paths), steps, found, began)


@pytest.mark.usefixtures("floor_plans")
def test_generated_games_play_identically(reference: Reference, tmp_path: Path) -> None:
    data = reference.ask({"data": 0})
    splits = ("train", "seen", "unseen")
    began, steps, found = time.monotonic(), 0, []
    for seed in range(GENERATED):
        game = generate_game(seed, splits[seed % len(splits)], CONFIGS[seed % len(CONFIGS)])
        path = tmp_path / f"generated-{seed}" / "trial" / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_bytes(write_official(game, data["domain"], data["grammar"]))
        again = load_game(path)
        assert (again.task_type, again.task, again.goal) == (game.task_type, game.task, game.goal)
        assert engine.start(again)[1] == engine.start(game)[1]
        played, differ = check_walks(reference, path, seed)
        steps, found = steps + played, found + differ
    report("generated", GENERATED, steps, found, began)


@pytest.mark.usefixtures("floor_plans")
def test_all_floor_plans_are_rooms() -> None:
    for kind in ROOM_KINDS:
        for number in range(1, SCENES_PER_KIND + 1):
            room = floor_plan_scene(kind, number)
            assert kind_of_room(room.receptacles) == kind
            assert set(room.receptacles) <= CAN_CONTAIN.keys()
            assert len(room.receptacles) >= 5, room.id


def test_odd_games_play_identically(reference: Reference, tmp_path: Path) -> None:
    """Shared locations, things in two places, knives, nested things, a start at a receptacle."""
    data = reference.ask({"data": 0})
    path = tmp_path / "odd" / "trial" / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    began, steps, found = time.monotonic(), 0, []
    games = [game for game in map(small_game, range(2 * ODD)) if winnable(game)]
    for seed, game in enumerate([KITCHEN, *games][:ODD]):
        path.write_bytes(write_official(game, data["domain"], data["grammar"]))
        commands = walk(game, seed, STEPS, 0.1)
        found += differences(reference, path, game, commands)
        steps += len(commands) + 1
    report("odd", ODD, steps, found, began)


def test_the_planner_is_never_shorter_than_the_oracle(python: str, tmp_path: Path) -> None:
    """From the start and from the end of a walk. Its plan leads to the goal in our engine, too."""
    paths = official_games(tmp_path)
    lengths: list[tuple[int, int]] = []
    with Reference(python, quick=False) as stock:
        for number, path in enumerate(paths[:: len(paths) // PLANNED][:PLANNED]):
            game = load_game(path)
            for commands in ([], walk(game, number, 12, 0.2)):
                assert differences(stock, path, game, commands) == []
                plan = stock.ask({"plan": 0})["plan"]
                state, _ = engine.start(game)
                for command in commands:
                    state, _ = engine.step(state, command)
                optimal = oracle.remaining_steps(state)
                assert optimal is not None
                assert optimal <= len(plan)
                for command in plan:
                    state, text = engine.step(state, command)
                    assert text != engine.NOTHING, command
                assert state.won
                lengths.append((optimal, len(plan)))
    print("oracle and planner lengths:", lengths)
