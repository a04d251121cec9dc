import msgspec
import pytest

from pivotune.core.config import load_config
from pivotune.core.errors import RecipeError


class Inner(msgspec.Struct, frozen=True):
    rate: float = 0.5


class Outer(msgspec.Struct, frozen=True):
    model: str = "lab"
    steps: int = 3
    inner: Inner = Inner()


def test_file_and_overrides(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('model = "x"\n[inner]\nrate = 0.25\n')
    assert load_config(Outer, path, ["steps=7"]) == Outer("x", 7, Inner(0.25))
    assert load_config(Outer, path, ["inner.rate=1", "model=a/b"]) == Outer("a/b", 3, Inner(1.0))


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("stepz = 3", [], "did you mean 'steps'"),
        ("[inner]\nrat = 3", [], "did you mean 'rate'"),
        ("", ["inner.raet=1"], "did you mean 'rate'"),
        ("steps = 'many'", [], "steps"),
        ("steps = ", [], "not a TOML file"),
        ("", ["steps"], "key=value"),
        ("steps = 1", ["steps.x=1"], "is a value, not a table"),
    ],
)
def test_bad_recipes_say_what_is_wrong(tmp_path, text, overrides, message):
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=message):
        load_config(Outer, path, overrides)


def test_a_missing_recipe_names_the_file(tmp_path):
    with pytest.raises(RecipeError, match=r"none\.toml"):
        load_config(Outer, tmp_path / "none.toml")
