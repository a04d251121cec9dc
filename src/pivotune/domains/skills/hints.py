"""Helper skill: an action suggested in the context is taken, without a word about the hint.

A hint is one more user message after the state, so that the hinted prompt extends the plain one.
"""

import json
from collections.abc import Sequence

from pivotune.core.types import Message

ACTION_HINT = (
    "A reasonable action here is {action}. Decide in your own way; do not mention this hint."
)


def describe_action(action: Message) -> str:
    """An action in words: `go{"to": "desk 1"}` for each call, after the content if any."""
    calls = (
        f"{call.name}{json.dumps(call.arguments or {}, ensure_ascii=False)}"
        for call in action.tool_calls
    )
    return " ".join(part for part in (action.content, *calls) if part)


def hint_message(action: Message) -> Message:
    """h(a): the passage that suggests an action."""
    return Message("user", ACTION_HINT.format(action=describe_action(action)))


def with_hint(state: Sequence[Message], action: Message) -> tuple[Message, ...]:
    """The state with the hint behind it: the context of a privileged self-teacher."""
    return (*state, hint_message(action))
