"""The whole flow on the embedded base, small enough for the default suite."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from pivotune.core.errors import NoPivots, PreflightError
from pivotune.core.store import read_json
from pivotune.core.types import Cost
from pivotune.pipeline.costs import count_level_costs, validation_curve
from pivotune.pipeline.flow import run_stages
from pivotune.pipeline.profiling import SelectReport
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.summary import Summary
from pivotune.pipeline.training import read_training

RECIPE = """
verifier = "progress"
[traces]
games = 10
[profile]
samples = 4
portion = 16
[evaluate]
episodes = 4
items = 16
validation_games = 3
every = 2
max_turns = 8
[methods.sft]
objective = "sft"
learning_rate = 1e-3
steps = 3
batch = 2
[methods.pivotrl]
objective = "local_grpo"
learning_rate = 1e-3
steps = 3
batch = 4
kl = 0.01
settings = { group = 4 }
"""


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it and tidy up."""


class Quiet:
    """Shows nothing; "kills" the run at the given call of `advance` in a bar of that title."""

    def __init__(self, title="", call=0):
        self.title, self.call, self.lines = title, call, []

    def say(self, text):
        self.lines.append(text)

    @contextmanager
    def progress(self, title, total, unit):
        calls = 0

        def advance(n):
            nonlocal calls
            calls += 1
            if self.title and title.startswith(self.title) and calls == self.call:
                raise Killed

        yield advance


def open_run(folder, watch=None, overrides=()):
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(RECIPE)
    return Run(RunFolder(folder, load_recipe(path, overrides)), watch or Quiet())


def results(folder):
    """What must not depend on kills: weights, and the summary without seconds."""
    weights = {
        name: hashlib.sha256(
            (folder / "checkpoints" / name / "final" / "model.safetensors").read_bytes()
        ).hexdigest()
        for name in ("sft", "pivotrl")
    }
    summary = read_json(folder / "summary.json", Summary)
    timeless = {
        stage: msgspec.structs.replace(cost, seconds=0.0) for stage, cost in summary.cost.items()
    }
    return weights, msgspec.structs.replace(summary, cost=timeless)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run_stages(open_run(folder))
    return folder


def test_a_run_ends_with_every_figure_and_a_page(finished):
    summary = read_json(finished / "summary.json", Summary)
    assert set(summary.in_domain) == set(summary.out_of_domain) == {"base", "sft", "pivotrl"}
    for score in summary.in_domain.values():
        assert 0 <= score.low <= score.success <= score.high <= 1
        assert score.tasks == 4
    assert summary.in_domain["base"].change == 0
    assert set(summary.out_of_domain["base"].groups) >= {"arithmetic", "sorting"}
    assert summary.pivots[0].pivots > 0
    assert summary.cost["profile"].rollout_turns == 4 * summary.pivots[0].profiled
    assert summary.cost["train/pivotrl"].trained_tokens > 0
    assert (finished / "report.html").stat().st_size > 10_000


def test_a_finished_run_is_not_done_again(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*.safetensors")}
    run_stages(open_run(finished))
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*.safetensors")} == before


@pytest.mark.parametrize(
    ("title", "call"),
    [("profiling", 2), ("training sft", 2), ("training pivotrl", 1), ("pivotrl on household", 2)],
)
def test_a_run_killed_in_any_stage_ends_the_same(finished, tmp_path, title, call):
    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        run_stages(open_run(folder, Quiet(title, call)))
    run_stages(open_run(folder))
    assert results(folder) == results(finished)


def test_a_verifier_that_comes_later_judges_the_stored_samples(tmp_path):
    """`--redo select` is enough: nothing is sampled again for a profile."""
    first = open_run(tmp_path / "run")
    run_stages(first, "select")
    profiles = first.folder.profiles("progress").read_bytes()
    later = ['methods.pivotrl.verifier="tool_call"']
    again = open_run(tmp_path / "run", overrides=later)
    again.folder.redo("select")
    run_stages(again, "select")
    assert first.folder.profiles("progress").read_bytes() == profiles
    assert [line for line in again.watch.lines if "(tool_call, adv)" in line]
    whole = open_run(tmp_path / "whole", overrides=later)
    run_stages(whole, "select")
    judged = [each.folder.profiles("tool_call").read_bytes() for each in (again, whole)]
    chosen = [each.folder.pivots("tool_call", "adv") for each in (again, whole)]
    assert judged[0] == judged[1]
    first_pivots, second_pivots = (read_json(each, SelectReport).selection for each in chosen)
    assert first_pivots == second_pivots


def test_no_pivots_has_advice_and_its_own_exit_code(tmp_path):
    run = open_run(tmp_path / "none", overrides=["select.mean_below=0.0"])
    with pytest.raises(NoPivots, match="0 pivots of"):
        run_stages(run, "select")


def test_a_limit_below_every_action_is_refused_before_sampling(tmp_path):
    run = open_run(tmp_path / "clipped", overrides=["profile.max_tokens=4"])
    with pytest.raises(PreflightError, match="100 % clipped"):
        run_stages(run, "plan")
    assert not (tmp_path / "clipped" / "pilot").exists()


STARTED = (
    *("trajectories.jsonl", "pilot", "profiles", "pivots"),
    *("checkpoints/sft", "checkpoints/pivotrl", "evaluations/base", "evaluations/pivotrl"),
)
"""What appears one after the other while a run goes on."""


@pytest.mark.slow
def test_kill_9_of_the_whole_process_in_every_stage(finished, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "pivotune.cli.main", "run", str(recipe), "-r", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for name in STARTED:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        while process.poll() is None and not (folder / name).exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"the run ended before {name} was there"
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    assert results(folder) == results(finished)


def test_costs_until_a_level_count_profiling_for_methods_on_pivots(finished):
    run = open_run(finished, overrides=["level=0.0001"])
    found = count_level_costs(run)
    assert found.main == "pivotrl"
    curve = validation_curve(run, "pivotrl")
    assert [each.step for each in curve] == [0, 2, 3]
    assert curve[0].cost == Cost()
    assert (
        curve[2].cost.rollout_turns == read_training(run, "pivotrl").costs["collect"].rollout_turns
    )
    shared = run.folder.marks["profile"].cost + run.folder.marks["select"].cost
    for name, before in (("pivotrl", shared), ("sft", Cost())):
        first = next((each for each in validation_curve(run, name) if each.score > 0), None)
        reached = found.reached[name]
        if first is None:
            assert reached is None
        else:
            assert (reached.step, reached.cost) == (first.step, first.cost + before)
    assert count_level_costs(open_run(finished)) is None


def test_costs_are_those_of_all_stages(finished):
    summary = read_json(finished / "summary.json", Summary)
    total = sum(summary.cost.values(), Cost())
    assert total.rollout_turns > summary.cost["profile"].rollout_turns
