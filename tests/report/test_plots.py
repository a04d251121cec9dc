"""How methods look in every drawing."""

from pivotune.report.plots import look_of


def test_as_many_methods_as_a_study_has_are_told_apart():
    order = [f"m{number}" for number in range(36)]
    looks = [look_of(name, order) for name in order]
    assert len({(each.colour, each.marker) for each in looks}) == 36
    assert len({(each.colour, str(each.line)) for each in looks}) == 36
