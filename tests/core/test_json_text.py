import pytest

from pivotune.core.json_text import JsonProblemError, parse_json


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"x": 2, "x": 1}', "duplicate key 'x'"),
        ('[{"a": {"b": 1, "b": 1}}]', "duplicate key 'b'"),
        ("NaN", "non-finite number NaN"),
        ("[-Infinity]", "non-finite"),
        ("1e999", "out of range"),
        ('{"a": 1}{"b": 2}', "more text after the first JSON value"),
        ('{"a": 1', "line 1"),
        ('"a\nb"', "Invalid control character"),
        ('"\\ud83d"', "surrogate"),
        ("[" * 65 + "]" * 65, "deeper than 64"),
        ("[" * 100_000, "deeper than 64"),
        ("1" * 5000, "digits"),
        ("", "line 1"),
    ],
)
def test_what_a_lenient_parser_would_change_is_an_error(text: str, said: str) -> None:
    with pytest.raises(JsonProblemError, match=said):
        parse_json(text)


def test_values_are_kept_exactly() -> None:
    text = '{"n": 123456789012345678901234567890, "s": "\\uc11c\\uc6b8 \\ud83d\\ude00", "d": 0.1}'
    assert parse_json(text) == {"n": 123456789012345678901234567890, "s": "서울 😀", "d": 0.1}
    assert parse_json("[" * 64 + "]" * 64)
