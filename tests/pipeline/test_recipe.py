from pathlib import Path

import msgspec
import pytest

from pivotune.core.config import encode_config
from pivotune.core.errors import RecipeError
from pivotune.pipeline.recipe import Recipe, TaxConfig, load_recipe


def test_an_empty_recipe_is_the_demo_s_job_without_its_tax():
    assert load_recipe(None) == Recipe()
    demo = load_recipe(Path(__file__).parents[2] / "recipes" / "demo.toml")
    assert demo.tax.rollouts > 0
    assert msgspec.structs.replace(demo, tax=TaxConfig()) == Recipe()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profile]\nsample = 4", "did you mean 'samples'"),
        ("[select]\nrule = 'advv'", "expected: one of random, mixed, adv, gap"),
        ("[profile]\nsamples = 1", "can never be mixed"),
        ("[profile.adaptive]\nfirst = 0", "first starts at 1"),
        ("[profile.adaptive]\n[select]\nrule = 'mixed'", "rules adv, mixed|rules mixed"),
        ("[profile.adaptive]\n[select]\nmean_below = 0.5", "select.mean_below 0.5"),
        ("[methods.a]\nobjective = 'sft'", "learning_rate"),
        ("[methods.a]\nobjective = 'sft'\nlearning_rate = 1e-3\nsteps = 0", "start at 1"),
        ("[methods.a]\nobjective = 'sft'\nlearning_rate = 1e-3\nrule = 'x'", "unknown rule"),
    ],
)
def test_a_recipe_that_cannot_be_meant_is_refused_by_key(tmp_path, text, message):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)


def test_a_recipe_survives_being_written_out(tmp_path):

    recipe = load_recipe(None, ["methods.rl={objective='local_grpo', learning_rate=0.1}"])
    path = tmp_path / "recipe.toml"
    path.write_bytes(encode_config(recipe))
    assert load_recipe(path) == recipe
