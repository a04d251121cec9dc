"""A trajectory to its turns: every assistant message is one, calls or plain language alike."""

from pivotune.core.types import Trajectory, Turn

ONLY_LAST_TURN = "only_last_turn"


def split_turns(trajectory: Trajectory) -> list[Turn]:
    """Candidates in order; the state of each is every message before it, thinking included.

    A single-step row says in its meta that only its last message is a candidate: what stands
    before it is the history that the row was cut from, and other rows hold those turns.
    """
    positions = [i for i, message in enumerate(trajectory.messages) if message.role == "assistant"]
    turns = [
        Turn(
            id=f"{trajectory.id}#{index}",
            trajectory_id=trajectory.id,
            task=trajectory.task,
            index=index,
            state=trajectory.messages[:position],
            tools=trajectory.tools,
            expert=trajectory.messages[position],
            meta=trajectory.meta,
        )
        for index, position in enumerate(positions)
    ]
    return turns[-1:] if trajectory.meta.get(ONLY_LAST_TURN) else turns
