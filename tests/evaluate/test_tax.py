import numpy as np
import pytest

from pivotune.core.errors import DataError
from pivotune.core.tally import Tally
from pivotune.evaluate.tax import (
    class_moves,
    compare_tax,
    forecast_tax,
    forecast_tax_over,
    rank_correlation,
)


def sampled(rates_T: np.ndarray, n: int, seed: int) -> dict[str, Tally]:
    drawn = np.random.default_rng(seed).binomial(n, rates_T)
    return {f"task {i}": Tally(int(c), n - int(c)) for i, c in enumerate(drawn)}


def collapsed(rates_T: np.ndarray, lam: float, lam_0: float, seed: int) -> np.ndarray:
    fate_T = np.random.default_rng(seed).random(len(rates_T))
    return np.where(fate_T < lam_0, 0.0, np.where(fate_T < lam, 1.0, rates_T))


def test_collapse_model_lies_within_the_intervals() -> None:
    rates_T = np.random.default_rng(0).beta(0.6, 1.2, 1_500)
    lam, lam_0 = 0.4, 0.15
    base = sampled(rates_T, 64, 1)
    post = sampled(collapsed(rates_T, lam, lam_0, 2), 64, 3)
    (found,) = compare_tax(base, {"grpo": post}, 32)
    expected = lam * (found.base.area.value or 0)
    assert found.tax_area.low is not None
    assert found.tax_area.high is not None
    assert found.tax_area.low < expected < found.tax_area.high
    e = 1 - found.base.curve.values[0]
    ratio = (1 - lam) * e / ((1 - lam) * e + lam_0)
    share = found.base.share.value or 0
    assert found.tax_share.low is not None
    assert found.tax_share.high is not None
    assert found.tax_share.low < share * (1 - ratio) < found.tax_share.high
    assert sum(map(sum, found.moves)) == found.tasks == 1_500
    assert len(found.gain) == 32
    assert found.gain[0].value == pytest.approx(
        found.post.curve.values[0] - found.base.curve.values[0]
    )


def test_base_against_itself_pays_nothing() -> None:
    base = sampled(np.linspace(0.1, 0.9, 40), 8, 0)
    (found,) = compare_tax(base, {"same": base}, 8)
    for tax in (found.tax_area, found.tax_share):
        assert (tax.value, tax.low, tax.high) == (0.0, 0.0, 0.0)
    assert found.crossover.value == found.crossover.low == found.crossover.high == 1


def test_crossover_has_an_interval_that_may_be_open() -> None:
    base = {f"t{i}": Tally(2, 6) for i in range(20)}
    post = {f"t{i}": Tally(8, 0) if i < 15 else Tally(0, 8) for i in range(20)}
    (found,) = compare_tax(base, {"sharp": post}, 8)
    # The base's curve is 0.25, 0.464, 0.643, 0.786: it passes 0.75 at k = 4.
    assert found.crossover.value == 4
    assert found.crossover.low is not None
    assert found.crossover.low <= 4
    never = {f"t{i}": Tally(0, 8) for i in range(20)}
    (lost,) = compare_tax(never, {"sharp": post}, 8)
    assert lost.crossover.value is None


def test_undefined_is_undefined_and_says_why() -> None:
    base = {"a": Tally(1, 3), "b": Tally(2, 2)}
    (found,) = compare_tax(base, {"perfect": {"a": Tally(4, 0), "b": Tally(4, 0)}}, 4)
    assert found.post.share.value is None
    assert found.tax_share.value is None
    assert "post: S(K) is undefined" in found.tax_share.reason
    assert found.tax_area.value == found.base.area.value


def test_tasks_that_cannot_be_paired_are_named() -> None:
    base = {"a": Tally(1, 3), "b": Tally(2, 2), "c": Tally(1, 1)}
    post = {"a": Tally(2, 2), "c": Tally(2, 2), "d": Tally(4, 0)}
    (found,) = compare_tax(base, {"post": post}, 4)
    assert (found.tasks, found.left_out) == (1, ("b", "c", "d"))
    with pytest.raises(DataError, match="no task has 5 rollouts"):
        compare_tax(base, {"post": post}, 5)


def test_class_moves_count_every_task_once() -> None:
    always, some, never = Tally(4, 0), Tally(2, 2), Tally(0, 4)
    moves = class_moves([always, some, some, never], [always, always, never, some])
    assert moves == ((1, 0, 0), (1, 0, 1), (0, 1, 0))


def test_forecast_ranks_models_that_clearly_differ() -> None:
    rates_T = np.random.default_rng(0).beta(0.6, 1.2, 300)
    base = sampled(rates_T, 32, 1)
    posts = {
        f"lam {lam}": sampled(collapsed(rates_T, lam, lam / 2, 2), 32, 3)
        for lam in (0.0, 0.2, 0.4, 0.6, 0.8)
    }
    found = forecast_tax(base, posts)
    assert found.value is not None
    assert found.value > 0.9
    assert found.low is not None
    assert found.low > 0.5
    assert forecast_tax(base, dict(list(posts.items())[:2])).value is None
    assert forecast_tax(base, posts, full_k=64).value is None


def test_rank_correlation_with_ties() -> None:
    x, y = np.array([1.0, 2.0, 2.0, 4.0]), np.array([3.0, 5.0, 1.0, 9.0])
    ranks_x, ranks_y = np.array([1, 2.5, 2.5, 4]), np.array([2, 3, 1, 4])
    centred_x, centred_y = ranks_x - 2.5, ranks_y - 2.5
    expected = centred_x @ centred_y / np.sqrt((centred_x**2).sum() * (centred_y**2).sum())
    assert rank_correlation(x, y) == pytest.approx(expected)
    assert np.isnan(rank_correlation(x, np.ones(4)))


def test_a_forecast_over_runs_ranks_all_their_models_together() -> None:
    def run(seed: int, lams: tuple[float, ...]) -> tuple[dict[str, Tally], dict[str, dict]]:
        rates_T = np.random.default_rng(seed).beta(0.6, 1.2, 300)
        posts = {
            str(lam): sampled(collapsed(rates_T, lam, lam / 2, seed + 1), 32, seed + 2)
            for lam in lams
        }
        return sampled(rates_T, 32, seed + 3), posts

    one, two = run(0, (0.0, 0.4)), run(10, (0.2, 0.8))
    found = forecast_tax_over([one, two])
    assert found.tasks == 600
    assert found.value is not None
    assert found.value > 0.9
    assert forecast_tax_over([one]).value is None
    assert forecast_tax_over([one, two], full_k=64).value is None
