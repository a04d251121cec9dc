"""The recovery stage on the embedded base, without any method."""

import pytest

from pipeline.test_flow import Killed, Quiet
from pivotune.core.store import read_json, read_records
from pivotune.evaluate.recovery import MistakeState, Replay
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.recovery import RecoveryResult, measure_recovery
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder

SETTINGS = (
    "methods={}",
    "evaluate.max_turns=10",
    "recovery.states=2",
    "recovery.replays=2",
    "recovery.diagnosis=true",
)


def measure(folder, watch=None):
    recipe = load_recipe(None, SETTINGS)
    measure_recovery(Run(RunFolder(folder, recipe), watch or Quiet()))
    return read_json(folder / "recovery" / "scores.json", RecoveryResult)


@pytest.mark.slow
def test_a_killed_recovery_goes_on_and_says_the_same(tmp_path):
    with pytest.raises(Killed):
        measure(tmp_path / "a", Quiet("base: recovery", call=3))
    replays = tmp_path / "a" / "recovery" / "replays" / "base.jsonl"
    assert 0 < len(list(read_records(replays, Replay))) < 4
    resumed = measure(tmp_path / "a")
    assert resumed == measure(tmp_path / "b")
    assert len(list(read_records(replays, Replay))) == 4
    assert resumed.scores["base"].replays == 4
    assert 0.0 < resumed.gold["base"] < 1.0
    assert set(resumed.diagnosis) == {"resample", "correct", "assist"}
    states = list(read_records(tmp_path / "a" / "recovery" / "states.jsonl", MistakeState))
    assert len(states) == resumed.scores["base"].states == 2


def test_nothing_is_played_where_no_states_are_asked_for(tmp_path):
    run = Run(RunFolder(tmp_path / "run", load_recipe(None, ["methods={}"])), Quiet())
    measure_recovery(run)
    assert not (tmp_path / "run" / "recovery").exists()
