"""Which model to ask at each budget of tries."""

import pytest
from msgspec.structs import replace

from pivotune.core.estimate import Estimate
from pivotune.core.scores import TaxComparison
from pivotune.report.tax.budgets import pick_model
from pivotune.report.tax.tables import router_table
from report.sample_report import comparison


def test_the_router_asks_the_largest_clear_gain_and_the_base_only_when_it_beats_all() -> None:
    found = comparison("m", 2)

    def gaining(name: str, low: float, high: float) -> TaxComparison:
        return replace(found, name=name, gain=(Estimate((low + high) / 2, low, high, 100),))

    unclear, small = gaining("unclear", -0.1, 0.9), gaining("small", 0.01, 0.1)
    large, worse = gaining("large", 0.1, 0.3), gaining("worse", -0.3, -0.1)
    assert pick_model([unclear, small, large, worse], 1) == "large"
    assert pick_model([unclear, worse], 1) == "either"
    assert pick_model([worse, replace(worse, name="second")], 1) == "base"


@pytest.mark.parametrize(("k", "ticks"), [(1, ["1"]), (2, ["1", "2"]), (5, ["1", "2", "4", "5"])])
def test_budgets_of_the_router_end_at_k(k: int, ticks: list[str]) -> None:
    found = comparison("m", 5)
    shown = router_table([replace(found, k=k, gain=found.gain[:k])])
    assert [row[0] for row in shown.rows] == ticks
