"""Normalised string similarity at or above a threshold; identical strings are similar by 1."""

from typing import Annotated

import msgspec
from rapidfuzz.distance import Levenshtein

from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, Turn, Verdict
from pivotune.verify.actions import (
    accept,
    reject,
    reject_other_kind,
    say_repairs,
    versioned,
)
from pivotune.verify.strings import normalise


class TextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`threshold` of the similarity; 1, the default, asks for equality after normalisation.

    Below 1, short commands are not told apart: `take mug 1 from countertop 1` is similar to
    `take cup 1 from countertop 1` by 0.93.
    """

    threshold: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    ignore_case: bool = False


class TextVerifier:
    """Compares the content of messages by edit distance over characters."""

    name = "text"
    needs_environment = False

    def __init__(self, config: TextConfig | None = None) -> None:
        self.config = config or TextConfig()
        self.version = versioned(1, self.config)

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if other := reject_other_kind(turn, completion):
            return other
        if turn.expert.tool_calls:
            return Verdict(None, "text compares messages, and the expert made a call")
        expected, actual = turn.expert.content, completion.message.content
        similarity = text_similarity(expected, actual, ignore_case=self.config.ignore_case)
        if similarity >= self.config.threshold:
            return accept(say_repairs(completion), similarity=similarity)
        return reject(
            f"similar by {similarity:.3f}, below {self.config.threshold:g}", similarity=similarity
        )


def text_similarity(expected: str, actual: str, *, ignore_case: bool = False) -> float:
    """1 minus the Levenshtein distance over the longer length, after normalisation."""
    first, second = normalise(expected), normalise(actual)
    if ignore_case:
        first, second = first.casefold(), second.casefold()
    return float(Levenshtein.normalized_similarity(first, second))
