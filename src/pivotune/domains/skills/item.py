"""What a skill item is, and the two exact comparisons that nearly every skill uses."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from pivotune.core.types import Message, ToolSpec, content_hash

T = TypeVar("T")


class SkillItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question with its right answer: a text, or a call of one of the `tools`."""

    skill: str
    question: str
    answer: Message
    tools: tuple[ToolSpec, ...] = ()

    @property
    def id(self) -> str:
        """Identifies the content: equal questions of one skill have equal ids."""
        return f"{self.skill}-{content_hash(self.skill, self.question)}"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt."""
        return (Message("user", self.question),)


@dataclass(frozen=True, slots=True)
class Skill:
    """A generator and a check; the generator takes all its randomness from the given source."""

    make: Callable[[random.Random], SkillItem]
    check: Callable[[SkillItem, Message], bool]


def text_item(skill: str, question: str, answer: str) -> SkillItem:
    """An item that is answered in words."""
    return SkillItem(skill, question, Message("assistant", answer))


def same_text(item: SkillItem, message: Message) -> bool:
    """The expected text and no call; space around and between words does not count."""
    return not message.tool_calls and message.content.split() == item.answer.content.split()


def same_call(item: SkillItem, message: Message) -> bool:
    """Exactly the expected call: name and every argument, values of the same JSON type."""
    if len(message.tool_calls) != 1 or message.content.strip():
        return False
    (given,), (wanted,) = message.tool_calls, item.answer.tool_calls
    return given.name == wanted.name and content_hash(given.arguments) == content_hash(
        wanted.arguments
    )


def draw_many(rng: random.Random, values: Sequence[T], low: int, high: int) -> list[T]:
    """Between `low` and `high` values, each drawn anew."""
    return [rng.choice(values) for _ in range(rng.randint(low, high))]
