"""What methods cost until they first reach a level of success that was fixed beforehand.

    validation curve with running totals + what was spent before --> cost at the first crossing

Levels are compared on validation games at the steps at which they were played, so a crossing is
late by up to the steps between two validations, and as uncertain as one of them.
"""

from collections.abc import Sequence

import msgspec

from pivotune.core.types import Cost


class CurvePoint(msgspec.Struct, frozen=True):
    """A validation: steps done, score, and what training had used by then (no validation)."""

    step: int
    score: float
    cost: Cost = Cost()


class Reached(msgspec.Struct, frozen=True):
    """The first validation at the level, and the whole cost by then."""

    step: int
    cost: Cost


class CostRatio(msgspec.Struct, frozen=True):
    """How many times more one method used than another until both were at the level.

    None where the other used nothing.
    """

    rollout_turns: float | None
    sampled_tokens: float | None
    seconds: float | None


def cost_to_level(
    curve: Sequence[CurvePoint],
    level: float,
    before: Cost = Cost(),  # noqa: B008  (frozen)
) -> Reached | None:
    """None where the curve stays below. `before`: what was used ahead of training (profiling)."""
    for point in curve:
        if point.score >= level:
            return Reached(point.step, point.cost + before)
    return None


def times_more(reached: Reached, other: Reached) -> CostRatio:
    """`reached` over `other`."""
    return CostRatio(
        rollout_turns=_ratio(reached.cost.rollout_turns, other.cost.rollout_turns),
        sampled_tokens=_ratio(reached.cost.sampled_tokens, other.cost.sampled_tokens),
        seconds=_ratio(reached.cost.seconds, other.cost.seconds),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
