"""The tax stage on policies that are put in place instead of trained."""

import shutil
from contextlib import contextmanager

import pytest
import torch
from typer.testing import CliRunner

from pivotune.cli.main import app
from pivotune.core.errors import DataError, RecipeError, StoreError
from pivotune.core.store import write_json
from pivotune.models.policy import load_policy
from pivotune.pipeline.compare import compare
from pivotune.pipeline.counting import Wanted, open_models
from pivotune.pipeline.joined import join_runs
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.tax import measure_tax, read_tax
from pivotune.pipeline.training import Training
from pivotune.train.trainer import VALIDATED

RECIPE = """
[evaluate]
in_domain = "skills:eval"
max_turns = 2
[tax]
rollouts = 4
tasks = 8
checkpoints = 2
[methods.better]
objective = "sft"
learning_rate = 1e-3
[methods.worse]
objective = "sft"
learning_rate = 1e-3
"""
NOISE = {"better": {10: 2.0, 20: 0.0}, "worse": {10: 0.1, 20: 2.0}}
"""How much is added to the base's weights, by method and step; 2 spoils them. The end is 20."""


class Quiet:
    """Notes what is played."""

    def __init__(self):
        self.titles = []

    def say(self, text):
        pass

    @contextmanager
    def progress(self, title, total, unit):
        self.titles.append(title)
        yield lambda n: None


@pytest.fixture
def trained(tmp_path):
    return put_in_place(tmp_path / "run")


def put_in_place(path, seed=0):
    """A run folder whose methods end where they were, or spoilt by noise."""
    written = path.with_suffix(".toml")
    written.write_text(RECIPE)
    recipe = load_recipe(written, [f"seed={seed}"])
    folder = RunFolder(path, recipe)
    for method, steps in NOISE.items():
        place = folder.checkpoints(method)
        for step, noise in steps.items():
            policy = load_policy(recipe.model_path)
            generator = torch.Generator().manual_seed(step)
            with torch.no_grad():
                for weights in policy.model.parameters():
                    drawn = torch.randn(weights.shape, generator=generator)
                    weights.add_(noise * weights.std() * drawn)
            policy.save(place / VALIDATED / str(step))
        policy.save(place / "best")
        write_json(place / "result.json", Training(20, "best", max(steps), 0.5, {}))
        folder.begin(f"train/{method}", method)
        folder.finish(f"train/{method}")
    return folder


def test_every_policy_is_counted_and_pairs_at_equal_first_tries(trained):
    watch = Quiet()
    measure_tax(Run(trained, watch))
    played = [title.partition(" ")[0] for title in watch.titles]
    assert played[:5] == ["base:", "better:", "worse:", "better@10:", "worse@10:"]
    found = read_tax(Run(trained, Quiet()))
    assert found is not None
    assert (found.k, [each.name for each in found.comparisons]) == (2, ["better", "worse"])
    # `better` ends as the base, whose random streams it shares: it pays nothing.
    assert found.comparisons[0].tax_share.value == 0
    (pair,) = found.matched
    assert (pair.left, pair.right, pair.tasks, pair.k) == ("better", "worse", 8, 2)
    # `better` was as bad as `worse` ends when it was at step 10, which is played on for this.
    assert pair.steps == (10, None)
    assert played[5:] == ["better@10:"]
    assert pair.first_difference.value == pytest.approx(pair.first[0] - pair.first[1])
    # A finished stage is found finished; its episodes were charged once.
    again = Quiet()
    measure_tax(Run(trained, again))
    assert again.titles == []
    marks = {stage: mark.cost for stage, mark in trained.marks.items() if "tax" in stage}
    assert marks["tax/base"].environment_steps == 32
    assert marks["tax/better@10"].environment_steps == 16


def test_runs_of_several_seeds_are_one_table(trained, tmp_path):
    other = put_in_place(tmp_path / "other", seed=1)
    for folder in (trained, other):
        measure_tax(Run(folder, Quiet()))
    runs = [str(trained.path), str(other.path)]
    found = join_runs(runs, tmp_path / "out", Quiet())
    assert [each.name for each in found.policies] == ["base", "better", "worse"]
    singles = [read_tax(Run(folder, Quiet())) for folder in (trained, other)]
    assert found.policies[2].first.seeds == tuple(
        single.comparisons[1].post.curve.values[0] for single in singles
    )
    assert [(each.left, each.right) for each in found.matched] == [("better", "worse")]
    assert found.forecast.rank_correlation.tasks == 16
    # The same from what `pivotune tax` writes about each run, through the command line.
    outs = [tmp_path / f"out {i}" for i in range(2)]
    for run, out in zip(runs, outs, strict=True):
        single = compare(run, [], Wanted(), out, Quiet())
        assert len(single.findings.matched) == 1
        assert "| better |" in (out / "tax.md").read_text()
    command = ["tax", "--join", *map(str, outs), "--out", str(tmp_path / "again")]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "Over seeds" in shown.output
    assert (tmp_path / "again" / "seeds.md").read_text() == (
        tmp_path / "out" / "seeds.md"
    ).read_text()


def test_runs_that_cannot_be_joined_are_refused(trained, tmp_path):
    def joined(*given):
        return join_runs(list(map(str, given)), tmp_path / "out", Quiet())

    with pytest.raises(DataError, match="neither a run folder"):
        joined(tmp_path / "nothing")
    measure_tax(Run(trained, Quiet()))
    with pytest.raises(DataError, match="the same seed"):
        joined(trained.path, trained.path)
    RunFolder(tmp_path / "plain", load_recipe(None))
    with pytest.raises(DataError, match="not measured a tax"):
        joined(tmp_path / "plain")


def test_a_process_for_one_method_leaves_the_pairs_to_the_last_one(trained):
    watch = Quiet()
    measure_tax(Run(trained, watch, frozenset(["worse"])))
    assert [title.partition(" ")[0] for title in watch.titles] == ["worse:", "worse@10:"]


def test_only_the_named_methods_are_counted(trained):
    recipe = load_recipe(trained.path.with_suffix(".toml"), ['tax.methods=["better"]'])
    folder, watch = RunFolder(trained.path, recipe), Quiet()
    measure_tax(Run(folder, watch))
    assert [title.partition(" ")[0] for title in watch.titles] == ["base:", "better:", "better@10:"]
    found = read_tax(Run(folder, Quiet()))
    assert [each.name for each in found.comparisons] == ["better"]
    assert found.matched == ()
    opened = open_models(str(trained.path), trained.path.parent / "out", Quiet())
    assert [each.name for each in opened] == ["base", "better"]
    with pytest.raises(RecipeError, match=r"no such method[\s\S]*bettr"):
        load_recipe(trained.path.with_suffix(".toml"), ['tax.methods=["bettr"]'])


def test_checkpoints_that_were_not_kept_are_missed(trained):
    shutil.rmtree(trained.checkpoints("worse") / VALIDATED)
    with pytest.raises(StoreError, match=r"not kept[\s\S]*--redo train"):
        measure_tax(Run(trained, Quiet(), frozenset(["worse"])))


def test_more_checkpoint_rollouts_than_rollouts_are_refused():
    with pytest.raises(RecipeError, match="k and checkpoints within them"):
        load_recipe(None, ["tax.rollouts=4", "tax.checkpoints=5"])
