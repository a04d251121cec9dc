"""Our household engine against the stock reference engine, side by side in one run.

    PIVOTUNE_REFERENCE_PYTHON=…/python python benchmarks/household.py

Plays the same commands on the same games in both: steps a second, with the admissible commands
computed at every step. The official games are used where they are (PIVOTUNE_SHARED_DATA),
generated ones otherwise. Without a reference interpreter one is made (pip installs alfworld).
All times are CPU times, so other work on the machine does not count; medians over games. The
last line is one JSON object.
"""

import json
import os
import statistics
import sys
import tarfile
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from domains.household.reference import Reference, reference_python, walk  # noqa: E402
from pivotune.domains.household import engine, oracle  # noqa: E402
from pivotune.domains.household.environment import HouseholdEnvironment, game_task  # noqa: E402
from pivotune.domains.household.export import write_official  # noqa: E402
from pivotune.domains.household.files import load_game  # noqa: E402
from pivotune.domains.household.generator import FULL_GAMES, generate_game  # noqa: E402
from pivotune.domains.household.state import State  # noqa: E402

GAMES = 8
STEPS = 40
REPEATS = 25
LIVE = 40


def game_files(folder: Path, reference: Reference) -> list[Path]:
    """Official game files, spread over the archive, or generated ones in their format."""
    data = Path(os.environ.get("PIVOTUNE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    for archive in sorted((data / "household").glob("*.tgz")):
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
    found = sorted(folder.rglob("game.tw-pddl"))
    if found:
        return found[:: len(found) // LIVE][:LIVE]
    texts = reference.ask({"data": 0})
    for seed in range(LIVE):
        path = folder / f"generated-{seed}" / "trial" / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        game = generate_game(seed, "train", FULL_GAMES)
        path.write_bytes(write_official(game, texts["domain"], texts["grammar"]))
        found.append(path)
    return found


def seconds(work: Callable[[], object]) -> float:
    """How long the work takes, in CPU seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


def play_ours(path: Path, commands: list[str]) -> float:
    """Steps a second, admissible commands included."""
    state, _ = engine.start(load_game(path))
    began = time.process_time()
    for command in commands:
        state, _ = engine.step(state, command)
        engine.admissible(state)
    return len(commands) / (time.process_time() - began)


def play_theirs(reference: Reference, path: Path, commands: list[str]) -> float:
    """Steps a second of the stock engine; it computes admissible commands anyway."""
    reference.ask({"load": str(path)})
    began = reference.ask({"cpu": 0})["cpu"]
    for command in commands:
        reference.ask({"step": command})
    return len(commands) / float(reference.ask({"cpu": 0})["cpu"] - began)


def fresh_states(path: Path, commands: list[str]) -> list[State]:
    """The states of a walk; none remembers an oracle's answer yet."""
    state, _ = engine.start(load_game(path))
    states = [state]
    for command in commands:
        state, _ = engine.step(state, command)
        states.append(state)
    return states


def kilobytes_each(paths: list[Path]) -> float:
    """Memory of live environments, each of another game and some steps into it."""
    tracemalloc.start()
    environments = []
    for number, path in enumerate(paths):
        game = load_game(path)
        environment = HouseholdEnvironment()
        environment.reset(game_task(game, "benchmark"))
        for command in walk(game, number, STEPS // 2, 0.4):
            environment.state, _ = engine.step(environment.state, command)
            engine.admissible(environment.state)
        environments.append(environment)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / len(environments) / 1e3


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        Reference(reference_python(Path(name)), quick=False) as stock,
    ):
        paths = game_files(Path(name) / "games", stock)
        played = paths[:: len(paths) // GAMES][:GAMES]
        ours, theirs, oracle_s = [], [], []
        for number, path in enumerate(played):
            commands = walk(load_game(path), number, STEPS, 0.4)
            ours.append(statistics.median(play_ours(path, commands) for _ in range(REPEATS)))
            theirs.append(play_theirs(stock, path, commands))
            states = [s for s in fresh_states(path, commands) if not s.won]  # those are no work
            oracle_s += [seconds(lambda s=state: oracle.remaining_steps(s)) for state in states]
            print(f"{path.parts[-3]}: ours {ours[-1]:,.0f}, theirs {theirs[-1]:.1f} steps/s")
        load_s = statistics.median(seconds(lambda p=path: load_game(p)) for path in paths)
        environment = HouseholdEnvironment()
        environment.reset(game_task(load_game(paths[0]), "benchmark"))
        clone_s = seconds(lambda: [environment.clone() for _ in range(10_000)]) / 10_000
        kilobytes = kilobytes_each(paths)
    result = {
        "name": "household",
        "ours": round(statistics.median(ours)),
        "theirs": round(statistics.median(theirs), 1),
        "ratio": round(statistics.median(ours) / statistics.median(theirs)),
        "unit": "steps/s, admissible commands at every step",
        "setting": f"{len(played)} games x {STEPS} commands, one core, CPU time, alfworld 0.4.2",
        "clone_us": round(clone_s * 1e6, 2),
        "load_ms": round(load_s * 1e3, 1),
        "live_environment_kb": round(kilobytes, 1),
        "oracle_us_median": round(statistics.median(oracle_s) * 1e6, 1),
        "oracle_us_mean": round(statistics.mean(oracle_s) * 1e6, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
