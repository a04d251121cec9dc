"""Messages of one role in a row as one: for chat templates that demand alternating roles.

Only when asked for, and every merged message is counted: it changes what a policy is shown, and,
where an assistant speaks twice, what counts as a turn.
"""

from collections.abc import Sequence

import msgspec

from pivotune.core.types import Message, Trajectory
from pivotune.ingest.split import CONTEXT_MESSAGES


def merge_roles(trajectory: Trajectory) -> tuple[Trajectory, int]:
    """The trajectory with repeated roles merged, and how many messages that took away.

    Text is joined by an empty line. Tool results stay apart, and nothing is joined to a call.
    Context and candidates are merged apart from each other.
    """
    context = trajectory.meta.get(CONTEXT_MESSAGES, 0)
    leading = context if isinstance(context, int) else 0
    before = _merge(trajectory.messages[:leading])
    after = _merge(trajectory.messages[leading:])
    merged = len(trajectory.messages) - len(before) - len(after)
    if not merged:
        return trajectory, 0
    meta = trajectory.meta | ({CONTEXT_MESSAGES: len(before)} if leading else {})
    return msgspec.structs.replace(trajectory, messages=(*before, *after), meta=meta), merged


def _merge(messages: Sequence[Message]) -> list[Message]:
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is None or not _mergeable(last, message):
            merged.append(message)
            continue
        merged[-1] = msgspec.structs.replace(
            message,
            content=_join(last.content, message.content),
            thinking=_join(last.thinking, message.thinking),
        )
    return merged


def _mergeable(first: Message, second: Message) -> bool:
    return first.role == second.role != "tool" and not first.tool_calls


def _join(first: str, second: str) -> str:
    return "\n\n".join(filter(None, (first, second)))
