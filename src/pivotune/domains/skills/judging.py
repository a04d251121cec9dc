"""Helper skill: read a short transcript with its outcome, name the first mistake and a remedy.

The question numbers the turns from 1:

    Judge this attempt. Task: put a mug in the safe.
    1. go{"to": "desk 1"} -> You see a mug 1 and a pen 2.
    2. go{"to": "safe 1"} -> The safe 1 is closed.
    Outcome: failed. Which turn was the first mistake, and what was better?

and the answer is `turn 2: take{"what": "mug 1"}`, or `no mistake`.
"""

import re
from collections.abc import Sequence

from pivotune.core.types import Message
from pivotune.domains.skills.hints import describe_action

NO_MISTAKE = "no mistake"
LONGEST = 12
"""Steps of the longest attempt that the embedded base was taught to judge."""
_ANSWER = re.compile(r"\s*turn (\d+): (.+?)\s*", re.DOTALL)


def judging_question(task: str, steps: Sequence[tuple[Message, str]], solved: bool) -> Message:
    """The user message that asks; `steps` are the actions with the replies to them."""
    lines = [
        f"{i}. {describe_action(action)} -> {reply}" for i, (action, reply) in enumerate(steps, 1)
    ]
    outcome = "solved" if solved else "failed"
    return Message(
        "user",
        "\n".join(
            (
                f"Judge this attempt. Task: {task}",
                *lines,
                f"Outcome: {outcome}. Which turn was the first mistake, and what was better?",
            )
        ),
    )


def judging_answer(turn: int | None, better: Message | None) -> Message:
    """The assistant message that answers; `turn` counts from 1."""
    if turn is None or better is None:
        return Message("assistant", NO_MISTAKE)
    return Message("assistant", f"turn {turn}: {describe_action(better)}")


def read_judgement(answer: Message) -> tuple[int, str] | None:
    """Turn (from 1) and better action of an answer; None when it names no mistake."""
    found = _ANSWER.fullmatch(answer.content)
    return (int(found[1]), found[2]) if found else None
