"""One turn ready for a reader: messages cut and harmless, equal samples counted together.

The report and the local view show turns alike. What in a sample differs from the expert's
action is told word by word.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from pivotune.core.types import Message, ParseOutcome, Verdict
from pivotune.report.actions import action_text
from pivotune.report.data import SampleView, TurnDetail
from pivotune.report.text import number, show, show_line

SHOWN_MESSAGES = 6
"""Messages of a state shown in full detail: the last ones."""
SHOWN_ACTIONS = 12
"""Different sampled actions shown for a turn."""
COMPARED_WORDS = 300
"""Longer actions are shown without marks: a difference of everything tells nothing."""

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


class Piece(msgspec.Struct, frozen=True):
    """A run of text, and whether the expert's action lacks it."""

    text: str
    differs: bool = False


class ShownMessage(msgspec.Struct, frozen=True):
    """One message of a state; `number` counts the messages of the state from 0."""

    role: str
    text: str
    number: int
    left: int


class ShownAction(msgspec.Struct, frozen=True):
    """Equal samples of one turn: how many, and the verdict on them."""

    count: int
    pieces: tuple[Piece, ...]
    reward: str
    tone: str
    reason: str
    outcome: str


class ShownTurn(msgspec.Struct, frozen=True):
    """One turn in full; `hidden` earlier messages are left out."""

    title: str
    mean: str
    badge: str
    task: str
    sampling: str
    hidden: int
    messages: tuple[ShownMessage, ...]
    expert: str
    expert_says: str
    actions: tuple[ShownAction, ...]
    more_actions: int


def show_turn(
    turn: TurnDetail, *, messages: int = SHOWN_MESSAGES, characters: int = 1500
) -> ShownTurn:
    """The last `messages` of the state, each cut at `characters`, and all different samples."""
    rewards = [each.verdict.reward for each in turn.samples if each.verdict.reward is not None]
    mean = sum(rewards) / len(rewards) if rewards else float("nan")
    groups = Counter(_key(each) for each in turn.samples)
    first = {_key(each): each for each in reversed(turn.samples)}
    hidden = max(0, len(turn.state) - messages)
    return ShownTurn(
        title=f"turn {turn.depth + 1}: {show_line(turn.expert_action, 60)}",
        mean=number(mean),
        badge="pivot" if turn.selected else "",
        task=show_line(f"{turn.task_id} · {turn.turn_id}", 160),
        sampling=turn.sampling,
        hidden=hidden,
        messages=tuple(
            _show_message(each, hidden + i, characters)
            for i, each in enumerate(turn.state[hidden:])
        ),
        expert=show(turn.expert_action, 600),
        expert_says=f"reward {_reward(turn.expert)}: {_reason(turn.expert)}",
        actions=tuple(
            _show_action(first[key], count, turn.expert_action)
            for key, count in groups.most_common(SHOWN_ACTIONS)
        ),
        more_actions=max(0, len(groups) - SHOWN_ACTIONS),
    )


def _key(sample: SampleView) -> tuple[str, ParseOutcome, float | None, str]:
    return sample.action, sample.outcome, sample.verdict.reward, _reason(sample.verdict)


def _reward(verdict: Verdict) -> str:
    return "invalid" if verdict.reward is None else f"{verdict.reward:g}"


def _reason(verdict: Verdict) -> str:
    """The reason, and the parts that the reward was made of."""
    parts = ", ".join(f"{name} {value:g}" for name, value in verdict.parts.items())
    return show_line(" · ".join(filter(None, (verdict.reason, parts))), 240)


def _show_action(sample: SampleView, count: int, expert: str) -> ShownAction:
    reward = sample.verdict.reward
    return ShownAction(
        count=count,
        pieces=tuple(difference(expert, sample.action)) or (Piece("(nothing)"),),
        reward=_reward(sample.verdict),
        tone="even" if reward is None else "good" if reward >= 0.5 else "bad",
        reason=_reason(sample.verdict),
        outcome="" if sample.outcome is ParseOutcome.OK else sample.outcome.value,
    )


def _show_message(message: Message, place: int, characters: int) -> ShownMessage:
    text = message_text(message)
    return ShownMessage(message.role, show(text, characters), place, max(0, len(text) - characters))


def message_text(message: Message) -> str:
    """Thinking, content and calls of a message."""
    return "\n".join(filter(None, (message.thinking, action_text(message))))


def difference(expert: str, action: str, limit: int = 600) -> Iterator[Piece]:
    """The action in pieces, those marked that the expert's action does not have there."""
    wanted, given = _WORDS.findall(expert), _WORDS.findall(action[:limit])
    if not action or max(len(wanted), len(given)) > COMPARED_WORDS or len(action) > limit:
        if action:
            yield Piece(show(action, limit))
        return
    matcher = difflib.SequenceMatcher(None, wanted, given, autojunk=False)
    for kind, _, _, start, end in matcher.get_opcodes():
        if start < end:
            yield Piece(show("".join(given[start:end]), limit), kind != "equal")
