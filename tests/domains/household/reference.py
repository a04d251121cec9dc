"""The reference engine in a process of its own, and the walks that compare ours with it."""

import json
import os
import random
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Self

from pivotune.domains.household import engine, oracle
from pivotune.domains.household.actions import put_template
from pivotune.domains.household.expert import ExpertConfig, SearchingExpert
from pivotune.domains.household.game import Game

DRIVER = Path(__file__).with_name("reference_driver.py")


def reference_python(folder: Path) -> str:
    """An interpreter that has `alfworld`: PIVOTUNE_REFERENCE_PYTHON, or a new environment."""
    ready = os.environ.get("PIVOTUNE_REFERENCE_PYTHON")
    if ready:
        return ready
    venv.create(folder / "reference", with_pip=True)
    python = str(folder / "reference" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "alfworld==0.4.2"], check=True)
    return python


class Reference:
    """The reference engine, driven over pipes."""

    def __init__(self, python: str, quick: bool = True) -> None:
        command = [python, str(DRIVER), *(["--quick"] if quick else [])]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the reference engine has ended; the last request was {request}"
        answer: dict[str, Any] = json.loads(line)
        return answer


def spoil(command: str, rng: random.Random) -> str:
    """A command that is malformed, wrong, or spelt oddly; sometimes it stays valid."""
    ways = [
        command.upper(),
        command.capitalize(),
        f"  {command}\t",
        f"{command}\n",
        command.replace(" ", "  ", 1),
        command[: rng.randrange(len(command) + 1)],
        command + " 1",
        command + ".",
        command.replace("1", "9"),
        command.replace("1", "2"),
        command.rsplit(" ", 1)[0],
        command.replace("put ", "move ").replace(" in/on ", " to "),
        command.replace("move ", "put ").replace(" to ", " in/on "),
        rng.choice(
            [
                "",
                " ",
                "help",
                "xyzzy",
                "go to",
                "take",
                "examine",
                "open fridge 1",
                "go to loc 1",
                "inventory look",
                "slice apple 1 with knife 1",
                "use desklamp 1",
                "examine agent1",
                "go to nowhere 1",
                "\u00e9\U0001f600",
                "{o.name}",
                "#intro#",
            ]
        ),
    ]
    return rng.choice(ways)


def walk(game: Game, seed: int, steps: int, guided: float) -> list[str]:
    """Commands for one walk: with probability `guided` the oracle's, else random or spoilt."""
    rng = random.Random(seed)
    state, _ = engine.start(game)
    commands = []
    for _ in range(steps):
        commands_here = engine.admissible(state)
        command = rng.choice(commands_here)
        local = [c for c in commands_here if not c.startswith("go to")]
        if rng.random() < 0.5:
            command = rng.choice(local)
        if rng.random() < guided:
            command = oracle.best_command(state) or command
        if rng.random() < 0.12:
            command = spoil(command, rng)
        commands.append(command)
        state, _ = engine.step(state, command)
    return commands


def expert_walk(game: Game, seed: int, steps: int, noise: float = 0.2) -> list[str]:
    """Commands of the searching expert, some spoilt; after its end the game is played on."""
    rng = random.Random(seed)
    state, opening = engine.start(game)
    expert = SearchingExpert(ExpertConfig(noise=noise), seed, put_template(game))
    expert.begin(opening)
    commands = []
    for _ in range(steps):
        choice = None if state.won else expert.choose()
        command = choice.command if choice else rng.choice(engine.admissible(state))
        if rng.random() < 0.05:
            command = spoil(command, rng)
        commands.append(command)
        state, observation = engine.step(state, command)
        if choice and command == choice.command:
            expert.observe(command, observation)
    return commands


def differences(reference: Reference, path: Path, game: Game, commands: list[str]) -> list[str]:
    """What differs between the two engines on one walk; empty: identical."""
    found = []
    state, text = engine.start(game)
    answer = reference.ask({"load": str(path)})
    for number, command in enumerate(["(start)", *commands]):
        if number:
            state, text = engine.step(state, command)
            answer = reference.ask({"step": command})
        ours: dict[str, Any] = {
            "text": text,
            "admissible": list(engine.admissible(state)),
            "won": state.won,
        }
        for key, mine in ours.items():
            if mine != answer[key]:
                found.append(f"{path} step {number} {command!r} {key}: {mine!r} != {answer[key]!r}")
    return found


if __name__ == "__main__":
    sys.exit("a helper of the tests")
