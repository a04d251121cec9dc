"""The teacher of a method by name: the oracle, another policy, or the student's own weights."""

from typing import Literal

import msgspec

from pivotune.core.errors import RecipeError
from pivotune.train.objective import Materials, required
from pivotune.turns.mistakes import ModelTeacher, OracleTeacher, Teacher
from pivotune.turns.questions import QUESTIONS


class TeacherConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is asked, and how."""

    kind: Literal["oracle", "model", "self"] = "oracle"
    """The domain's oracle (an upper bound), the method's `teacher`, or the student as it is."""
    question: str = "judging"
    """Form of a model's question: "json", or "judging" for the embedded base."""
    temperature: float = 0.0
    """A model's answers are sampled at it."""
    max_tokens: int = 64
    """Limit of a model's answer."""


def open_teacher(materials: Materials, config: TeacherConfig, method: str) -> Teacher:
    """Raises `RecipeError` for what is missing."""
    make = required(materials.make_environment, "environments", method)
    if config.kind == "oracle":
        return OracleTeacher(make)
    if config.question not in QUESTIONS:
        raise RecipeError(
            f"{method}: unknown form of question",
            got=config.question,
            expected=f"one of {', '.join(QUESTIONS)}",
        )
    sampler = materials.sampler if config.kind == "self" else materials.teacher
    return ModelTeacher(
        required(sampler, "a teacher (the method's `teacher`)", method),
        make,
        QUESTIONS[config.question],
        temperature=config.temperature,
        max_tokens=config.max_tokens,
    )
