import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pivotune.core.types import Message, ParseOutcome, ToolCall, ToolSpec
from pivotune.models.fenced_calls import format_fenced, mend_json, read_fenced

GO = ToolSpec(
    "go",
    "Walk.",
    {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "steps": {"type": "integer"},
            "fast": {"type": "boolean"},
            "via": {"type": "array"},
            "pace": {"type": "number"},
        },
        "required": ["to"],
    },
)


def read(text, finish="stop", expects_call=None):
    return read_fenced(text, [GO], finish=finish, expects_call=expects_call)


def block(text):
    return f"```json\n{text}\n```"


def test_a_clean_block_is_read_without_a_word() -> None:
    found = read("I walk.\n" + block('[{"name": "go", "arguments": {"to": "desk 1"}}]'))
    assert found.message.content == "I walk."
    (call,) = found.message.tool_calls
    assert (call.name, call.arguments) == ("go", {"to": "desk 1"})
    assert (found.outcome, found.problem) == (ParseOutcome.OK, "")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[{'name': 'go', 'arguments': {'to': 'desk 1'}}]", {"to": "desk 1"}),
        ("[{“name”: “go”, “arguments”: {“to”: “desk 1”}}]", {"to": "desk 1"}),
        ('[{"name": "go", "arguments": {"to": "desk 1",},},]', {"to": "desk 1"}),
        ("[{'name': 'go', 'arguments': {'to': 'Tom's desk'}}]", {"to": "Tom's desk"}),
        ('[{"name": "go", "arguments": {"to": "a", "fast": True}}]', {"to": "a", "fast": True}),
        ('[{"name": "go", "arguments": {"to": "a", "via": None}}]', {"to": "a", "via": None}),
        ('[{"name": "go", "arguments": {"to": "a"}', {"to": "a"}),
        ('{"name": "go", "arguments": {"to": "a"}}', {"to": "a"}),
        ('[{"name": "go", "parameters": {"to": "a"}}]', {"to": "a"}),
        ('[{"name": "go", "arguments": "{\\"to\\": \\"a\\"}"}]', {"to": "a"}),
        ('[{"name": "go", "arguments": {"to": "a\nb"}}]', {"to": "a\nb"}),
        ('[{"name": "go", "arguments": {"steps": "3"}}]', {"steps": 3}),
        ('[{"name": "go", "arguments": {"fast": "false"}}]', {"fast": False}),
        ('[{"name": "go", "arguments": {"pace": "1.5"}}]', {"pace": 1.5}),
        ('[{"name": "go", "arguments": {"via": "[1, 2]"}}]', {"via": [1, 2]}),
        ('[{"name": "go", "arguments": {"steps": "many"}}]', {"steps": "many"}),
        ('[{"name": "go", "arguments": {"steps": "true"}}]', {"steps": "true"}),
        ('[{"name": "go", "arguments": {"to": "5"}}]', {"to": "5"}),
    ],
)
def test_what_a_base_model_writes_is_mended(text, arguments) -> None:
    found = read(block(text))
    assert found.outcome is ParseOutcome.OK
    assert [call.arguments for call in found.message.tool_calls] == [arguments]
    assert json.loads(found.message.tool_calls[0].arguments_text) == arguments


def test_unknown_tools_are_dropped_and_told() -> None:
    two = '[{"name": "fly", "arguments": {}}, {"name": "go", "arguments": {"to": "a"}}]'
    found = read(block(two))
    assert [call.name for call in found.message.tool_calls] == ["go"]
    assert "dropped the unknown tool 'fly'" in found.problem
    none = read(block('[{"name": "fly", "arguments": {}}]'), expects_call=True)
    assert none.outcome is ParseOutcome.EMPTY


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("The mug is on the desk.", ParseOutcome.OK),
        ("", ParseOutcome.EMPTY),
        (block("[1, 2]"), ParseOutcome.MALFORMED),
        (block('[{"name": "go"}]'), ParseOutcome.MALFORMED),
        (block('[{"name": "go", "arguments": [1]}]'), ParseOutcome.MALFORMED),
        (block('[{"name": "go", "arguments": {"to": "a", "to": "b"}}]'), ParseOutcome.MALFORMED),
        (block("[go to desk]"), ParseOutcome.MALFORMED),
        ("```python\nprint(1)\n```", ParseOutcome.OK),
    ],
)
def test_the_rest_is_words_or_malformed(text, outcome) -> None:
    assert read(text).outcome is outcome


def test_limits_and_expectations() -> None:
    call = block('[{"name": "go", "arguments": {"to": "a"}}]')
    assert read(call, finish="length").outcome is ParseOutcome.TRUNCATED
    assert read("words", expects_call=True).outcome is ParseOutcome.NO_CALL
    assert read(call, expects_call=False).outcome is ParseOutcome.UNEXPECTED_CALL


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=4), st.text(max_size=20))
@example({"```": "a\n```"}, "")
def test_what_is_written_is_read_back(arguments, content) -> None:
    content = content.replace("`", "").strip()
    free = ToolSpec("go", "", {"type": "object"})
    said = Message("assistant", content, (ToolCall("go", arguments), ToolCall("go", {})))
    found = read_fenced(format_fenced(said), [free], finish="stop", expects_call=True)
    assert [call.arguments for call in found.message.tool_calls] == [arguments, {}]
    assert found.message.content == content
    assert found.problem == ""


@settings(deadline=None)
@given(st.text(alphabet="[]{}\"',: a1\\\n“’TrueNone", max_size=60))
def test_mending_ends_and_reading_never_raises(text) -> None:
    mend_json(text)
    assert read(block(text)).outcome in ParseOutcome
