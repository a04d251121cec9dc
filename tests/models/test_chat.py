"""Every template here is written for the test; the cases are those that break tools like ours."""

import json
from typing import Any

import pytest

from pivotune.core.errors import TemplateError
from pivotune.core.types import Message, ToolCall, ToolSpec
from pivotune.models.chat import ChatFormat
from tiny_models import CHATML, byte_tokenizer

GO = ToolSpec("go", "걷다", {"type": "object", "properties": {"to": {"type": "string"}}})
SYSTEM = Message("system", "Be brief.")
USER = Message("user", "머그컵을 책상에 놓아라")
CALL = Message("assistant", tool_calls=(ToolCall("go", {"to": "책상 1"}, '{"to": "책상 1"}'),))
RESULT = Message("tool", "You see a mug.")
DONE = Message("assistant", "Done.")

THINKING = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == 'assistant' and loop.last -%}
<think>
{{ message.reasoning_content or '' }}
</think>

{% endif %}{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

OPENED = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content.split('</think>')[-1].lstrip() }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""

ALTERNATING = """\
{{ bos_token }}{% for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}{% endif %}
{%- if message.role == 'user' %}[INST]{{ message.content }}[/INST]
{%- else %}{{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"""

TEXT_ARGUMENTS = CHATML.replace("call.function.arguments | tojson", "'' + call.function.arguments")
ITERATED = CHATML.replace(
    "call.function.arguments | tojson",
    "'' }}{% for k, v in call.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}{{ ''",
)
PLAIN = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def chat(template: str = CHATML, **options: Any) -> ChatFormat:
    return ChatFormat(byte_tokenizer(template), **options)


def test_prompts_equal_the_templates_own_ids() -> None:
    own = byte_tokenizer()
    format_ = ChatFormat(own)
    dicts = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": USER.content},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "go", "arguments": {"to": "책상 1"}}}],
        },
        {"role": "tool", "content": RESULT.content},
        {"role": "tool", "content": "a second result"},
    ]
    state = (SYSTEM, USER, CALL, RESULT, Message("tool", "a second result"))
    for length in range(1, len(state) + 1):
        expected = own.apply_chat_template(
            dicts[:length], add_generation_prompt=True, return_dict=False
        )
        assert format_.render(state[:length], ()) == expected
        assert format_.render(state[:length], ()) == expected


def test_an_action_ends_with_the_stop_token_and_follows_the_prompt() -> None:
    format_ = chat()
    for action in (CALL, DONE):
        prompt, ids = format_.render_action((SYSTEM, USER), (GO,), action)
        assert prompt == format_.render((SYSTEM, USER), (GO,))
        assert ids[-1] == format_.turn_end_id == format_.tokenizer.eos_token_id
        assert ids.count(format_.turn_end_id) == 1
    assert format_.decode(ids) == "Done."
    two, ids = format_.render_action((USER, CALL, RESULT), (), DONE)
    assert two + ids + format_.encode("\n") == format_.encode(
        format_.render_text((USER, CALL, RESULT, DONE), (), for_action=False)
    )


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (CHATML, 'go{"to": "책상 1"}'),
        (TEXT_ARGUMENTS, 'go{"to": "책상 1"}'),
        (ITERATED, "go to=책상 1"),
        (PLAIN, '{"name": "go", "arguments": {"to": "책상 1"}}'),
    ],
)
def test_arguments_are_rendered_once_whatever_the_template_wants(template: str, shown: str) -> None:
    format_ = chat(template)
    for text in ('{"to": "책상 1"}', json.dumps({"to": "책상 1"}), ""):
        action = Message("assistant", tool_calls=(ToolCall("go", {"to": "책상 1"}, text),))
        rendered = format_.render_text((USER, action), ())
        assert shown in rendered
        assert "None" not in rendered
        assert "\\u" not in rendered


ONE_CALL = CHATML.replace(
    "{%- for call in",
    "{%- if (message.tool_calls or []) | length > 1 %}"
    "{{ raise_exception('one call at a time') }}{% endif %}{%- for call in",
)


def test_what_a_template_refuses_is_found_at_load_and_named_when_met() -> None:
    format_ = chat(ONE_CALL)
    assert any("several calls in one message" in finding for finding in format_.findings)
    assert "could not" not in format_.render_text((USER, CALL), ())
    two = Message(
        "assistant", tool_calls=(ToolCall("go", {"to": "a"}), ToolCall("go", {"to": "b"}))
    )
    with pytest.raises(TemplateError, match=r"message 1: .*one call at a time"):
        format_.render_text((USER, two), ())
    refusals = [each for each in chat(ALTERNATING).findings if "one role in a row" in each]
    assert len(refusals) == 1


def test_the_probe_says_what_it_found() -> None:
    assert chat().findings[0] == (
        "the chat template renders tools, tool calls (arguments as object), tool results, "
        "system messages"
    )
    assert chat(TEXT_ARGUMENTS).findings[0].count("arguments as text") == 1
    assert chat(PLAIN).findings[0].endswith("renders tool results, system messages")
    assert "thinking" in chat(THINKING).findings[0]
    assert any(finding.startswith("earlier thinking:") for finding in chat(THINKING).findings)


def test_two_parallel_calls_are_one_action() -> None:
    calls = (ToolCall("go", {"to": "a"}), ToolCall("go", {"to": "b"}))
    format_ = chat()
    _, ids = format_.render_action((USER,), (), Message("assistant", tool_calls=calls))
    assert format_.decode(ids) == (
        '<tool_call>go{"to": "a"}</tool_call><tool_call>go{"to": "b"}</tool_call>'
    )


def test_tools_go_where_the_template_puts_them_or_into_the_system_message() -> None:
    assert "걷다" in chat().render_text((SYSTEM, USER), (GO,))
    plain = chat(PLAIN)
    rendered = plain.render_text((SYSTEM, USER), (GO,))
    assert rendered.startswith("<|im_start|>system\nBe brief.\n\nYou can call these tools:")
    assert "걷다" in rendered
    assert "<|im_start|>system\nYou can call" in plain.render_text((USER,), (GO,))
    assert any(finding.startswith("tools:") for finding in plain.findings)


def test_thinking_of_the_action_is_target_and_an_inserted_empty_block_is_context() -> None:
    format_ = chat(THINKING)
    thoughtful = Message("assistant", "Done.", thinking="hm")
    prompt, ids = format_.render_action((USER,), (), thoughtful)
    assert prompt == format_.render((USER,), ())
    assert format_.decode(ids) == "<think>\nhm\n</think>\n\nDone."
    prompt, ids = format_.render_action((USER,), (), DONE)
    assert format_.decode(ids) == "Done."
    assert prompt == format_.render((USER,), ()) + format_.encode("<think>\n\n</think>\n\n")


def test_without_thinking_the_prompt_holds_the_templates_empty_block() -> None:
    format_ = chat(THINKING, thinking="drop")
    prompt, ids = format_.render_action((USER,), (), Message("assistant", "Done.", thinking="hm"))
    assert prompt == format_.render((USER,), ())
    assert format_.decode(prompt).endswith("<think>\n\n</think>\n\n")
    assert format_.decode(ids) == "Done."


def test_both_turns_of_a_thinking_history_have_the_servers_prompt() -> None:
    format_ = chat(THINKING)
    first = Message("assistant", "look", thinking="one")
    history = (USER, first, Message("user", "a mug"))
    prompt, ids = format_.render_action(history, (), Message("assistant", "take", thinking="two"))
    assert prompt == format_.render(history, ())
    assert format_.decode(ids) == "<think>\ntwo\n</think>\n\ntake"
    assert "one" not in format_.decode(prompt)


def test_a_prompt_that_opens_the_think_block_is_continued() -> None:
    format_ = chat(OPENED)
    prompt, ids = format_.render_action((USER,), (), Message("assistant", "Done.", thinking="hm"))
    assert prompt == format_.render((USER,), ())
    assert format_.decode(ids) == "hm\n</think>\n\nDone."
    prompt, ids = format_.render_action((USER,), (), DONE)
    assert format_.decode(ids) == "Done."
    assert prompt == format_.render((USER,), ()) + format_.encode("\n</think>\n\n")


def test_alternating_roles_are_demanded_and_the_error_names_the_message() -> None:
    format_ = ChatFormat(byte_tokenizer(ALTERNATING, special=("<s>", "</s>")))
    with pytest.raises(TemplateError, match=r"message 2: .*roles must alternate"):
        format_.render((USER, DONE, DONE, USER), ())
    assert any(finding.startswith("system message:") for finding in format_.findings)
    assert "[INST]Be brief.\n\n" in format_.render_text((SYSTEM, USER), ())


def test_exactly_one_bos() -> None:
    tokenizer = byte_tokenizer(ALTERNATING, special=("<s>", "</s>"))
    tokenizer.bos_token = "<s>"
    tokenizer.add_bos_token = True
    assert ChatFormat(tokenizer).render((USER,), ()).count(tokenizer.bos_token_id) == 1


def test_a_template_without_end_of_turn_is_ended_with_eos() -> None:
    format_ = chat(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    _, ids = format_.render_action((USER,), (), DONE)
    assert ids[-1] == format_.tokenizer.eos_token_id
    assert any(finding.startswith("end of turn:") for finding in format_.findings)


def test_an_action_that_does_not_continue_its_prompt_is_refused_by_turn() -> None:
    format_ = chat(
        CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>bot\n{% endif %}")
    )
    with pytest.raises(TemplateError, match=r"assistant turn 1 \(message 3\)"):
        format_.render_action((USER, CALL, RESULT), (), DONE)


def test_arguments_that_are_not_json_are_refused_by_call() -> None:
    broken = Message("assistant", tool_calls=(ToolCall("go", None, "{to: 1"),))
    with pytest.raises(TemplateError, match="message 1, call of go"):
        chat().render((USER, broken), ())
    assert "{to: 1" in chat(TEXT_ARGUMENTS).render_text((USER, broken), ())


def test_no_template_is_refused_with_a_way_out() -> None:
    with pytest.raises(TemplateError, match=r"chat_template\.jinja"):
        ChatFormat(byte_tokenizer(None))


AFTER_LAST_USER = """\
{%- set last = namespace(user=-1) %}{% for message in messages %}
{%- if message.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content and KEEP %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}
{{- call.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
KEEPING = AFTER_LAST_USER.replace("KEEP", "loop.index0 > last.user")
STRIPPING = AFTER_LAST_USER.replace("KEEP", "loop.last")


def thought_call(thinking: str, to: str, call_id: str) -> tuple[Message, dict[str, Any]]:
    """A call with thinking, ours and as a template is given it."""
    call = ToolCall("go", {"to": to}, json.dumps({"to": to}), call_id)
    function = {"name": "go", "arguments": {"to": to}}
    plain = {
        "role": "assistant",
        "content": "",
        "reasoning_content": thinking,
        "tool_calls": [{"type": "function", "id": call_id, "function": function}],
    }
    return Message("assistant", tool_calls=(call,), thinking=thinking), plain


@pytest.mark.parametrize(("template", "extends"), [(KEEPING, True), (STRIPPING, False)])
def test_every_turn_of_a_tool_loop_has_the_servers_prompt_and_its_own_thinking(
    template: str, extends: bool
) -> None:
    """User, thought and call, result, thought and call. Where the template strips the earlier
    thought, the second prompt is no extension of the first turn: that is no error."""
    tokenizer = byte_tokenizer(template)
    format_ = ChatFormat(tokenizer)
    first, first_dict = thought_call("one", "desk", "c1")
    second, _ = thought_call("two", "shelf", "c2")
    result = Message("tool", "You see a mug.", tool_call_id="c1", name="go")
    dicts: list[dict[str, Any]] = [{"role": "user", "content": USER.content}, first_dict]
    dicts.append({"role": "tool", "content": result.content, "tool_call_id": "c1", "name": "go"})

    def served(messages: list[dict[str, Any]]) -> list[int]:
        return tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )

    prompt_1, action_1 = format_.render_action((USER,), (), first)
    prompt_2, action_2 = format_.render_action((USER, first, result), (), second)
    assert prompt_1 == served(dicts[:1])
    assert prompt_2 == served(dicts)
    assert format_.decode(action_1) == (
        '<think>\none\n</think>\n\n<tool_call>go{"to": "desk"}</tool_call>'
    )
    assert format_.decode(action_2).startswith("<think>\ntwo\n</think>")
    turn_1 = prompt_1 + action_1
    assert (prompt_2[: len(turn_1)] == turn_1) is extends
    assert ("one" in format_.decode(prompt_2)) is extends


@pytest.mark.parametrize("template", [CHATML, TEXT_ARGUMENTS, ITERATED, PLAIN])
def test_a_call_without_content_never_renders_none(template: str) -> None:
    rendered = chat(template).render_text((SYSTEM, USER, CALL, RESULT), (GO,))
    assert "None" not in rendered
    assert "null" not in rendered
