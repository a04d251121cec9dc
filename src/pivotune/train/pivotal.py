"""The parts of PivotOPD that are pure functions of what was played, found and scored."""

import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from pivotune.core.types import Cost, Episode, ParseOutcome
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import Floats, TokenTree
from pivotune.train.episodes import EpisodeGroup, Row, all_rows, grpo_rows
from pivotune.train.trunks import ActionSignal, action_signal, turn_tree
from pivotune.turns.mistakes import Finding, Mark
from pivotune.turns.recovery import Recovery

Place = tuple[str, int, int]
"""Task id, number of the episode in its group, turn."""

DistilLoss = Literal["surrogate", "cross_entropy"]


class Clock:
    """Seconds since the last stop, put into a phase's cost."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def stop(self, cost: Cost) -> Cost:
        now = time.perf_counter()
        seconds, self._at = now - self._at, now
        return cost + Cost(seconds=seconds)


def with_terms(groups: Sequence[EpisodeGroup], terms: dict[Place, Floats]) -> list[Row]:
    """GRPO's rows with what is added to them; in dead groups only responses with a term."""
    rows = {row.name: row for row in grpo_rows(groups)}
    found = []
    for row in all_rows(groups, weight=0.0):
        live = row.name in rows
        base = rows.get(row.name, row)
        signals: list[ActionSignal] = []
        touched = live
        for turn, signal in enumerate(base.signals):
            term = terms.get((row.group.task.id, row.number, turn))
            if term is None:
                signals.append(signal)
            else:
                touched = True
                said = row.episode.turns[turn].completion
                signals.append(action_signal(said, signal.advantages + term))
        if touched:
            found.append(Row(row.group, row.number, tuple(signals)))
    return found


def recovery_tree(
    chat: ChatFormat,
    recovery: Recovery,
    unhinted: Floats,
    *,
    weight: float,
    delta: float,
    loss: DistilLoss,
) -> TokenTree:
    """A hinted response behind its un-hinted context; (T,) `unhinted` are its log-probs there."""
    said = msgspec.structs.replace(
        recovery.completion,
        prompt_ids=tuple(chat.render(recovery.history, recovery.tools)),
        logprobs=tuple(float(value) for value in unhinted),
    )
    if loss == "cross_entropy":
        signal = action_signal(said, 0.0, weight=0.0, likelihood=weight)
    else:
        gap = np.asarray(recovery.completion.logprobs, np.float32) - unhinted
        signal = action_signal(said, weight * np.clip(gap, -delta, delta))
    return turn_tree(recovery.name, said, signal)


def unsaid(passages: Sequence[str], groups: Sequence[EpisodeGroup]) -> list[str]:
    """Passages that nobody in the step's episodes has said: where a policy or a game uses the
    words by itself, they are no sign of a hint."""
    said = [
        text
        for group in groups
        for episode in group.episodes
        for text in (
            *(each.content for each in episode.opening),
            *(turn.completion.text for turn in episode.turns),
            *(each.content for turn in episode.turns for each in turn.replies),
        )
    ]
    return [passage for passage in passages if not any(passage in text for text in said)]


def assert_no_hint(chat: ChatFormat, trees: Sequence[TokenTree], passages: Sequence[str]) -> None:
    """No training prompt may carry a hint: a bug of ours where one does."""
    for tree in trees:
        text = chat.decode(tree.segments[0].ids.tolist())
        for passage in passages:
            assert passage not in text, f"{tree.id}: a training prompt carries a hint"


def first_failed(group: EpisodeGroup) -> list[Row]:
    """The first failed episode of a group."""
    rows = [row for row in all_rows([group]) if (row.episode.reward or 0.0) < 0.5]
    return rows[:1]


def last_committed(episode: Episode) -> int | None:
    """The last turn whose action could be read."""
    committed = [
        turn
        for turn, each in enumerate(episode.turns)
        if each.completion.outcome is ParseOutcome.OK
    ]
    return committed[-1] if committed else None


def finding_metrics(found: Sequence[tuple[Row, Finding]]) -> dict[str, float]:
    """How many turns were marked, and in how many of the failed episodes."""
    marks: list[Mark] = [mark for _, finding in found for mark in finding.marks]
    failed = [finding for row, finding in found if (row.episode.reward or 0.0) < 0.5]
    share: Any = np.mean([bool(finding.marks) for finding in failed]) if failed else 0.0
    return {
        "marks": float(len(marks)),
        "failed_with_mark": float(share),
        "lessons": float(sum(bool(finding.lesson) for _, finding in found)),
    }
