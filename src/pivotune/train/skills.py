"""What the methods with skills share: texts by group of tasks, and how a skill is shown.

How the published methods find and keep their skills is not public: here they are given.
"""

import msgspec

from pivotune.core.errors import RecipeError
from pivotune.core.types import Task
from pivotune.train.episodes import EpisodeConfig
from pivotune.turns.hints import SKILL_HINT, check_template


class SkillConfig(EpisodeConfig, frozen=True, forbid_unknown_fields=True):
    """Skills are given; the passage is ours."""

    skills: dict[str, str] = msgspec.field(default_factory=dict)
    """A skill by group of tasks (`payload["group"]`); "" for tasks of any other group."""
    hint: str = SKILL_HINT
    """The passage with {lesson} that shows a skill."""


def check_skills(config: SkillConfig, method: str) -> None:
    """Raises `RecipeError` for a passage without its slot, and where no skill is given."""
    check_template(config.hint, "lesson")
    if not config.skills:
        raise RecipeError(
            f"{method}: no skills are given",
            fix='name some: settings.skills = {"" = "Look into shut places."}',
        )


def skill_of(config: SkillConfig, task: Task) -> str:
    """The skill for a task; empty where there is none."""
    group = str(task.payload.get("group", ""))
    return config.skills.get(group, config.skills.get("", ""))
