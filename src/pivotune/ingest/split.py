"""A trajectory to its turns: every assistant message is one, calls or plain language alike."""

from itertools import islice, takewhile

from pivotune.core.types import TOOL_ERROR, JsonObject, Message, Trajectory, Turn

CONTEXT_MESSAGES = "context_messages"


def split_turns(trajectory: Trajectory) -> list[Turn]:
    """Candidates in order; the state of each is every message before it, thinking included.

    `context_messages` in the meta says how many leading messages are context only: the history
    that a single-step row was cut from (other rows hold its turns), or a demonstration.
    """
    positions = _positions(trajectory)
    return [
        Turn(
            id=f"{trajectory.id}#{index}",
            trajectory_id=trajectory.id,
            task=trajectory.task,
            index=index,
            state=trajectory.messages[:position],
            tools=trajectory.tools,
            expert=trajectory.messages[position],
            meta=trajectory.meta | _outcome(trajectory, position),
        )
        for index, position in enumerate(positions)
        if position >= _context(trajectory)
    ]


def count_turns(trajectory: Trajectory) -> int:
    """How many turns `split_turns` gives, without making them."""
    context = _context(trajectory)
    return sum(position >= context for position in _positions(trajectory))


def _positions(trajectory: Trajectory) -> list[int]:
    return [i for i, message in enumerate(trajectory.messages) if message.role == "assistant"]


def _outcome(trajectory: Trajectory, position: int) -> JsonObject:
    """What a turn's meta says of the results that follow it, whatever the row's own meta says."""
    results = takewhile(_is_result, islice(trajectory.messages, position + 1, None))
    failed = any(result.failed for result in results)
    return {TOOL_ERROR: failed} if failed or TOOL_ERROR in trajectory.meta else {}


def _is_result(message: Message) -> bool:
    return message.role == "tool"


def _context(trajectory: Trajectory) -> int:
    """A row's own meta may use the key for something else."""
    leading = trajectory.meta.get(CONTEXT_MESSAGES, 0)
    return leading if isinstance(leading, int) else 0
