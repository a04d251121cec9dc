import numpy as np
import pytest

from pivotune.core.tally import Tally
from pivotune.evaluate.matched import Place, compare_matched, first_try, pair_places
from pivotune.evaluate.tax import compare_tax


def even(successes: int, n: int = 8, tasks: int = 10) -> dict[str, Tally]:
    """Every task solved equally often."""
    return {f"t{i}": Tally(successes, n - successes) for i in range(tasks)}


def sharp(successes: int, n: int = 8, tasks: int = 8) -> dict[str, Tally]:
    """The same mean, but every task solved always or never."""
    won = successes * tasks // n
    return {f"t{i}": Tally(n, 0) if i < won else Tally(0, n) for i in range(tasks)}


def test_first_try_is_the_mean_over_tasks() -> None:
    assert first_try({"a": Tally(1, 1), "b": Tally(3, 0), "c": Tally(0, 0)}) == 0.75
    assert first_try({}) == 0.0


def test_the_better_method_goes_back_to_where_the_other_ends() -> None:
    finals = {"low": even(3), "high": even(7), "same": even(3)}
    curves = {
        "high": {10: even(2), 20: even(4), 30: even(6)},
        "low": {10: even(1)},
    }
    assert pair_places(finals, curves) == (
        # 2 and 4 of 8 are equally far from 3: the earlier checkpoint.
        (Place("low"), Place("high", 10)),
        (Place("low"), Place("same")),
        (Place("high", 10), Place("same")),
    )
    assert pair_places(finals, {}) == (
        (Place("low"), Place("high")),
        (Place("low"), Place("same")),
        (Place("high"), Place("same")),
    )


def test_differences_are_left_minus_right_at_equal_first_tries() -> None:
    known = {Place("even"): even(4, tasks=8), Place("sharp", 20): sharp(4)}
    (found,) = compare_matched([(Place("even"), Place("sharp", 20))], known.__getitem__, 8)
    assert found.steps == (None, 20)
    assert found.first == pytest.approx((0.5, 0.5))
    assert found.last == pytest.approx((1.0, 0.5))
    assert found.first_difference.value == pytest.approx(0.0)
    assert found.last_difference.value == pytest.approx(0.5)
    assert found.last_difference.low is not None
    assert found.last_difference.high is not None
    assert found.last_difference.low < 0.5 < found.last_difference.high
    # Half of the tasks solved: no headroom where each is all or nothing, so S is even's own.
    (tax,) = compare_tax(known[Place("even")], {"sharp": known[Place("sharp", 20)]}, 8)
    assert found.share_difference == tax.tax_share
    assert found.area_difference == tax.tax_area
    assert found.share_difference.value is not None
    assert found.share_difference.value > 0


def test_the_mirrored_pair_has_mirrored_differences() -> None:
    rng = np.random.default_rng(0)
    left, right = (
        {f"t{i}": Tally(int(c), 8 - int(c)) for i, c in enumerate(rng.integers(0, 9, 30))}
        for _ in range(2)
    )
    known = {Place("a"): left, Place("b"): right}
    (one,) = compare_matched([(Place("a"), Place("b"))], known.__getitem__, 4)
    (other,) = compare_matched([(Place("b"), Place("a"))], known.__getitem__, 4)
    assert other.last_difference.value == pytest.approx(-(one.last_difference.value or 0))
    assert other.area_difference.value == pytest.approx(-(one.area_difference.value or 0))
