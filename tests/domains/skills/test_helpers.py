from pivotune.core.types import Message, ToolCall
from pivotune.domains.skills.hints import describe_action, hint_message, with_hint
from pivotune.domains.skills.judging import judging_answer, judging_question, read_judgement

GO = Message("assistant", tool_calls=(ToolCall("go", {"to": "désk 1"}),))


def test_actions_are_described_with_their_content_and_calls() -> None:
    assert describe_action(GO) == 'go{"to": "désk 1"}'
    assert describe_action(Message("assistant", "done")) == "done"
    both = Message("assistant", "I look.", (ToolCall("look", {}), ToolCall("wait", {"n": 2})))
    assert describe_action(both) == 'I look. look{} wait{"n": 2}'


def test_a_hint_extends_the_state_and_names_the_action() -> None:
    state = (Message("user", "What now?"),)
    assert with_hint(state, GO)[:1] == state
    assert 'go{"to": "désk 1"}' in hint_message(GO).content


def test_judgements_are_written_and_read_alike() -> None:
    question = judging_question(
        "put it there", [(GO, "You arrive."), (GO, "Nothing happens.")], False
    )
    assert "\n2. go{" in question.content
    assert "Outcome: failed." in question.content
    assert read_judgement(judging_answer(2, GO)) == (2, 'go{"to": "désk 1"}')
    assert read_judgement(judging_answer(None, None)) is None
    assert read_judgement(Message("assistant", "turn two: go")) is None
