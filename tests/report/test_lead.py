"""The four questions that the page answers first."""

from msgspec.structs import replace

from pivotune.core.estimate import Estimate
from pivotune.core.ledger import Prices
from pivotune.report.data import MethodCurves, ReportData
from pivotune.report.lead import introduction, lead, tiles
from pivotune.report.turns import count_turns
from report.sample_report import comparison, coverage, findings, full_report, suite


def said(data: ReportData) -> dict[str, str]:
    figures = count_turns(data.turns) if data.turns else None
    return {
        each.label: each.text.replace("\N{NO-BREAK SPACE}", " ") for each in lead(data, figures)
    }


def test_turns_gain_loss_and_cost_are_told_in_this_order() -> None:
    found = said(full_report())
    assert list(found) == [
        "Which turns matter",
        "What was gained",
        "What was lost",
        "What it cost",
    ]
    assert found["Which turns matter"].startswith("50 of 90 turns are pivots")
    assert (
        "post plain (practises single turns, the pivots) solves 45.0 % of household plain, the "
        "base 25.0 %: +20.0 percentage points (95 % interval +15.0 to +25.0)."
    ) in found["What was gained"]
    assert (
        "it changed by −1.0 percentage points (−6.0 to +4.0), most in sorting (−25.0): no clear "
        "change."
    ) in found["What was lost"]
    assert found["What it cost"].startswith("2.5 min and 720 actions sampled")


def test_what_tries_add_is_a_gain_where_the_model_stays_ahead() -> None:
    """The sample's base overtakes: 70 % with 32 tries against 60."""
    full = full_report()
    assert "with 32 tries, 60.0 % against 70.0 %" in said(full)["What was lost"]
    ahead = replace(comparison("post plain"), post=coverage(0.4, 0.8, 32))
    found = said(replace(full, tax=findings(ahead, comparison("other plain"))))
    assert "with 32 tries, 80.0 % against 70.0 %" in found["What was gained"]
    assert "with 32 tries" not in found["What was lost"]
    assert "After its first try post plain has less left to gain" in found["What was lost"]


def test_a_method_that_gained_more_than_the_main_one_is_named() -> None:
    full = full_report()
    assert full.in_domain
    assert "gained most" not in said(full)["What was gained"]
    other = replace(full.in_domain.scores[1], policy="other", change=Estimate(0.3, 0.2, 0.4, 300))
    scores = (*full.in_domain.scores, other)
    found = said(replace(full, in_domain=replace(full.in_domain, scores=scores)))
    assert found["What was gained"].startswith("At the job")
    assert "other gained most (+30.0)." in found["What was gained"]


def test_a_change_that_may_be_chance_is_not_called_a_gain() -> None:
    full = replace(full_report(), in_domain=suite("household", "plain", 0.04), tax=None)
    assert "(95 % interval −1.0 to +9.0): no clear change." in said(full)["What was gained"]


def test_a_page_of_the_tax_alone_has_gain_and_loss() -> None:
    found = said(ReportData("t", main="m", tax=findings(comparison("m"))))
    assert list(found) == ["What was lost"]
    ahead = replace(comparison("m"), post=coverage(0.4, 0.8, 32))
    data = ReportData("t", main="m", tax=findings(ahead))
    assert list(said(data)) == ["What was gained", "What was lost"]
    assert "turns" not in introduction(data, None)
    assert "The base is the model before training" in introduction(data, None)


def test_money_is_named_where_prices_are() -> None:
    full = replace(full_report(), prices=Prices(trained=50.0, currency="EUR"))
    # 40,000 trained tokens at 50 a million.
    assert "720 actions sampled, 2.00 EUR, profiling" in said(full)["What it cost"]


def test_an_empty_run_says_nothing_and_a_profile_says_that_nothing_was_trained() -> None:
    assert said(ReportData("t")) == {}
    assert introduction(ReportData("t"), None) == ""
    full = full_report()
    profiled = ReportData("t", turns=full.turns)
    assert list(said(profiled)) == ["Which turns matter"]
    assert "nothing was trained" in introduction(profiled, count_turns(full.turns))


def test_tiles_hold_the_leads_figures() -> None:
    full = full_report()
    shown = {each.name: each for each in tiles(full, count_turns(full.turns))}
    assert shown["gained at the job"].value == "+20.0 points"
    assert shown["gained at the job"].tone == "good"
    assert shown["other skills"].tone == "even"
    tax = shown["Sharpening Tax S(32)"]
    assert (tax.value, tax.detail) == ("+0.100", "+0.050 to +0.150 (more tries gain less)")
    assert tax.tone == "bad"


def test_a_method_without_a_known_objective_has_its_bare_name() -> None:
    full = full_report()
    own = replace(full, curves=(MethodCurves("post plain", "my:own", {}),))
    assert "saw, post plain solves" in said(own)["What was gained"]
