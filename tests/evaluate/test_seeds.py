import pytest

from pivotune.core.errors import DataError
from pivotune.core.estimate import Estimate, over_seeds
from pivotune.core.scores import TaxFindings
from pivotune.core.tally import Tally
from pivotune.evaluate.matched import Place, compare_matched
from pivotune.evaluate.seeds import join_tax
from pivotune.evaluate.tax import find_tax

NONE = Estimate.undefined("too few")


def measured(base: int, posts: dict[str, int], k: int = 4) -> TaxFindings:
    """Policies that solve `c` of 8 rollouts of the even tasks, and the odd ones always or never."""

    def tallies(c: int) -> dict[str, Tally]:
        ends = (Tally(8, 0), Tally(0, 8))
        return {f"t{i}": Tally(c, 8 - c) if i % 2 else ends[i % 4 // 2] for i in range(12)}

    return find_tax(tallies(base), {name: tallies(c) for name, c in posts.items()}, k)


def test_figures_over_seeds_are_means_and_ranges_of_the_defined_ones() -> None:
    found = over_seeds([0.25, None, 0.75])
    assert (found.mean, found.low, found.high) == (0.5, 0.25, 0.75)
    assert found.seeds == (0.25, None, 0.75)
    assert over_seeds([None, None]).mean is None


def test_runs_become_rows_with_the_base_first() -> None:
    runs = [measured(4, {"a": 2, "b": 6, "only here": 1}), measured(3, {"b": 7, "a": 3})]
    found = join_tax(runs, NONE)
    assert [each.name for each in found.policies] == ["base", "a", "b"]
    assert (found.seeds, found.k, found.left_out) == (2, 4, ("only here",))
    base, first, _ = found.policies
    # C(1): half of the tasks at 1/2 on average, the others at c/8.
    assert base.first.seeds == pytest.approx((0.5, (0.5 + 3 / 8) / 2))
    assert base.tax_share.mean is None
    assert first.first.mean == pytest.approx((0.375 + 0.4375) / 2)
    taxes = [run.comparisons[0 if i == 0 else 1].tax_share.value for i, run in enumerate(runs)]
    assert first.tax_share.seeds == tuple(taxes)
    assert first.tax_share.low == min(each for each in taxes if each is not None)
    clear = [each.name for each in found.policies if sum(each.clear)]
    assert "base" not in clear


def test_a_pair_is_joined_where_all_runs_have_it() -> None:
    tallies = {Place("a"): {"t": Tally(1, 3), "u": Tally(3, 1)}, Place("b", 5): {"t": Tally(2, 2)}}
    tallies[Place("b", 5)]["u"] = Tally(2, 2)
    pairs = compare_matched([(Place("a"), Place("b", 5))], tallies.__getitem__, 2)
    plain = measured(4, {"a": 2, "b": 6})
    one = TaxFindings(plain.k, plain.comparisons, plain.reliability, plain.forecast, pairs)
    found = join_tax([one, one], NONE)
    assert [(each.left, each.right) for each in found.matched] == [("a", "b")]
    assert found.matched[0].last.seeds == (pairs[0].last_difference.value,) * 2
    assert join_tax([one, plain], NONE).matched == ()


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(DataError, match="different budgets"):
        join_tax([measured(4, {"a": 2}), measured(4, {"a": 2}, k=2)], NONE)
    with pytest.raises(DataError, match="no model in common"):
        join_tax([measured(4, {"a": 2}), measured(4, {"b": 2})], NONE)
