"""Our verdicts against the rewards stored with NeMo-Gym's public rows (the docs' table)."""

import runpy
from pathlib import Path

from conftest import shared_data

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "nemo_gym.py"))
SINGLE = "single_step_tool_use_with_argument_comparison__example_rollouts.jsonl"


def test_where_we_differ_from_the_stored_rewards() -> None:
    """Two of fifteen: any message passed there for the expected message."""
    compared = SCRIPT["compare"](shared_data() / "trajectories" / "responses_api")
    assert len(compared) == 15
    different = [(c.file, c.row, c.stored, c.ours) for c in compared if c.stored != c.ours]
    assert different == [(SINGLE, 1, 1.0, 0.0), (SINGLE, 4, 1.0, 0.0)]
    assert all("similar by" in c.reason for c in compared if c.stored != c.ours)
    assert sum(c.ours for c in compared) == 1


def test_every_expert_action_scores_1() -> None:
    turns, failed = SCRIPT["expert_failures"](shared_data() / "trajectories" / "responses_api")
    assert failed == []
    assert turns > 100
