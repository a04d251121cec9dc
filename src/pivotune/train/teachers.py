"""The teacher of a method by name: the oracle, another policy, or the student's own weights."""

from typing import Literal

import msgspec

from pivotune.core.errors import RecipeError
from pivotune.models.chat import ChatFormat
from pivotune.train.objective import Materials, required
from pivotune.turns.mistakes import ModelTeacher, OracleTeacher, Teacher
from pivotune.turns.questions import QUESTIONS


class TeacherConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is asked, and how."""

    kind: Literal["oracle", "player", "model", "self"] = "oracle"
    """The domain's oracle (which knows all), the same marks with the actions of a good player
    (ours), the method's `teacher_model`, or the student."""
    waste: bool = False
    """The oracle also marks turns that change nothing (ours)."""
    question: str = "judging"
    """Form of a model's question: "json", or "judging" for the embedded base."""
    temperature: float = 0.0
    """A model's answers are sampled at it."""
    max_tokens: int = 0
    """Limit of a model's answer; 0: what the form of question needs (judging 64, json 256)."""

    @property
    def is_model(self) -> bool:
        """Whether a sampler is asked."""
        return self.kind in ("model", "self")


def open_teacher(materials: Materials, config: TeacherConfig, method: str) -> Teacher:
    """Raises `RecipeError` for what is missing."""
    make = required(materials.make_environment, "environments", method)
    if config.is_model and config.waste:
        raise RecipeError(
            f"{method}: only the oracle and the player know what was wasted",
            fix='leave teacher.waste out, or use kind = "oracle" or "player"',
        )
    if not config.is_model:
        return OracleTeacher(make, waste=config.waste, fair=config.kind == "player")
    if config.question not in QUESTIONS:
        raise RecipeError(
            f"{method}: unknown form of question",
            got=config.question,
            expected=f"one of {', '.join(QUESTIONS)}",
        )
    question = QUESTIONS[config.question]
    sampler = materials.sampler if config.kind == "self" else materials.teacher
    return ModelTeacher(
        required(sampler, "a teacher (the method's `teacher_model`)", method),
        make,
        question,
        temperature=config.temperature,
        max_tokens=config.max_tokens or question.answer_tokens,
    )


def check_same_tokens(materials: Materials, method: str) -> None:
    """Raises `RecipeError` unless teacher and student have the same vocabulary.

    A teacher whose tokenizer is not known here is trusted: its endpoint was told the ids.
    """
    if materials.chat is not None and materials.teacher_chat is not None:
        check_vocabulary(materials.chat, materials.teacher_chat, method)


def check_vocabulary(ours: ChatFormat, theirs: ChatFormat, method: str) -> None:
    """Raises `RecipeError` unless a teacher's tokens are the student's."""
    mine, other = ours.tokenizer.get_vocab(), theirs.tokenizer.get_vocab()
    if mine != other:
        apart = sum(other.get(token) != number for token, number in mine.items())
        raise RecipeError(
            f"{method}: the teacher's vocabulary is not the student's, so it cannot score its "
            "tokens",
            got=f"{len(other)} tokens, {apart} of the student's {len(mine)} missing or elsewhere",
            expected="the same tokenizer",
            fix="use a teacher of the same family, or let it only name actions (pivot_opd)",
        )
