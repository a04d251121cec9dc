"""What is said of one model, also where a figure is not defined."""

from msgspec.structs import replace

from pivotune.core.estimate import Estimate
from pivotune.core.scores import Crossover
from pivotune.report.tax.section import tax_section
from pivotune.report.tax.sentences import say_losers
from report.sample_report import comparison, findings


def test_models_without_a_defined_tax_are_told_apart() -> None:
    found = replace(comparison("m"), tax_share=Estimate.undefined("post: C(1) = 1"))
    section = tax_section(findings(found), "m", [])
    assert section
    assert "The Sharpening Tax is undefined: post: C(1) = 1." in section.says
    never = replace(found, crossover=Crossover(None, None, None))
    section = tax_section(findings(never), "m", [])
    assert section
    assert "The base does not catch up within 32 tries." in section.says


def test_models_that_clearly_lost_are_counted() -> None:
    lost = comparison("a")
    unclear = replace(lost, name="b", tax_share=Estimate(0.1, -0.05, 0.25, 100))
    undefined = replace(lost, name="c", tax_share=Estimate.undefined("C(1) = 1"))
    assert say_losers([lost]) == ""
    assert say_losers([unclear, undefined]) == "Under none of the 2 models is clearly less left."
    assert say_losers([unclear, lost, undefined]) == (
        "Clearly less is left under 1 of 3 models: a."
    )
