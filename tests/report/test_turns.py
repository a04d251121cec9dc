from pivotune.report.data import ReportData, TurnPoint
from pivotune.report.page import build_page
from pivotune.report.turns import BINS, DEEPEST, KINDS, OTHER, advise, count_turns, say_where


def point(mean: float, *, live: bool, depth: int = 0, kind: str = "go", chosen: bool = False):  # type: ignore[no-untyped-def]
    return TurnPoint("t", depth, kind, mean, 0.5 if live else 0.0, live, chosen)


def test_every_turn_is_counted_once_in_every_figure() -> None:
    turns = [
        point(0.0, live=False),
        point(1.0, live=False, depth=1),
        point(0.7, live=False, depth=1, kind="take"),
        point(0.5, live=True, depth=40, kind="take", chosen=True),
        point(0.25, live=True, depth=25, kind="open", chosen=True),
    ]
    found = count_turns(turns)
    assert (found.turns, found.selected) == (5, 2)
    assert (found.all_fail, found.live, found.all_pass) == (1, 2, 2)
    assert sum(found.histogram) == 5
    assert (found.histogram[0], found.histogram[-1]) == (1, 1)
    assert sum(found.chosen_histogram) == 2
    assert [(s.name, s.turns, s.live) for s in found.by_depth] == [
        ("1", 1, 0),
        ("2", 2, 0),
        (f"{DEEPEST + 1}+", 2, 2),
    ]
    assert [(s.name, s.turns, s.selected) for s in found.by_kind] == [
        ("go", 2, 0),
        ("take", 2, 1),
        ("open", 1, 1),
    ]
    assert sum(place.turns for place in found.places) == 5


def test_rare_kinds_are_counted_together() -> None:
    turns = [point(0.5, live=True, kind=f"k{i}") for i in range(KINDS + 3)]
    slices = count_turns(turns).by_kind
    assert len(slices) == KINDS + 1
    assert (slices[-1].name, slices[-1].turns) == (OTHER, 3)


def test_eight_samples_have_a_bin_for_every_count_but_the_last_two() -> None:
    found = count_turns([point(c / 8, live=0 < c < 8) for c in range(9)])
    assert found.histogram == (1,) * (BINS - 1) + (2,)


def test_advice_follows_the_counts() -> None:
    half = count_turns([point(0.5, live=True)] * 10)
    assert advise(half, {"ok": 100}) == []
    assert "96 % of the samples could not be read" in _percent(
        advise(half, {"malformed": 96, "ok": 4})
    )
    assert "token limit" in _percent(advise(half, {"truncated": 10, "ok": 90}))
    assert "tool call was expected" in _percent(advise(half, {"no_call": 50, "ok": 50}))
    easy = count_turns([point(1.0, live=False)] * 10)
    assert "always succeed" in _percent(advise(easy, {"ok": 80}))
    hard = count_turns([point(0.0, live=False)] * 10)
    assert "never succeed" in _percent(advise(hard, {"ok": 80}))


def _percent(lines: list[str]) -> str:
    return " ".join(" ".join(lines).replace("%", " %").split())


def test_turns_are_counted_by_domain_where_there_are_several() -> None:
    house = [TurnPoint(f"h{i}", 0, "go", 0.5, 0.5, True, i == 0, "household") for i in range(3)]
    tools = [TurnPoint(f"t{i}", 0, "call", 1.0, 0.0, False, False, "tool_use") for i in range(2)]
    assert count_turns(house).by_domain == ()
    found = count_turns([*tools, *house]).by_domain
    assert [(each.name, each.turns, each.live, each.selected) for each in found] == [
        ("household", 3, 3, 1),
        ("tool_use", 2, 0, 0),
    ]
    page = build_page(ReportData("two", turns=(*tools, *house)))
    assert "By domain" in page
    assert "By domain" not in build_page(ReportData("one", turns=tuple(house)))


def test_where_the_policy_is_undecided_is_said_for_kinds_with_enough_turns() -> None:
    def turns(kind: str, live: int, count: int) -> list[TurnPoint]:
        return [
            TurnPoint(f"{kind}#{i}", 0, kind, 0.5 if i < live else 1.0, 0.0, i < live, False)
            for i in range(count)
        ]

    points = [*turns("take", 15, 20), *turns("go", 10, 40), *turns("rare", 1, 1)]
    assert say_where(count_turns(points)) == (
        "It is undecided most often where the expert's action is “take” (75\N{NO-BREAK SPACE}% of "
        "20 turns), least often where it is “go” (25\N{NO-BREAK SPACE}% of 40 turns)."
    )
    assert say_where(count_turns(turns("take", 15, 20))) == ""
    assert say_where(count_turns([*turns("a", 5, 20), *turns("b", 10, 40)])) == ""
