import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pivotune.train.advantages import group_advantages

rewards = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=12)


def test_eight_times_the_same_sum_is_dropped():
    group = group_advantages([0.1 + 0.2] * 8)
    assert not group.live
    assert group.values.tolist() == [0.0] * 8


def test_eight_times_one_half_is_dropped():
    assert not group_advantages([0.5] * 8).live


def test_one_failure_among_seven_is_kept():
    group = group_advantages([0.0] + [0.95] * 7, eps=0.0)
    # mean 0.95 * 7/8, population std 0.95 * sqrt(7)/8
    assert group.live
    np.testing.assert_allclose(group.values, [-math.sqrt(7)] + [1 / math.sqrt(7)] * 7)
    assert abs(group.values.sum()) < 1e-12


def test_two_of_four():
    group = group_advantages([1.0, 0.0, 0.0, 1.0], eps=0.25)
    np.testing.assert_allclose(group.values, np.array([1, -1, -1, 1]) * 0.5 / 0.75)


def test_one_valid_of_eight_is_left_out_without_nan():
    group = group_advantages([None] * 7 + [1.0])
    assert not group.live
    assert group.values.tolist() == [0.0] * 8
    assert group.valid.tolist() == [False] * 7 + [True]


def test_no_valid_sample():
    assert not group_advantages([None, None]).live


def test_invalid_samples_leave_the_group():
    group = group_advantages([1.0, None, 0.0], eps=0.0)
    assert group.values.tolist() == [1.0, 0.0, -1.0]
    assert group.valid.tolist() == [True, False, True]


def test_leave_one_out_compares_with_the_others():
    values = group_advantages([1.0, 0.5, 0.0], baseline="leave_one_out", scale="none").values
    np.testing.assert_allclose(values, [1 - 0.25, 0.5 - 0.5, 0 - 0.75])


def test_no_std_division():
    values = group_advantages([1.0, 0.0, 0.0, 0.0], scale="none").values
    np.testing.assert_allclose(values, [0.75, -0.25, -0.25, -0.25])


@given(rewards)
def test_live_exactly_when_valid_rewards_differ(sample):
    kept = [each for each in sample if each is not None]
    group = group_advantages(sample)
    assert group.live == (len(set(kept)) > 1)
    assert np.isfinite(group.values).all()
    if not group.live:
        assert not group.values.any()


@given(rewards, st.sampled_from(["mean", "leave_one_out"]), st.sampled_from(["std", "none"]))
def test_advantages_sum_to_zero(sample, baseline, scale):
    group = group_advantages(sample, baseline=baseline, scale=scale)
    assert group.values.sum() == pytest.approx(0.0, abs=1e-6)
