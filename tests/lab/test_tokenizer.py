import json
from pathlib import Path

import pytest

from pivotune.core.types import Message, ParseOutcome, ToolCall
from pivotune.domains.household.actions import TOOLS, to_message
from pivotune.domains.household.environment import generated_task
from pivotune.domains.skills import calendar
from pivotune.domains.skills.suite import SKILLS, draw_items
from pivotune.lab.mixture import SHOWN, MixtureConfig, mixture_texts
from pivotune.lab.noisy_expert import Doubts, play_unsurely
from pivotune.lab.tokenizer import CONTEXT, train_tokenizer
from pivotune.models.chat import ChatFormat
from pivotune.models.parse import parse_action

PUT = "move {object} to {receptacle}"
COMMANDS = ("go to cabinet 12", "take mug 1 from shelf 2", "heat egg 1 with microwave 1", "look")


def test_equal_texts_give_equal_tokenizers() -> None:
    texts = list(mixture_texts(MixtureConfig(), 2))
    assert train_tokenizer(texts, 400).to_str() == train_tokenizer(texts, 400).to_str()


@pytest.mark.parametrize("text", ["naïve 머그 \t\n\n  x", 'a "quoted" {brace}', "1234567890", "—"])
def test_any_text_survives(chat: ChatFormat, text: str) -> None:
    ids = chat.tokenizer.encode(text, add_special_tokens=False)
    assert chat.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_every_digit_is_a_token_of_its_own(chat: ChatFormat) -> None:
    assert chat.tokenizer.tokenize("407 86")[:3] == ["4", "0", "7"]
    assert len(chat.tokenizer.tokenize("407 86")) == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_an_action_is_cheap_and_is_read_back(chat: ChatFormat, command: str) -> None:
    action = to_message(command, "act", PUT)
    prompt, ids = chat.render_action((Message("user", "Go on."),), TOOLS["act"], action)
    assert len(ids) <= 13
    assert ids[-1] == chat.tokenizer.eos_token_id
    read = parse_action(chat.decode(ids), finish="stop", expects_call=True)
    assert read.outcome is ParseOutcome.OK
    assert read.message.tool_calls[0].arguments == {"command": command}
    assert chat.decode(prompt).endswith("<|assistant|>")


def test_every_skill_answer_is_read_back(chat: ChatFormat) -> None:
    for skill in SKILLS:
        item = draw_items(skill, "eval", n=1, seed=0)[0]
        _, ids = chat.render_action(item.messages, item.tools, item.answer)
        read = parse_action(chat.decode(ids), finish="stop", expects_call=None)
        assert SKILLS[skill].check(item, read.message)


def test_the_template_is_append_only(chat: ChatFormat) -> None:
    played = play_unsurely(generated_task(5, "train"), Doubts(), SHOWN, 0)
    whole = chat.render_text(played.messages, played.tools, for_action=False)
    for end in range(1, len(played.messages)):
        part = chat.render_text(played.messages[:end], played.tools, for_action=False)
        assert whole.startswith(part)
        if played.messages[end].role == "assistant":
            assert whole.startswith(f"{part}<|assistant|>")
    assert len(chat.encode(whole)) < CONTEXT


def test_the_template_renders_all_that_chats_are_made_of(chat: ChatFormat) -> None:
    assert chat.findings == (
        "the chat template renders tools, tool calls (arguments as object), tool results, "
        "system messages, thinking",
    )
    call = ToolCall("cancel", {"person": "Ann", "day": "Fri"})
    messages = (
        Message("system", "S"),
        Message("user", "U"),
        Message("assistant", "A", (call, call), thinking="T"),
        Message("tool", "R"),
    )
    text = chat.render_text(messages, calendar.TOOLS[1:2])
    block = '<tool_call>cancel{"person": "Ann", "day": "Fri"}</tool_call>'
    assert text == (
        "<|tools|>cancel(person, day)<|system|>S<|user|>U<|assistant|><think>\nT\n</think>\n\nA"
        f"{block}{block}<|end|><|tool|>R<|assistant|>"
    )


def test_arguments_may_come_as_text(chat: ChatFormat) -> None:
    call = {"function": {"name": "go", "arguments": '{"to": "desk 1"}'}}
    dicts = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    text = chat.tokenizer.apply_chat_template(dicts, tokenize=False)
    assert text == '<|assistant|><tool_call>go{"to": "desk 1"}</tool_call><|end|>'


def test_the_folder_is_an_ordinary_one(tokenizer_folder: Path) -> None:
    config = json.loads((tokenizer_folder / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "<|end|>"
    assert {path.name for path in tokenizer_folder.iterdir()} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
