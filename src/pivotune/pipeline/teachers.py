"""Whether the methods can learn from the teachers that they name: asked before all spending."""

from collections.abc import Iterator

import msgspec

from pivotune.core.errors import RecipeError
from pivotune.models.policy import load_chat
from pivotune.pipeline.recipe import Method, Recipe, model_path
from pivotune.pipeline.training import objective_config
from pivotune.train.episodes import EpisodeConfig, TeacherUse
from pivotune.train.objectives import load_objective
from pivotune.train.objectives.mixed import MixedConfig
from pivotune.train.teachers import check_vocabulary


def check_teachers(recipe: Recipe) -> None:
    """Raises `RecipeError` for a teacher that is missing, or whose tokens are not the student's."""
    for name, method in recipe.methods.items():
        uses = set(_uses(objective_config(method))) - {""}
        if uses:
            _check(recipe, method, f"methods.{name}", scores="scores" in uses)


def _uses(config: msgspec.Struct) -> Iterator[TeacherUse]:
    if isinstance(config, EpisodeConfig):
        yield config.teacher_use
    if isinstance(config, MixedConfig):
        for source in config.sources.values():
            yield from _uses(
                msgspec.convert(source.settings, load_objective(source.objective).Config)
            )


def _check(recipe: Recipe, method: Method, where: str, *, scores: bool) -> None:
    if not method.teacher_model:
        raise RecipeError(
            "this method learns from another policy, and none is named",
            where=where,
            fix='set teacher_model to a folder, a hub name or "server", or choose another teacher '
            "(settings.teacher)",
        )
    if not scores:
        return
    if method.teacher_model == "server":
        raise RecipeError(
            "an endpoint cannot score given tokens, which this method needs",
            where=where,
            fix="set teacher_model to a folder or a hub name",
        )
    student, teacher = load_chat(recipe.model_path), load_chat(model_path(method.teacher_model))
    check_vocabulary(student, teacher, where)
