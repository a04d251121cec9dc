from pathlib import Path

import msgspec
import pytest

from pivotune.pipeline.recipe import load_recipe
from pivotune.train.objectives import load_objective

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_settings_of_every_shipped_method_can_be_meant(path):
    recipe = load_recipe(path)
    for method in recipe.methods.values():
        kind = load_objective(method.objective)
        config = msgspec.convert(method.settings, kind.Config)
        for source in getattr(config, "sources", {}).values():
            msgspec.convert(source.settings, load_objective(source.objective).Config)
