from itertools import combinations
from math import comb, exp, isnan, lgamma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pivotune.core.errors import DataError
from pivotune.core.scores import Classes
from pivotune.core.tally import Tally
from pivotune.evaluate.metrics import (
    BetaPrior,
    beta_mixed_chance,
    classify,
    consistency,
    coverage_curve,
    crossover,
    expected_live_groups,
    fit_beta_prior,
    headroom_area,
    headroom_share,
    mean_difference,
    mean_success,
    miss_rate,
    mixed_chance,
    pass_at_k,
    pass_at_rows,
    pass_hat_k,
    reliability_curve,
    success_chance,
    success_difference,
    success_rate,
    why_share_undefined,
)


def tallies(*counts: tuple[int, int]) -> dict[str, Tally]:
    return {f"task {i}": Tally(c, n - c) for i, (c, n) in enumerate(counts)}


def test_pass_at_k_and_pass_hat_k_equal_counts_over_all_subsets() -> None:
    for n in range(1, 13):
        for c in range(n + 1):
            outcomes = [True] * c + [False] * (n - c)
            for k in range(1, n + 1):
                drawn = list(combinations(outcomes, k))
                assert pass_at_k(Tally(c, n - c), k) == pytest.approx(
                    sum(map(any, drawn)) / len(drawn), abs=1e-12
                )
                assert pass_hat_k(Tally(c, n - c), k) == pytest.approx(
                    sum(map(all, drawn)) / len(drawn), abs=1e-12
                )


@settings(deadline=None)
@given(st.data())
def test_the_running_product_equals_exact_binomials(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 400))
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - comb(n - c, k) / comb(n, k)
    assert pass_at_k(Tally(c, n - c), k) == pytest.approx(exact, abs=1e-11)
    assert pass_hat_k(Tally(c, n - c), k) == pytest.approx(comb(c, k) / comb(n, k), abs=1e-11)


def test_ten_thousand_rollouts_are_finite_and_right() -> None:
    # One success of 10,000: it is among 5,000 drawn with probability one half, exactly.
    assert pass_at_k(Tally(1, 9_999), 5_000) == pytest.approx(0.5, abs=1e-9)
    assert pass_hat_k(Tally(9_999, 1), 5_000) == pytest.approx(0.5, abs=1e-9)
    assert pass_at_k(Tally(5_000, 5_000), 5_000) == 1.0


def test_tau_bench_convention() -> None:
    assert pass_hat_k(Tally(2, 2), 2) == pytest.approx(1 / 6)
    curve = reliability_curve(tallies((2, 4)), 2)
    assert curve.values[1] == pytest.approx(1 / 6)
    assert "pass^k = C(c, k)/C(n, k)" in curve.convention


@pytest.mark.parametrize("k", [0, -1, 5])
def test_k_beyond_the_rollouts_is_an_error_never_one(k: int) -> None:
    for score in (pass_at_k, pass_hat_k):
        with pytest.raises(DataError, match=f"k = {k} is undefined for 4 rollouts"):
            score(Tally(4, 0), k)
    with pytest.raises(DataError):
        coverage_curve(tallies((4, 4)), k)


def test_tasks_with_too_few_rollouts_are_named() -> None:
    curve = coverage_curve(tallies((1, 4), (2, 3), (4, 4)), 4)
    assert (curve.tasks, curve.left_out) == (2, ("task 1",))
    assert curve.values == pytest.approx(((0.25 + 1) / 2, (0.5 + 1) / 2, (0.75 + 1) / 2, 1.0))
    assert all(
        low <= v <= high for low, v, high in zip(curve.low, curve.values, curve.high, strict=True)
    )


def test_headroom_area_is_the_mean_wait_for_the_first_success() -> None:
    # A(K) = E[(H-1) 1{H<=K}], by enumeration of every order of n rollouts.
    for n in range(2, 9):
        for c in range(n + 1):
            waits = [min(order, default=n) for order in combinations(range(n), c)]
            whole = pass_at_rows(np.array([c]), np.array([n]), n)[0]
            for k_max in range(1, n + 1):
                expected = sum(wait for wait in waits if wait < k_max) / len(waits)
                curve = whole[:k_max]
                assert headroom_area(curve) == pytest.approx(expected, abs=1e-12)


def test_headroom_share_is_undefined_where_nothing_was_left_to_gain() -> None:
    assert np.isnan(headroom_share(np.array([1.0, 1.0, 1.0])))
    assert "C(1) = 1" in why_share_undefined(np.array([1.0, 1.0]))
    assert np.isnan(headroom_share(np.array([0.3])))
    assert "single rollout" in why_share_undefined(np.array([0.3]))
    # C = 0, 1, 1, 1: the area is 1 of 3.
    assert headroom_share(np.array([0.0, 1.0, 1.0, 1.0])) == pytest.approx(1 / 3)
    assert why_share_undefined(np.array([0.0, 1.0])) == ""


def test_collapse_model_identities() -> None:
    # Each task is sent to 0 or 1 with probability lam; a share lam_0 of all goes to 0.
    rng = np.random.default_rng(3)
    rates_T = rng.beta(0.6, 1.2, 200_000)
    lam, lam_0, k_max = 0.4, 0.15, 16
    fate_T = rng.random(len(rates_T))
    post_T = np.where(fate_T < lam_0, 0.0, np.where(fate_T < lam, 1.0, rates_T))
    k_K = np.arange(1, k_max + 1)
    base_K, post_K = (1 - ((1 - p_T[:, None]) ** k_K).mean(axis=0) for p_T in (rates_T, post_T))
    area = headroom_area(base_K)
    assert area - headroom_area(post_K) == pytest.approx(lam * area, rel=0.01)
    e = 1 - base_K[0]
    ratio = (1 - lam) * e / ((1 - lam) * e + lam_0)
    assert headroom_share(post_K) / headroom_share(base_K) == pytest.approx(ratio, rel=0.01)


def test_crossover_is_the_first_k_where_the_base_catches_up() -> None:
    base, post = np.array([0.1, 0.3, 0.5, 0.6]), np.array([0.4, 0.45, 0.5, 0.5])
    assert crossover(base, post) == 3
    assert crossover(post, base) == 1
    assert crossover(base[:2], post[:2]) is None


def test_classes_and_consistency() -> None:
    counted = tallies((4, 4), (0, 4), (1, 4), (2, 4))
    assert classify(counted) == Classes(1, 2, 1, (4,))
    # Pairs of rollouts that agree: 6/6, 6/6, 3/6, 2/6.
    assert consistency(counted).value == pytest.approx((1 + 1 + 1 / 2 + 1 / 3) / 4)
    single = consistency(tallies((1, 1)))
    assert (single.value, single.left_out) == (None, 1)
    assert single.reason


def test_success_of_single_rollouts_has_wilsons_interval() -> None:
    found = success_rate(tallies(*[(1, 1)] * 8, *[(0, 1)] * 2))
    assert found.value == 0.8
    # Wilson's interval of 8 of 10, from the literature.
    assert found.low == pytest.approx(0.4902, abs=1e-4)
    assert found.high == pytest.approx(0.9433, abs=1e-4)
    assert "Wilson" in found.method


def test_all_equal_tasks_do_not_claim_certainty() -> None:
    found = success_rate(tallies((0, 4), (0, 4)))
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high is not None
    assert found.high > 0.5


def test_one_suite_that_nobody_solves_does_not_claim_certainty() -> None:
    lost = mean_success({"": {f"t{i}": Tally(0, 1) for i in range(6)}})
    # Wilson for 0 of 6: z^2 / (6 + z^2).
    assert (lost.value, lost.low) == (0.0, 0.0)
    assert lost.high == pytest.approx(1.96**2 / (6 + 1.96**2), abs=1e-4)


def test_bootstrap_interval_is_the_normal_one_for_many_tasks() -> None:
    rng = np.random.default_rng(0)
    counts = [(int(c), 4) for c in rng.binomial(4, rng.beta(2, 2, 2_000))]
    found = success_rate(tallies(*counts), seed=1)
    rates = np.array([c / n for c, n in counts])
    half = 1.96 * rates.std() / np.sqrt(len(rates))
    assert found.value == pytest.approx(rates.mean())
    assert found.low == pytest.approx(rates.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(rates.mean() + half, abs=0.1 * half)
    assert found == success_rate(tallies(*counts), seed=1)


def test_pairing_removes_the_spread_between_tasks() -> None:
    base = tallies(*[(0, 4)] * 50, *[(3, 4)] * 50)
    post = tallies(*[(1, 4)] * 50, *[(4, 4)] * 50)
    found = success_difference(base, post)
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)
    one_side = success_difference(base, {**post, "only here": Tally(1, 0)})
    assert (one_side.value, one_side.left_out, one_side.tasks) == (0.25, 1, 100)


def test_suites_weigh_the_same_whatever_their_size() -> None:
    base = {"small": tallies((0, 1), (0, 1)), "large": tallies(*[(1, 1)] * 100)}
    post = {"small": tallies((1, 1), (1, 1)), "large": tallies(*[(1, 1)] * 100)}
    assert mean_success(base).value == 0.5
    assert mean_difference(base, post).value == 0.5
    with pytest.raises(DataError, match="different suites"):
        mean_difference(base, {"small": post["small"]})
    assert mean_difference({"a": {}}, {"a": {}}).value is None


def test_miss_rate_counts_only_what_the_functional_verifier_accepts() -> None:
    found = miss_rate([True, False, False, False], [True, True, True, False])
    assert found.value == pytest.approx(2 / 3)
    assert (found.tasks, found.left_out) == (3, 1)
    assert miss_rate([False], [False]).value is None


def test_live_groups_in_closed_form() -> None:
    assert mixed_chance(0.18, 2) == pytest.approx(2 * 0.18 * 0.82)
    assert success_chance(0.5, 3) == pytest.approx(7 / 8)
    # Under a uniform rate, q^n and (1-q)^n have mean 1 / (n + 1).
    assert beta_mixed_chance(1.0, 1.0, 8) == pytest.approx(1 - 2 / 9)


@settings(deadline=None)
@given(st.floats(0.05, 20), st.floats(0.05, 20), st.integers(1, 32))
def test_beta_mean_of_mixed_chance_equals_moments(a: float, b: float, group: int) -> None:
    def moment(p: float, q: float) -> float:
        return exp(lgamma(p + group) + lgamma(p + q) - lgamma(p) - lgamma(p + q + group))

    right, wrong = moment(a, b), moment(b, a)
    assert beta_mixed_chance(a, b, group) == pytest.approx(1 - right - wrong, abs=1e-9)


def test_live_groups_of_mostly_dead_turns_are_not_overstated() -> None:
    # 71 % of the turns never succeed; J_8 at the mean rate promises far more than there is.
    rng = np.random.default_rng(5)
    rates = np.where(rng.random(2_000) < 0.71, 0.0, rng.uniform(0.3, 0.7, 2_000))
    counted = tallies(*[(int(c), 8) for c in rng.binomial(8, rates)])
    true = float(np.mean(mixed_chance(rates, 8)))
    found = expected_live_groups(counted, 8)
    assert found.of_mean_rate > 0.65
    assert found.share.value == pytest.approx(true, abs=0.05)


def test_beta_prior_is_recovered_from_counts() -> None:
    rng = np.random.default_rng(1)
    counted = tallies(*[(int(c), 8) for c in rng.binomial(8, rng.beta(0.3, 0.9, 5_000))])
    prior = fit_beta_prior(counted.values())
    assert prior.a == pytest.approx(0.3, rel=0.08)
    assert prior.b == pytest.approx(0.9, rel=0.08)


def test_turns_without_a_valid_sample_are_counted() -> None:
    found = expected_live_groups({"a": Tally(), "b": Tally(1, 1)}, 2, BetaPrior(1.0, 1.0))
    # Beta(2, 2): 1 - 2 * (2 * 3) / (4 * 5).
    assert found.share.value == pytest.approx(0.4)
    assert found.share.left_out == 1
    none = expected_live_groups({"a": Tally()}, 2)
    assert none.share.value is None
    assert isnan(none.of_mean_rate)
