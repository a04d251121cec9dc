"""A run of a random model with a warm start, which profiles and reports only."""

from contextlib import contextmanager

import msgspec
import pytest

from pivotune.core.errors import RecipeError
from pivotune.core.store import read_json, read_records
from pivotune.core.types import Profile
from pivotune.models.policy import load_policy
from pivotune.pipeline.flow import run_stages
from pivotune.pipeline.policies import base_settings
from pivotune.pipeline.recipe import Recipe, WarmStartConfig, load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.summary import Summary
from pivotune.pipeline.traces import part_of
from pivotune.pipeline.warm_start import warm_trajectories
from tiny_models import tiny_policy

RECIPE = """
methods = {}
verifier = "tool_call"
[traces]
games = 12
[warm_start]
steps = 3
batch = 2
learning_rate = 1e-3
[profile]
samples = 2
turns = 5
max_tokens = 100
[select]
rule = "random"
[evaluate]
episodes = 0
items = 0
"""


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it and tidy up."""


class Quiet:
    """Shows nothing; "kills" the run when the bar of that title has advanced twice."""

    def __init__(self, title=""):
        self.title = title

    def say(self, text):
        pass

    @contextmanager
    def progress(self, title, total, unit):
        calls = 0

        def advance(n):
            nonlocal calls
            calls += 1
            if title == self.title and calls == 2:
                raise Killed

        yield advance


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One token a byte, so that prompts have some thousands of tokens."""
    folder = tmp_path_factory.mktemp("models") / "random"
    tiny_policy(max_position_embeddings=8192).save(folder)
    return folder


def open_run(folder, model, overrides=(), watch=None):
    path = folder.parent / "recipe.toml"
    path.write_text(RECIPE)
    recipe = load_recipe(path, [f"model={model}", *overrides])
    return Run(RunFolder(folder, recipe), watch or Quiet())


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model):
    run = open_run(tmp_path_factory.mktemp("runs") / "whole", model)
    run_stages(run)
    return run


def test_what_is_profiled_is_the_warm_policy_on_turns_that_it_was_not_warmed_on(finished, model):
    profiles = list(read_records(finished.folder.profiles("tool_call"), Profile))
    assert len(profiles) == 5
    base = load_policy(finished.folder.warm_start / "final")
    assert {each.policy_hash for each in profiles} == {base.hash}
    assert base.hash != load_policy(model).hash
    used = {each.id for each in warm_trajectories(finished)}
    assert used
    assert not used & {each.turn_id.rpartition("#")[0] for each in profiles}


def test_what_is_left_out_is_counted(finished):
    dropped = read_json(finished.folder.path / "profiles" / "dropped.json", dict[str, int])
    assert dropped["trajectory of the warm start"] == len(warm_trajectories(finished))
    training = [
        each for each in finished.trajectories() if part_of(each, finished.recipe) == "training"
    ]
    turns = sum(sum(m.role == "assistant" for m in each.messages) for each in training)
    assert dropped["not drawn"] + dropped.get("exact duplicate", 0) == turns - 5


def test_the_report_says_so_and_the_warm_start_is_charged(finished):
    summary = read_json(finished.folder.path / "summary.json", Summary)
    assert summary.cost["warm"].trained_tokens > 0
    assert summary.cost["warm"].rollout_turns == 0
    assert not summary.in_domain
    page = (finished.folder.path / "report.html").read_text()
    assert "3 steps of 2 trajectories (all weights" in page


def test_a_killed_warm_start_ends_with_the_same_weights(finished, tmp_path, model):
    with pytest.raises(Killed):
        run_stages(open_run(tmp_path / "run", model, watch=Quiet("warm start")), "warm")
    run_stages(open_run(tmp_path / "run", model), "warm")
    weights = [
        (folder / "warm" / "final" / "model.safetensors").read_bytes()
        for folder in (finished.folder.path, tmp_path / "run")
    ]
    assert weights[0] == weights[1]


def test_another_warm_start_is_another_base(finished, model):
    other = open_run(finished.folder.path, model, ["warm_start.steps=4"])
    with pytest.raises(RecipeError, match="--redo warm"):
        run_stages(other)


def test_redo_drops_the_warm_start_and_what_follows(finished, tmp_path):
    folder = RunFolder(tmp_path, finished.recipe)
    for stage in ("import", "warm", "profile"):
        folder.begin(stage, 0)
        folder.finish(stage)
    folder.warm_start.mkdir()
    folder.redo("warm")
    assert set(folder.marks) == {"import"}
    assert not folder.warm_start.exists()


def test_without_a_warm_start_nothing_is_set_apart_for_it(finished, tmp_path):
    plain = msgspec.structs.replace(finished.recipe, warm_start=WarmStartConfig())
    trajectories = finished.trajectories()
    before = {each.id: part_of(each, plain) for each in trajectories}
    after = {each.id: part_of(each, finished.recipe) for each in trajectories}
    assert set(before.values()) <= {"training", "validation", "failed"}
    for name, part in after.items():
        assert part == before[name] or (part, before[name]) == ("warm start", "training")
    assert base_settings(Run(RunFolder(tmp_path, plain), Quiet())) == (plain.thinking, plain.model)


def test_a_warm_start_must_leave_something():
    with pytest.raises(RecipeError, match="must leave some"):
        load_recipe(None, ["warm_start.steps=1", "warm_start.share=1.0"])
    assert load_recipe(None, []) == Recipe()
