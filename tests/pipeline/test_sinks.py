"""Trackers get what the log gets; what is missing is said before anything is spent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pivotune.core.errors import RecipeError
from pivotune.pipeline import sinks
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.sinks import flat_metrics, open_sinks

LINES = [
    {"step": 1, "reward_mean": 0.25, "cost": {"rollout_turns": 8}, "best": None, "note": "x"},
    {"step": 2, "reward_mean": 0.5, "cost": {"rollout_turns": 16}},
]


def test_numbers_of_a_line_are_flat_and_nothing_else_is_sent():
    assert flat_metrics(LINES[0]) == {"reward_mean": 0.25, "cost/rollout_turns": 8.0}


def test_an_unknown_or_missing_tracker_is_an_error_of_the_recipe(monkeypatch):
    with pytest.raises(RecipeError, match="unknown tracker"):
        load_recipe(None, ["track=['mlflow']"])
    monkeypatch.setitem(sinks.PACKAGES, "wandb", "no_such_package")
    with pytest.raises(RecipeError, match="pip install 'pivotune\\[track\\]'"):
        load_recipe(None, ["track=['wandb']"])
    assert load_recipe(None, ["track=[]"]).track == []


def test_no_tracker_is_imported_unless_it_is_asked_for():
    code = "import sys, pivotune.pipeline.recipe; print({'wandb', 'trackio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def write_twice(name, folder):
    """Two openings, as after a kill: the second goes on."""
    for line in LINES:
        config = {"learning_rate": 1e-3}
        with open_sinks([name], folder=folder, run="r", method="m", config=config) as track:
            track(line)


def test_tensorboard_holds_the_metrics(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write_twice("tensorboard", tmp_path)
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    scalars = [(each.step, each.value) for each in found.Scalars("reward_mean")]
    assert scalars == [(1, 0.25), (2, 0.5)]
    assert found.Scalars("cost/rollout_turns")[1].value == 16


@pytest.mark.reference
def test_trackio_holds_the_metrics(tmp_path):
    pytest.importorskip("trackio")
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; from pathlib import Path\n"
        "from pipeline.test_sinks import write_twice; write_twice('trackio', Path(sys.argv[1]))\n"
        "from trackio.sqlite_storage import SQLiteStorage as S\n"
        "rows = S.get_logs('pivotune', 'r-m')\n"
        "print([(row['step'], row['reward_mean']) for row in rows])"
    )
    done = run_apart(code, tmp_path, TRACKIO_DIR=str(tmp_path / "db"))
    assert "[(1, 0.25), (2, 0.5)]" in done


@pytest.mark.reference
def test_wandb_writes_offline(tmp_path):
    pytest.importorskip("wandb")
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; from pathlib import Path\n"
        "from pipeline.test_sinks import write_twice; write_twice('wandb', Path(sys.argv[1]))\n"
    )
    run_apart(code, tmp_path, WANDB_SILENT="true")
    assert list(tmp_path.rglob("offline-run-*/*.wandb"))


def run_apart(code, folder, **environment):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(root / "tests"), str(root / "src")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
