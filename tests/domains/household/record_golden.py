"""Records transcripts of the reference engine, for the tests that run without it.

    PIVOTUNE_REFERENCE_PYTHON=… PYTHONPATH=src:tests python tests/domains/household/record_golden.py

The games are generated ones, so the transcripts can be kept in the repository. The wording of
ALFWorld 0.3 comes from any official game file (the archive of official games).
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from domains.household.games import official_games
from domains.household.reference import Reference, reference_python, walk
from pivotune.domains.household.export import write_official
from pivotune.domains.household.files import load_game
from pivotune.domains.household.game import from_json, to_json
from pivotune.domains.household.generator import FULL_GAMES, generate_game
from pivotune.domains.household.grammar import TASK_PREFIX

GOLDEN = Path(__file__).with_name("golden")
STEPS = 70


def fingerprint(commands: list[str]) -> str:
    """A short hash of a list of commands."""
    return hashlib.blake2b("\n".join(commands).encode(), digest_size=8).hexdigest()


def record(reference: Reference, seed: int, wording: str, texts: dict[str, str]) -> None:
    game = generate_game(seed, "train", FULL_GAMES)
    if wording == "put":
        game = replace(game, grammar="put", has_help=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.tw-pddl"
        path.write_bytes(write_official(game, texts["domain"], texts["grammar"]))
        assert load_game(path).grammar == wording
        commands = walk(game, seed, STEPS, 0.35)
        answers = [reference.ask({"load": str(path)})]
        answers += [reference.ask({"step": command}) for command in commands]
    steps = [
        {
            "command": command,
            "text": answer["text"],
            "won": answer["won"],
            "admissible": fingerprint(answer["admissible"]),
        }
        for command, answer in zip([None, *commands], answers, strict=True)
    ]
    content = {"game": json.loads(to_json(game)), "steps": steps}
    name = GOLDEN / f"{wording}-{seed}.json"
    name.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
    assert from_json(json.dumps(content["game"]).encode(), str(name)) == game


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        official: dict[str, Any] = json.loads(official_games(Path(folder))[0].read_text())
        task = load_game(official_games(Path(folder))[0]).task
        old = {
            "domain": official["pddl_domain"],
            "grammar": official["grammar"].replace(
                f"{TASK_PREFIX}{task}", f"{TASK_PREFIX}UNKNOWN GOAL."
            ),
        }
        with Reference(reference_python(Path(folder))) as reference:
            new = reference.ask({"data": 0})
            for seed in (1, 2, 3):
                record(reference, seed, "move", new)
                record(reference, seed + 10, "put", old)


if __name__ == "__main__":
    main()
