import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pivotune.core.types import Message, ParseOutcome, ToolCall
from pivotune.models.parse import format_action, parse_action

OK = ParseOutcome.OK
MALFORMED = ParseOutcome.MALFORMED


def parse(text: str, **options: Any) -> tuple[Message, ParseOutcome, str]:
    return parse_action(text, **{"finish": "stop", "expects_call": None, **options})


def call(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


def test_both_spellings_mean_the_same() -> None:
    hermes, outcome, _ = parse(
        'I go.\n<tool_call>\n{"name": "go", "arguments": {"to": "desk 1"}}\n</tool_call>'
    )
    tagged, _, _ = parse('I go.\n<tool_call>go{"to": "desk 1"}</tool_call>')
    assert outcome is OK
    assert hermes == tagged
    assert hermes.content == "I go."
    assert hermes.tool_calls == (ToolCall("go", {"to": "desk 1"}, '{"to": "desk 1"}'),)


def test_arguments_given_as_json_text_are_read() -> None:
    message, outcome, _ = parse(call('{"name": "go", "arguments": "{\\"to\\": 1}"}'))
    assert outcome is OK
    assert message.tool_calls[0].arguments == {"to": 1}
    assert message.tool_calls[0].arguments_text == '{"to": 1}'


def test_two_parallel_calls_are_one_action() -> None:
    message, outcome, _ = parse(call('a{"x": 1}') + "\n" + call('b{"y": [2]}'))
    assert outcome is OK
    assert [c.name for c in message.tool_calls] == ["a", "b"]


def test_thinking_is_split_off() -> None:
    message, outcome, _ = parse("<think>\nhm, the desk\n</think>\n\n" + call('go{"to": 1}'))
    assert (message.thinking, message.content, outcome) == ("hm, the desk", "", OK)
    opened_by_the_prompt, _, _ = parse("hm</think>yes")
    assert (opened_by_the_prompt.thinking, opened_by_the_prompt.content) == ("hm", "yes")
    assert parse("<think>on and on")[1] is MALFORMED
    assert parse("<think>\n\n</think>\n\n")[1] is ParseOutcome.EMPTY


def test_a_closing_tag_inside_a_string_is_part_of_the_string() -> None:
    message, outcome, _ = parse(call('say{"text": "</tool_call> {"}'))
    assert outcome is OK
    assert message.tool_calls[0].arguments == {"text": "</tool_call> {"}


def test_large_integers_keep_every_digit() -> None:
    message, _, _ = parse(call('pay{"n": 123456789012345678901234567890, "f": 1.10}'))
    (pay,) = message.tool_calls
    assert pay.arguments == {"n": 123456789012345678901234567890, "f": 1.1}
    assert pay.arguments_text == '{"n": 123456789012345678901234567890, "f": 1.10}'
    hermes, _, _ = parse(call('{"arguments": {"f": 1.10, "a": {}}, "name": "pay"}'))
    assert hermes.tool_calls[0].arguments_text == '{"f": 1.10, "a": {}}'


def test_escaped_and_raw_unicode_are_one_call() -> None:
    raw, _, _ = parse(call('go{"to": "서울 é"}'))
    escaped, outcome, _ = parse(call('go{"to": "\\uc11c\\uc6b8 \\u00e9"}'))
    assert outcome is OK
    assert escaped.tool_calls[0].arguments == raw.tool_calls[0].arguments == {"to": "서울 é"}
    assert escaped.tool_calls[0].arguments_text != raw.tool_calls[0].arguments_text


def test_what_was_expected_decides() -> None:
    assert parse("hello", expects_call=True)[1] is ParseOutcome.NO_CALL
    assert parse(call("go{}"), expects_call=False)[1] is ParseOutcome.UNEXPECTED_CALL
    assert parse("hello", expects_call=False)[1] is OK
    assert parse(call("go{}"), expects_call=True)[1] is OK
    assert parse("  ", expects_call=True)[1] is ParseOutcome.EMPTY


def test_cut_off_is_truncated_whatever_it_looks_like() -> None:
    text = '<tool_call>go{"to": "de'
    message, outcome, _ = parse(text, finish="length")
    assert outcome is ParseOutcome.TRUNCATED
    assert message.content == text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (call('go{"x": 2, "x": 1}'), "duplicate key 'x'"),
        (call('go{"x": NaN}'), "non-finite number NaN"),
        (call('go{"x": -Infinity}'), "non-finite number -Infinity"),
        (call('go{"x": 1e999}'), "out of range 1e999"),
        (call('go{"x": 1}{"y": 2}'), "glued"),
        (call('{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}'), "glued"),
        (call('{"name": "go", "arguments": {"x": 1}'), "a closing brace is missing"),
        (call('go{"x": "a\nb"}'), "raw newline"),
        (call('go{"x": "a\tb"}'), "raw control character"),
        (call('go{"x": "a}'), "never closed"),
        (call('go{"x": "\\ud800"}'), "surrogate"),
        (call("go{'x': 1}"), "bad JSON"),
        (call('go{"x": ' + "[" * 200 + "]" * 200 + "}"), "nested deeper"),
        (call('go{"x": ' + "1" * 5000 + "}"), "a number that cannot be read"),
        (call('{"name": "go", "parameters": {"x": 1}}'), "`parameters`"),
        (call('{"name": "go"}'), "without arguments"),
        (call('{"name": "go", "arguments": ""}'), "not a JSON object"),
        (call('{"name": "go", "arguments": [1]}'), "not a JSON object"),
        (call('{"name": "go", "arguments": "{} {}"}'), "glued"),
        (call('{"name": "", "arguments": {}}'), "without a name"),
        (call('{"name": "go", "arguments": {}, "why": 1}'), "unknown key 'why'"),
        (call("go"), "no JSON object"),
        (call('go{"x": 1} now'), "text after"),
        ('<tool_call>go{"x": 1}', "</tool_call> is missing"),
        ('go{"x": 1}</tool_call>', "without <tool_call>"),
    ],
)
def test_malformed_calls_are_named_and_never_repaired(text: str, named: str) -> None:
    message, outcome, problem = parse(text)
    assert outcome is MALFORMED
    assert named in problem
    assert message.tool_calls == ()
    assert message.content == text


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (call('{"name": "go", "arguments": {"x": 1}'), {"x": 1}, "added }"),
        (call('go{"x": [1, {"y": 2'), {"x": [1, {"y": 2}]}, "added }]}"),
        (call('{"name": "go", "parameters": {"x": 1}}'), {"x": 1}, "`parameters` read as"),
        (call("go{“x”: “a”}"), {"x": "a"}, "typographic quotes"),
        (call('go{"x": "a\nb"}'), {"x": "a\nb"}, "escaped raw control characters"),
        ('<tool_call>go{"x": 1}', {"x": 1}, "added </tool_call>"),
    ],
)
def test_lenient_reading_repairs_and_says_so(
    text: str, arguments: dict[str, Any], said: str
) -> None:
    message, outcome, problem = parse(text, strict=False)
    assert outcome is OK
    assert message.tool_calls[0].arguments == arguments
    assert said in problem


def test_lenient_reading_never_invents_arguments() -> None:
    for text in (
        call('{"name": "go"}'),
        call("go"),
        call('go{"x": 1, "x": 2}'),
        call('go{"x": "a'),
    ):
        message, outcome, _ = parse(text, strict=False)
        assert outcome is MALFORMED
        assert message.tool_calls == ()


def test_lenient_reading_says_nothing_of_a_sound_call() -> None:
    assert parse(call('go{"x": "“quoted”"}'), strict=False)[1:] == (OK, "")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4), st.text(), st.booleans())
def test_what_is_written_is_read_back(
    arguments: dict[str, Any], thinking: str, escape: bool
) -> None:
    text = json.dumps(arguments, ensure_ascii=escape)
    thinking = thinking.replace("<", "").strip()
    action = Message("assistant", tool_calls=(ToolCall("go", arguments, text),), thinking=thinking)
    message, outcome, problem = parse(format_action(action))
    assert (outcome, problem) == (OK, "")
    assert message.tool_calls[0].arguments == arguments
    assert message.thinking == thinking
    assert parse(call("go" + text))[0].tool_calls == action.tool_calls


@given(st.text(alphabet=list('<>/{}[]":,\\ \ntool_cathink1eN')), st.booleans())
def test_no_text_crashes_the_parser(text: str, strict: bool) -> None:
    for prefix in ("", "<tool_call>", "<think>", '<tool_call>go{"a":'):
        parse(prefix + text, strict=strict)
