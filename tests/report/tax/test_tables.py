"""Rows of the tables: signs, units, intervals."""

from pivotune.report.tax.section import tax_section
from pivotune.report.tax.tables import matched_table, router_table, score_table
from report.sample_report import comparison, findings


def test_every_row_is_as_long_as_the_head_and_asks_by_budget() -> None:
    scores = score_table([comparison("m")])
    assert {len(row) for row in scores.rows} == {len(scores.head)}
    rows = {row[0]: row[1] for row in router_table([comparison("m")]).rows}
    assert rows == {"1": "m", "2": "m", "4": "m", "8": "m", "16": "m", "32": "base"}


def test_methods_at_equal_first_tries() -> None:
    (row,) = matched_table(findings(comparison("a"), comparison("b")).matched).rows
    assert row[1:4] == ("40.0 / 41.0", "60.0 / 58.0", "+2.0")
    assert row[4:] == ("−1.0 to +5.0", "+0.800", "+0.040", "+0.010 to +0.070")
    section = tax_section(findings(comparison("alone")), "alone", [])
    assert section
    assert section.matched is None
