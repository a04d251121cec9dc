"""Actions as one line of text: what a teacher writes, what is admissible, what was committed.

An environment that has a command language says how to spell and read it (`Worded`); elsewhere
an action is its message: text as it stands, calls as `name{arguments}`.
"""

import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pivotune.core.protocols import Environment
from pivotune.core.types import Message, ParseOutcome, ToolSpec
from pivotune.domains.skills.hints import describe_action
from pivotune.models.parse import parse_action

OVERLAP = 0.6
"""Smallest share of common words from which on a text may mean an admissible action (ours)."""
_ARTICLES = frozenset({"a", "an", "the"})


@runtime_checkable
class Worded(Protocol):
    """An environment with a command language."""

    def spell(self, command: str) -> Message: ...

    def read(self, action: Message) -> str | None: ...


def normalise(text: str) -> str:
    """Lower case, white space collapsed."""
    return " ".join(text.casefold().split())


def committed(environment: Environment | None, action: Message) -> str | None:
    """The action that a message commits to, normalised; None where it commits to none."""
    worded = _worded(environment)
    text = describe_action(action) if worded is None else worded.read(action)
    return normalise(text) if text else None


def _worded(environment: object) -> Worded | None:
    return environment if isinstance(environment, Worded) else None


def resolve_action(text: str, admissible: Sequence[str]) -> str | None:
    """The admissible action that a teacher's text means; None where that is not clear.

    In this order: equal after normalising; equal without articles; the only one that the text
    contains; the strict winner by common words, above `OVERLAP`.
    """
    said = normalise(text)
    by_text = {normalise(each): each for each in admissible}
    if said in by_text:
        return by_text[said]
    bare = _bare(said)
    equal = [each for key, each in by_text.items() if _bare(key) == bare]
    if len(equal) == 1:
        return equal[0]
    contained = [each for key, each in by_text.items() if _contains(said, key)]
    if len(contained) == 1:
        return contained[0]
    return None if contained else _closest(said, by_text)


def _bare(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split() if word not in _ARTICLES)


def _contains(text: str, action: str) -> bool:
    return bool(action) and bool(re.search(rf"(?<!\w){re.escape(action)}(?!\w)", text))


def _closest(said: str, by_text: dict[str, str]) -> str | None:
    words = set(said.split())
    scored = sorted(
        ((_overlap(words, set(key.split())), each) for key, each in by_text.items()), reverse=True
    )
    if not scored or scored[0][0] < OVERLAP:
        return None
    if len(scored) > 1 and scored[1][0] == scored[0][0]:
        return None
    return scored[0][1]


def _overlap(left: set[str], right: set[str]) -> float:
    return len(left & right) / max(1, len(left | right))


def spell_action(
    text: str, environment: Environment | None, tools: Sequence[ToolSpec]
) -> Message | None:
    """A teacher's text as an action at a state; None where it names no possible one.

    Where the environment knows what is admissible the text is resolved to that; elsewhere it
    has to be an action as the policy would write it.
    """
    view = environment.oracle() if environment is not None else None
    if view is not None:
        command = resolve_action(text, view.admissible)
        if command is None:
            return None
        worded = _worded(environment)
        return Message("assistant", command) if worded is None else worded.spell(command)
    parsed = parse_action(text, finish="stop", expects_call=True if tools else None)
    return parsed.message if parsed.outcome is ParseOutcome.OK else None
