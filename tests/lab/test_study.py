"""A study in one process and in several, on a recipe of seconds."""

import pytest

from pipeline.test_flow import Quiet
from pivotune.core.errors import PivotuneError
from pivotune.core.store import read_json
from pivotune.lab.parts import Part, run_parts
from pivotune.lab.study import StudyConfig, StudyResult, run_study
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.summary import Summary

RECIPE = """
verifier = "progress"
level = 0.01
[traces]
games = 10
[profile]
samples = 4
[evaluate]
episodes = 4
items = 8
validation_games = 2
max_turns = 8
[recovery]
states = 2
replays = 2
[methods.pivotrl]
objective = "local_grpo"
learning_rate = 1e-3
steps = 1
batch = 4
[methods.strict]
objective = "local_grpo"
verifier = "strict"
rule = "random"
learning_rate = 1e-3
steps = 1
batch = 4
[methods.taught]
objective = "pivot_opd"
learning_rate = 1e-3
steps = 1
batch = 2
settings = { group = 2, max_turns = 8, teacher = { kind = "self" } }
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return load_recipe(path)


def test_a_failed_part_says_why_and_holds_up_only_what_needs_it(recipe, tmp_path):
    folder = tmp_path / "run"
    bad = Part(folder, recipe, "train", "nobody")
    never = Part(folder, recipe, "train", "sft", after=(bad.name,))
    watch = Quiet()
    with pytest.raises(PivotuneError, match="1 parts failed"):
        run_parts([bad, never], 2, watch)
    said = "\n".join(watch.lines)
    assert "[run nobody] --only: no such policy" in said
    assert "failed with exit code 10" in said
    assert "no such policy" in (folder / "logs" / "nobody.log").read_text()
    assert not (folder / "logs" / "sft.log").exists()


@pytest.mark.slow
def test_processes_come_to_the_same_figures_as_one(recipe, tmp_path):
    config = StudyConfig(grid=(1e-4, 1e-3), seeds=(1,), share_rates=True)
    alone = run_study(tmp_path / "alone", recipe, config, Quiet())
    watch = Quiet()
    several = StudyConfig(config.grid, seeds=(1,), share_rates=True, jobs=2)
    assert run_study(tmp_path / "several", recipe, several, watch) == alone
    assert set(alone.validation) == {"pivotrl", "taught"}
    assert alone.chosen["strict"] == alone.chosen["pivotrl"]
    assert set(alone.recovery) == set(alone.in_domain) == {"base", *recipe.methods}
    assert any(line.startswith("[seed-1 pivotrl] pivotrl: 1 steps") for line in watch.lines)
    summary = read_json(tmp_path / "several" / "seed-1" / "summary.json", Summary)
    assert set(summary.recovery.teachers) == {"taught"}
    assert summary.recovery.teachers["taught"].oracle_marks > 0
    assert set(summary.level.reached) == set(recipe.methods)
    again = Quiet()
    assert run_study(tmp_path / "several", recipe, several, again) == alone
    assert not any("steps" in line for line in again.lines)
    assert read_json(tmp_path / "several" / "study.json", StudyResult) == alone
