"""ReAct transcripts as one text: thoughts, actions and observations.

    Question: …                                 Your task is to: …
    Thought 1: … Action 1: Search[x]            > think: …
    Observation 1: …                            OK.
    Thought 2: …                                > go to cabinet 1

A thought and the action after it are one turn; each `>` line is one. The text stays as written.
"""

import re
from typing import Any

from pivotune.core.types import JsonObject, Message, Task, Trajectory
from pivotune.ingest.messages import (
    Draft,
    RefusalError,
    check_messages,
    read_name,
    read_reward,
    read_tools,
)

_STEP = re.compile(r"^(Thought|Action|Observation)\s*(\d*)\s*:", re.MULTILINE)
_PROMPT = re.compile(r"^> ?(.*)$", re.MULTILINE)
_TEXT_KEYS = ("text", "trajectory", "transcript", "scratchpad")
_OUTCOMES = {"correct": 1.0, "success": 1.0, "incorrect": 0.0, "fail": 0.0, "halted": 0.0}
_USED = {*_TEXT_KEYS, "id", "task", "status", "reward", "success", "trial"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    text = _text(row) if isinstance(row, dict) else ""
    if {"Thought", "Observation"} <= {match[1] for match in _STEP.finditer(text)}:
        return "a text with Thought and Observation lines"
    return "a text with `>` lines" if len(_PROMPT.findall(text)) > 1 else ""


def _text(row: JsonObject) -> str:
    return next((row[key] for key in _TEXT_KEYS if isinstance(row.get(key), str)), "")


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    text = _text(row).replace("\r\n", "\n")
    if not text:
        raise RefusalError("no transcript", f"expected a text under one of {', '.join(_TEXT_KEYS)}")
    messages = _read_steps(text) if _STEP.search(text) else _read_prompts(text)
    check_messages(messages, draft)
    name = read_name(row, "id") or draft.name
    reward = _OUTCOMES.get(str(row.get("status")).lower())
    if reward is None:
        reward = read_reward(row, draft, "reward", "success")
    meta: JsonObject = {key: row[key] for key in ("status", "trial") if key in row}
    task = Task(read_name(row, "task") or name, draft.domain)
    tools = read_tools(None, draft)
    draft.ignore(row, _USED)
    return [Trajectory(name, draft.domain, task, tools, messages, reward, meta=meta)]


def _read_steps(text: str) -> tuple[Message, ...]:
    """Everything from a thought or action to the next observation is one turn."""
    marks = list(_STEP.finditer(text))
    messages = [Message("user", text[: marks[0].start()].rstrip("\n"))]
    start: int | None = None
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        end = following.start() if following else len(text)
        if mark[1] == "Observation":
            if start is not None:
                messages.append(Message("assistant", text[start : mark.start()].rstrip("\n")))
                start = None
            messages.append(Message("user", text[mark.start() : end].rstrip("\n")))
        elif start is None:
            start = mark.start()
        elif mark[1] == "Thought":  # no observation stands between two steps
            messages.append(Message("assistant", text[start : mark.start()].rstrip("\n")))
            start = mark.start()
    if start is not None:
        messages.append(Message("assistant", text[start:].rstrip("\n")))
    return tuple(message for message in messages if message.content)


def _read_prompts(text: str) -> tuple[Message, ...]:
    marks = list(_PROMPT.finditer(text))
    if not marks:
        raise RefusalError("no assistant turn", "no `>` line and no Thought line")
    messages = [Message("user", text[: marks[0].start()].rstrip("\n"))]
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        messages.append(Message("assistant", mark[1].strip()))
        observation = text[mark.end() : following.start() if following else len(text)].strip("\n")
        if observation:
            messages.append(Message("user", observation))
    return tuple(messages)
