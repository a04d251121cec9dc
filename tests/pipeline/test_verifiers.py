import pytest

from pivotune.core.errors import VerifierError
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.verifiers import open_verifier


def test_verifiers_are_set_by_name(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(
        'verifier = "mine"\n'
        "[verifiers.text]\nthreshold = 0.9\n"
        '[verifiers.mine]\nname = "first_of"\nof = ["tool_call", "close", "progress"]\n'
        '[verifiers.close]\nname = "text"\nthreshold = 0.8\n'
    )
    recipe = load_recipe(path)
    assert open_verifier(recipe, "text").config.threshold == 0.9
    mine = open_verifier(recipe, recipe.verifier)
    assert [member.name for member in mine.members] == ["tool_call", "text", "progress"]
    assert mine.members[1].inner.config.threshold == 0.8


def test_a_composition_is_not_its_own_member(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(
        '[verifiers.a]\nname = "any_of"\nof = ["b"]\n[verifiers.b]\nname = "any_of"\nof = ["a"]\n'
    )
    with pytest.raises(VerifierError, match="unknown verifier"):
        open_verifier(load_recipe(path), "a")
