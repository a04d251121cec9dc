"""What is said of one model, also where a figure is not defined."""

from msgspec.structs import replace

from pivotune.core.estimate import Estimate
from pivotune.core.scores import Crossover
from pivotune.report.tax.section import tax_section
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
