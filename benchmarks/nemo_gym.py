"""Our verdicts beside the rewards that NeMo-Gym stored with its public single-step rows.

    python benchmarks/nemo_gym.py FOLDER_OF_ROWS

A row that holds an expected action, a policy's response and its reward is judged by `tool_call`
(calls, messages) or `command` (replies of a terminal harness). The rollouts of the code-repair
rows do not repeat the expected action: they are joined with their example rows by uuid. Last, the
expert action of every turn is scored by `tool_call`.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pivotune.core.types import Message, Turn
from pivotune.ingest import read_trajectories, split_turns
from pivotune.verify import as_completion, build_verifier

REPAIR = "swe_pivot__example"


class Comparison(NamedTuple):
    """One stored reward and our verdict."""

    file: str
    row: int
    stored: float
    ours: float | None
    reason: str


def single_step(path: Path) -> list[Comparison]:
    """Rows that carry the expected action and a scored response."""
    verifier = build_verifier("command" if path.name.startswith("terminus") else "tool_call")
    found = []
    for number, trajectory in enumerate(read_trajectories(path), 1):
        if not trajectory.meta.get("sampled"):
            continue
        turn = split_turns(trajectory)[-1]
        messages = msgspec.convert(trajectory.meta["sampled"], tuple[Message, ...])
        action = next(m for m in messages if m.role == "assistant")
        verdict = verifier.verify(turn, as_completion(action), None)
        stored = trajectory.meta["sampled_reward"]
        found.append(Comparison(path.name, number, stored, verdict.reward, verdict.reason))
    return found


def repair_rollouts(folder: Path) -> list[Comparison]:
    """Responses to the code-repair rows, joined with the expected actions by uuid."""
    examples = read_trajectories(folder / f"{REPAIR}.jsonl")
    turns: dict[str, Turn] = {t.id: split_turns(t)[-1] for t in examples}
    path = folder / f"{REPAIR}_rollouts.jsonl"
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row: dict[str, Any] = json.loads(line)
        text = row["response"]["output"][0]["content"][0]["text"]
        action = as_completion(Message("assistant", text))
        verdict = build_verifier("tool_call").verify(turns[row["uuid"]], action, None)
        found.append(Comparison(path.name, number, row["reward"], verdict.reward, verdict.reason))
    return found


def compare(folder: Path) -> list[Comparison]:
    """Every stored single-step reward with our verdict."""
    steps = [c for path in sorted(folder.glob("*.jsonl")) for c in single_step(path)]
    return steps + repair_rollouts(folder)


def expert_failures(folder: Path) -> tuple[int, list[str]]:
    """Number of turns in all files, and those whose own action `tool_call` does not accept."""
    verifier = build_verifier("tool_call")
    turns = [turn for t in read_trajectories(folder) for turn in split_turns(t)]
    verdicts = [verifier.verify(turn, as_completion(turn.expert), None) for turn in turns]
    pairs = zip(turns, verdicts, strict=True)
    return len(turns), [f"{turn.id}: {v.reason}" for turn, v in pairs if v.reward != 1]


def main() -> None:
    folder = Path(sys.argv[1])
    compared = compare(folder)
    for each in compared:
        mark = "same" if each.ours == each.stored else "DIFFERENT"
        figures = f"stored {each.stored}  ours {each.ours}  {mark}"
        print(f"{each.file}:{each.row}  {figures}: {each.reason[:120]}")
    agreed = sum(each.ours == each.stored for each in compared)
    print(f"{agreed} of {len(compared)} stored rewards agree with our verdicts")
    turns, failed = expert_failures(folder)
    print(f"{turns - len(failed)} of {turns} expert actions score 1 under tool_call")
    for line in failed:
        print(f"  {line}")


if __name__ == "__main__":
    main()
