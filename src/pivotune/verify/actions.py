"""What verifiers share: how an action that is no action is turned down, and settings."""

from collections.abc import Sequence

import msgspec

from pivotune.core.types import (
    Completion,
    Message,
    ParseOutcome,
    ToolCall,
    Turn,
    Verdict,
    content_hash,
)


def accept(reason: str = "accepted", **parts: float) -> Verdict:
    """Reward 1."""
    return Verdict(1.0, reason, parts)


def reject(reason: str, **parts: float) -> Verdict:
    """Reward 0, with the parts that say which kind of failure it was."""
    return Verdict(0.0, reason, parts)


def invalid(reason: str) -> Verdict:
    """No verdict: the sample leaves the group."""
    return Verdict(None, reason)


def reject_broken(completion: Completion) -> Verdict | None:
    """The verdict of an action that could not be read; None when it could.

    The category is a part of its own, so that profiles can count it.
    """
    outcome = completion.outcome
    if outcome.broken:
        why = f": {completion.problem}" if completion.problem else ""
        return Verdict(0.0, f"{outcome.value}{why}", {outcome.value: 1.0})
    message = completion.message
    if not message.content.strip() and not message.tool_calls:
        return Verdict(0.0, "empty: neither text nor a call", {ParseOutcome.EMPTY.value: 1.0})
    return None


def reject_other_kind(turn: Turn, completion: Completion) -> Verdict | None:
    """Broken actions, a message where a call was expected, a call where a message was."""
    if broken := reject_broken(completion):
        return broken
    expected, actual = turn.expert.tool_calls, completion.message.tool_calls
    if expected and not actual:
        return Verdict(0.0, "no_call: a tool call was expected", {ParseOutcome.NO_CALL.value: 1.0})
    if actual and not expected:
        return Verdict(
            0.0,
            f"unexpected_call: a message was expected, got a call of {actual[0].name}",
            {ParseOutcome.UNEXPECTED_CALL.value: 1.0},
        )
    return None


def say_repairs(completion: Completion) -> str:
    """What the reason of an accepted action adds when a lenient reading repaired it."""
    return f"accepted ({completion.problem})" if completion.problem else "accepted"


def versioned(number: int, settings: msgspec.Struct) -> str:
    """A verifier's version: its rules' number, and a hash of settings that are not defaults."""
    if settings == type(settings)():
        return str(number)
    return f"{number}-{content_hash(settings)[:8]}"


def as_completion(message: Message) -> Completion:
    """A recorded message in the form in which actions are verified."""
    return Completion((), (), (), message, ParseOutcome.OK, "stop", 0.0, "recorded")


def names_of(calls: Sequence[ToolCall]) -> str:
    """The calls' names for a reason."""
    return ", ".join(call.name for call in calls) or "none"
