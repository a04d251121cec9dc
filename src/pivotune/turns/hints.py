"""Hints: passages put behind a context for a privileged self-teacher, and their traces.

    state (what the policy sees) | user: "A reasonable action here is …"      the hinted context

Only the teacher's side of a comparison ever sees a hinted context; `leaks` and `hint_passages`
are for making sure of it. A template is text with one slot; an empty one gives no hint at all.
"""

import re
from collections.abc import Sequence

from pivotune.core.errors import RecipeError
from pivotune.core.types import Completion, Message
from pivotune.domains.skills.hints import ACTION_HINT, describe_action

__all__ = [
    "ACTION_HINT",
    "LESSON_HINT",
    "SKILL_HINT",
    "check_template",
    "hint_passages",
    "leaks",
]

LESSON_HINT = "An earlier attempt taught this: {lesson} Decide in your own way; do not mention it."
SKILL_HINT = "A skill that may help here: {lesson} Decide in your own way; do not mention it."
_SLOT = re.compile(r"{(\w*)}")
_MENTION = re.compile(r"\bhint(s|ed|ing)?\b", re.IGNORECASE)
_LEAST_PASSAGE = 12


def check_template(template: str, slot: str) -> None:
    """Raises `RecipeError` unless the template is empty or has exactly the one slot."""
    if template and _SLOT.findall(template) != [slot]:
        raise RecipeError(
            "a hint template has one slot", got=template, expected=f"one {{{slot}}}, or no text"
        )


def with_action_hint(
    state: Sequence[Message], action: Message, template: str = ACTION_HINT
) -> tuple[Message, ...]:
    """The context of the self-teacher that is told an action."""
    return _with(state, template, describe_action(action))


def with_lesson(
    state: Sequence[Message], lesson: str, template: str = LESSON_HINT
) -> tuple[Message, ...]:
    """The context of the self-teacher that is told a lesson."""
    return _with(state, template, lesson)


def _with(state: Sequence[Message], template: str, filling: str) -> tuple[Message, ...]:
    if not template:
        return tuple(state)
    return (*state, Message("user", _SLOT.sub(lambda _: filling, template)))


def hint_passages(template: str) -> list[str]:
    """The fixed parts of a template, long enough to be told from ordinary text."""
    parts = (part.strip() for part in re.split(r"{\w*}", template))
    return [part for part in parts if len(part) >= _LEAST_PASSAGE]


def leaks(completion: Completion, action: Message, template: str = ACTION_HINT) -> bool:
    """Whether a hinted response gives its hint away: by the word, or by saying its passages.

    The suggested action itself may be said, whatever words it has.
    """
    text = f"{completion.message.thinking} {completion.message.content} {completion.text}"
    values = (v for call in action.tool_calls for v in (call.arguments or {}).values())
    for named in (action.content, *values):
        if isinstance(named, str) and named:
            text = re.sub(rf"(?<!\w){re.escape(named)}(?!\w)", " ", text)
    said = text.casefold()
    passages = (passage.casefold() for passage in hint_passages(template))
    return bool(_MENTION.search(text)) or any(passage in said for passage in passages)
