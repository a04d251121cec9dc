"""Teachers that cannot teach are refused before anything is spent."""

import pytest

from pivotune.core.errors import RecipeError
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.teachers import check_teachers
from tiny_models import tiny_policy


def check(method):
    """`method`: a TOML table of the method."""
    check_teachers(load_recipe(None, [f"methods={{a={method}}}"]))


OPD = "{objective='opd', learning_rate=1e-3"


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (f"{OPD}}}", r"methods\.a: this method learns from another policy, and none is named"),
        (f"{OPD}, teacher_model='server'}}", "an endpoint cannot score given tokens"),
        ("{objective='tcod', learning_rate=1e-3}", "none is named"),
        (
            "{objective='pivot_opd', learning_rate=1e-3, settings={teacher={kind='model'}}}",
            "none is named",
        ),
        (
            "{objective='mixed', learning_rate=1e-3, settings={sources={b={objective='sod'}}}}",
            "none is named",
        ),
    ],
)
def test_a_teacher_that_is_missing_or_cannot_score(method, problem):
    with pytest.raises(RecipeError, match=problem):
        check(method)


def test_a_teacher_of_another_vocabulary(tmp_path):
    tiny_policy(hidden_size=16, intermediate_size=24, num_hidden_layers=1).save(tmp_path)
    with pytest.raises(RecipeError, match="vocabulary is not the student's"):
        check(f"{OPD}, teacher_model='{tmp_path}'}}")
    # One that is only asked in words may have any.
    asked = "settings={teacher={kind='model'}}"
    named = f"teacher_model='{tmp_path}'"
    check(f"{{objective='pivot_opd', learning_rate=1e-3, {named}, {asked}}}")


def test_methods_that_need_no_teacher():
    check(f"{OPD}, teacher_model='lab'}}")
    for objective in ("pivot_opd", "opsd", "rlsd", "sft", "episode_grpo"):
        check(f"{{objective='{objective}', learning_rate=1e-3}}")
    off = "settings={w_prev=0.0, w_traj=0.0, w_rec=0.0, teacher={kind='model'}}"
    check(f"{{objective='pivot_opd', learning_rate=1e-3, {off}}}")
