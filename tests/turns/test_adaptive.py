from fractions import Fraction
from math import comb, factorial

import msgspec
import pytest

from pivotune.turns.adaptive import (
    AdaptiveConfig,
    chance_wanted,
    is_decided,
    is_wanted,
    replay,
)
from turns.test_sampling import profile


def exact_chance(successes, n, total):
    """By integrating p^(s + j) (1 - p)^(...) over p in fractions; the threshold is 3/4."""

    def integral(a, b):  # of p^a (1 - p)^b
        return Fraction(factorial(a) * factorial(b), factorial(a + b + 1))

    failures, rest = n - successes, total - n
    whole = integral(successes, failures)
    return sum(
        comb(rest, j) * integral(successes + j, failures + rest - j) / whole
        for j in range(rest + 1)
        if 0 < successes + j < total and 4 * (successes + j) < 3 * total
    )


@pytest.mark.parametrize(("successes", "n"), [(0, 4), (1, 4), (4, 4), (2, 5), (7, 8), (0, 0)])
def test_the_chance_is_that_of_the_posterior(successes, n):
    expected = float(exact_chance(successes, n, 8))
    assert chance_wanted(successes, n, 8, 0.75) == pytest.approx(expected, abs=1e-12)


def test_all_samples_decide_for_certain():
    config = AdaptiveConfig(doubt=0.0)
    for successes in range(9):
        assert chance_wanted(successes, 8, 8, 0.75) == float(is_wanted(successes, 8, 0.75))
        assert is_decided(successes, 8, 8, config)


def test_settings_without_a_meaning_are_refused():
    for bad in ({"first": 0}, {"doubt": 0.5}, {"doubt": -0.1}):
        with pytest.raises(msgspec.ValidationError, match="adaptive: first starts at 1"):
            msgspec.convert(bad, AdaptiveConfig)


def test_what_stopping_saves_and_at_what_agreement():
    always, never = [1.0] * 8, [0.0] * 8
    late = [1.0] * 7 + [0.0]  # mixed, but too easy
    mixed = [1.0, 0.0, 0.0, 1.0] * 2
    surprise = [1.0] * 4 + [0.0] * 4  # stopped as too easy, wanted with all
    profiles = [profile(str(i), r) for i, r in enumerate([always, late, mixed, never, surprise])]
    found = replay(profiles, AdaptiveConfig(first=4, doubt=0.1))
    # Four of four decide, against this turn; none of four leaves room for a success.
    assert exact_chance(4, 4, 8) < 0.1 < exact_chance(0, 4, 8)
    assert (found.fixed, found.used) == (40, 3 * 4 + 2 * 8)
    assert found.agreement == pytest.approx(4 / 5)
    assert found.saved == pytest.approx(1 - 28 / 40)
    assert replay([], AdaptiveConfig()).saved == 0.0
