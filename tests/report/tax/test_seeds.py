"""Tables over runs of several seeds."""

from pivotune.core.estimate import Estimate, over_seeds
from pivotune.core.scores import Forecast, MatchedOverSeeds, PolicyOverSeeds, TaxOverSeeds
from pivotune.report.tables import markdown
from pivotune.report.tax.seeds import matched_over_seeds_table, over_seeds_table


def test_a_table_over_seeds_has_means_with_their_range() -> None:
    first, area, tax = over_seeds([0.5, 0.25]), over_seeds([2.0, 3.5]), over_seeds([0.125, None])
    none = over_seeds([None, None])
    found = TaxOverSeeds(
        8,
        2,
        (
            PolicyOverSeeds("base", first, first, area, first, none, none),
            PolicyOverSeeds("a|b", first, first, area, first, area, tax, (1, 0)),
        ),
        (MatchedOverSeeds("a", "b", first, first, area, tax, (0, 1)),),
        Forecast(2, 8, Estimate.undefined("none")),
        ("c",),
    )
    shown = over_seeds_table(found)
    base, other = shown.rows
    assert base[1] == "37.5 (25.0 to 50.0)"
    assert (base[4], base[6], base[7]) == ("–", "–", "–")
    assert other[6:] == ("+0.125 (+0.125 to +0.125)", "1, 0")
    assert "because a run lacks them: c." in shown.note
    (pair,) = matched_over_seeds_table(found).rows
    assert pair[:2] == ("a / b", "+37.5 (+25.0 to +50.0)")
    assert r"| a\|b | 37.5 (25.0 to 50.0) |" in markdown(shown)
