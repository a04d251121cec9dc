import pytest

from pivotune.core.errors import RecipeError
from pivotune.pipeline.recipe import Method
from pivotune.pipeline.training import is_set, loss_config
from pivotune.train.losses import LossConfig


def test_a_method_says_how_its_loss_is_built():
    assert loss_config(Method("local_grpo", 1e-3)) == LossConfig()
    said = {"ratio": "sequence", "clip_high": 0.3, "normaliser": "constant", "constant": 512}
    found = loss_config(Method("local_grpo", 1e-3, kl=0.1, loss=said))
    assert found == LossConfig(0.2, 0.3, "sequence", "constant", 512.0, beta=0.1)


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ({"beta": 0.1}, "use the key kl"),
        ({"clip": 0.2}, "did you mean"),
        ({"ratio": "word"}, "Invalid enum value 'word'"),
        ({"clip_low": -0.1}, "no meaning"),
        ({"normaliser": "constant", "constant": 0}, "no meaning"),
        ({"importance_cap": 0.0}, "no meaning"),
    ],
)
def test_a_loss_that_cannot_be_meant_is_refused(loss, why):
    with pytest.raises(RecipeError, match=why):
        loss_config(Method("local_grpo", 1e-3, loss=loss))


def test_settings_of_mixed_methods_are_found():
    """A method that needs turns of its own gets them, also inside a mixture."""
    inner = {"objective": "local_grpo", "settings": {"guard": 4}}
    mixed = {"sources": {"a": {"objective": "sft"}, "b": inner}}
    assert is_set("guard", mixed)
    assert is_set("guard", {"sources": {"c": {"objective": "mixed", "settings": mixed}}})
    assert not is_set("refresh", mixed)
