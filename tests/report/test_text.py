import math

from hypothesis import given
from hypothesis import strategies as st

from pivotune.core.estimate import Estimate
from pivotune.report.text import (
    duration,
    interval,
    number,
    percent,
    points,
    show,
    show_line,
)


def test_unseen_characters_become_visible() -> None:
    assert (
        show("a\x00b\x1b[31m\u202etxt.exe\ufeff") == "a‹U+0000›b‹U+001B›[31m‹U+202E›txt.exe‹U+FEFF›"
    )
    assert show("tab\tand\nline") == "tab\tand\nline"
    assert show("windows\r\nline, lone\rreturn") == "windows\nline, lone‹U+000D›return"
    assert show("عربي 한국어 👩\u200d🚒") == "عربي 한국어 👩‹U+200D›🚒"


def test_long_text_is_cut_with_a_count() -> None:
    assert show("x" * 2_005, 2_000) == "x" * 2_000 + "… (5 more characters)"
    assert show("x" * 1_002_000, 2_000).endswith("… (1,000,000 more characters)")
    assert show("x" * 2_000, 2_000) == "x" * 2_000


@given(st.text(st.characters(codec=None)))
def test_shown_text_can_always_be_written(text: str) -> None:
    for shown in (show(text), show_line(text)):
        shown.encode("utf-8")
        assert not any(c < " " and c not in "\t\n" for c in shown)


def test_names_stay_on_one_line() -> None:
    assert show_line(" a\n\tb  c ") == "a b c"
    assert show_line("x" * 100, 10) == "x" * 9 + "…"


def test_numbers_in_words() -> None:
    assert percent(0.12345).split() == ["12.3", "%"]
    assert points(0.246) == "+24.6"
    assert points(-0.0001) == "±0.0"
    assert points(-0.003) == "−0.3"
    assert number(1234567) == "1,234,567"
    assert number(-0.5) == "−0.500"
    assert [duration(s) for s in (5, 90, 7200)] == ["5.0 s", "1.5 min", "2.0 h"]
    assert interval(Estimate(0.5, 0.4, 0.6)) == "40.0 to 60.0"
    assert interval(Estimate(-0.1, -0.2, 0.05), change=True) == "−20.0 to +5.0"


def test_undefined_is_said() -> None:
    for value in (None, math.nan):
        assert percent(value) == points(value) == number(value) == "undefined"
    assert interval(Estimate.undefined("no tasks")) == interval(None) == ""
