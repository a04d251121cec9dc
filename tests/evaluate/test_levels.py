import pytest

from pivotune.core.types import Cost
from pivotune.evaluate.levels import CurvePoint, Reached, cost_to_level, times_more

CURVE = [
    CurvePoint(0, 0.30),
    CurvePoint(5, 0.44, Cost(rollout_turns=5_000, sampled_tokens=50_000, seconds=20.0)),
    CurvePoint(10, 0.51, Cost(rollout_turns=9_000, sampled_tokens=90_000, seconds=38.0)),
    CurvePoint(15, 0.40, Cost(rollout_turns=14_000)),
    CurvePoint(20, 0.55, Cost(rollout_turns=19_000)),
]


def test_the_first_crossing_counts_with_what_was_spent_before_training():
    before = Cost(rollout_turns=1_000, sampled_tokens=10_000, seconds=2.0)
    reached = cost_to_level(CURVE, 0.5, before)
    assert reached == Reached(10, Cost(rollout_turns=10_000, sampled_tokens=100_000, seconds=40.0))
    assert cost_to_level(CURVE, 0.44).step == 5
    assert cost_to_level(CURVE, 0.3, before) == Reached(0, before)


def test_a_level_that_is_never_reached_has_no_cost():
    assert cost_to_level(CURVE, 0.56) is None
    assert cost_to_level([], 0.1) is None


def test_ratios_of_two_costs():
    slow = Reached(10, Cost(rollout_turns=8_000, sampled_tokens=90_000, seconds=30.0))
    fast = Reached(5, Cost(rollout_turns=2_000, sampled_tokens=30_000))
    found = times_more(slow, fast)
    assert (found.rollout_turns, found.sampled_tokens) == pytest.approx((4.0, 3.0))
    assert found.seconds is None
