"""How a model is asked about an episode, and how its answer is read.

`json`      for models that follow instructions: one JSON object with turns, actions, a lesson
`judging`   the short form that the embedded base was taught: one mistake, no lesson; it
            suggests an action by acting itself
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.types import Completion, Episode, Message
from pivotune.domains.skills.hints import describe_action
from pivotune.domains.skills.judging import (
    LONGEST,
    NO_MISTAKE,
    judging_question,
    read_judgement,
)

_ERRAND = "Your task is to: "


class Answer(msgspec.Struct, frozen=True):
    """Turns (from 0) with the action named for each, the lesson, and what could not be read."""

    turns: tuple[tuple[int, str], ...] = ()
    lesson: str = ""
    problems: dict[str, int] = {}


class Question(Protocol):
    """Words of a question and of its answer. `by_acting`: an action is asked for by acting.

    `answer_tokens`: how long an answer about an episode may well be.
    """

    @property
    def name(self) -> str: ...

    @property
    def by_acting(self) -> bool: ...

    @property
    def answer_tokens(self) -> int: ...

    def about_episode(self, episode: Episode, limit: int) -> tuple[Message, ...]: ...

    def read(self, completion: Completion, limit: int) -> Answer: ...

    def about_action(
        self, history: tuple[Message, ...], admissible: Sequence[str]
    ) -> tuple[Message, ...]: ...


class JsonQuestion:
    """Turns are numbered from 1 in the question and in the answer."""

    name = "json"
    by_acting = False
    answer_tokens = 256

    def about_episode(self, episode: Episode, limit: int) -> tuple[Message, ...]:
        start = "\n".join(each.content for each in episode.opening)
        lines = [
            f"{i}. {describe_action(action)} -> {reply}"
            for i, (action, reply) in enumerate(_steps(episode), 1)
        ]
        outcome = f"reward {episode.reward}, ended by {episode.ended}"
        text = (
            f"Below is one attempt at a task.\n\n{start}\n\n" + "\n".join(lines) + "\n\n"
            f"Outcome: {outcome}.\n\nName at most {limit} turns that decided how it went, and for "
            "each one action that would have been better there. Sum up in one sentence what to "
            'learn from it. Answer with one JSON object and nothing else: {"turns": [{"turn": 3, '
            '"action": "…"}], "lesson": "…"}'
        )
        return (Message("user", text),)

    def read(self, completion: Completion, limit: int) -> Answer:
        text = completion.message.content
        first, last = text.find("{"), text.rfind("}")
        try:
            value = parse_json(text[first : last + 1]) if 0 <= first < last else None
        except JsonProblemError:
            value = None
        if not isinstance(value, dict):
            cut = completion.finish == "length"
            return Answer(problems={"cut off" if cut else "not a JSON object": 1})
        lesson = value.get("lesson")
        problems: Counter[str] = Counter()
        listed = value.get("turns", [])
        if not isinstance(listed, list):
            listed = []
            problems["turns are no list"] += 1
        named = [pair for each in listed if (pair := _read_turn(each, problems)) is not None]
        if len(named) > limit:
            problems["more turns than asked for"] += len(named) - limit
        said = " ".join(lesson.split()) if isinstance(lesson, str) else ""
        return Answer(tuple(named[:limit]), said, dict(problems))

    def about_action(
        self, history: tuple[Message, ...], admissible: Sequence[str]
    ) -> tuple[Message, ...]:
        listed = "\n".join(f"- {each}" for each in admissible)
        text = "Which action should come next? Answer with the action only."
        if listed:
            text = f"Which one of these actions should come next?\n{listed}\nAnswer with it only."
        return (*history, Message("user", text))


def _read_turn(value: Any, problems: Counter[str]) -> tuple[int, str] | None:
    if not isinstance(value, dict):
        problems["turn is no object"] += 1
        return None
    turn, action = value.get("turn"), value.get("action")
    if not isinstance(turn, int) or isinstance(turn, bool):
        problems["turn is no number"] += 1
        return None
    if not isinstance(action, str) or not action.strip():
        problems["no action named"] += 1
        return None
    return turn - 1, action


class JudgingQuestion:
    """The judging skill of the embedded base.

    It was taught attempts of at most `LONGEST` steps: of a longer one it is shown the first of
    them, as an attempt that had not solved the task by then. The first mistake is mostly there.
    """

    name = "judging"
    by_acting = True
    answer_tokens = 64

    def about_episode(self, episode: Episode, limit: int) -> tuple[Message, ...]:
        errand = episode.opening[-1].content.rpartition(_ERRAND)[2]
        won = episode.reward is not None and episode.reward >= 0.5
        solved = won and len(episode.turns) <= LONGEST
        return (judging_question(errand, _steps(episode)[:LONGEST], solved),)

    def read(self, completion: Completion, limit: int) -> Answer:
        found = read_judgement(completion.message)
        if found is None:
            said_none = completion.message.content.strip() == NO_MISTAKE
            return Answer() if said_none else Answer(problems={"not a judgement": 1})
        turn, action = found
        return Answer(((turn - 1, action),)[:limit])

    def about_action(
        self, history: tuple[Message, ...], admissible: Sequence[str]
    ) -> tuple[Message, ...]:
        return history


QUESTIONS: dict[str, Question] = {"json": JsonQuestion(), "judging": JudgingQuestion()}


def _steps(episode: Episode) -> list[tuple[Message, str]]:
    """Actions with the replies to them."""
    return [
        (turn.completion.message, " ".join(each.content for each in turn.replies))
        for turn in episode.turns
    ]
