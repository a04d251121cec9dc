import pytest

from pivotune.core.types import Message, ToolCall, ToolSpec
from pivotune.domains.household.environment import HouseholdEnvironment, generated_task
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.turns.wording import committed, normalise, resolve_action, spell_action

ADMISSIBLE = ("go to desk 1", "go to desk 10", "take mug 1 from desk 1", "open the safe 1", "look")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("go to desk 1", "go to desk 1"),
        ("  Go  TO\nDesk 10 ", "go to desk 10"),
        ("go to the desk 1", "go to desk 1"),
        ("open safe 1", "open the safe 1"),
        ('act{"command": "go to desk 10"}', "go to desk 10"),
        ("You should take mug 1 from desk 1.", "take mug 1 from desk 1"),
        ("look, then go to desk 1", None),
        ("take the red mug 1 from desk 1", "take mug 1 from desk 1"),
        ("take mug 1 from table 1", "take mug 1 from desk 1"),
        ("go to desk", None),
        ("fly to the moon", None),
        ("", None),
    ],
)
def test_a_teachers_text_is_resolved_or_dropped(text, action):
    assert resolve_action(text, ADMISSIBLE) == action


def test_a_tie_of_common_words_is_no_winner():
    assert resolve_action("go to desk 3", ("go to desk 1", "go to desk 2")) is None
    assert resolve_action("go to desk 3", ("go to desk 1", "look")) == "go to desk 1"


def test_household_commands_are_spelt_and_read_in_both_dialects():
    environment = HouseholdEnvironment()
    environment.reset(generated_task(1, "train", TINY_GAMES))
    command = environment.oracle().admissible[0]
    action = spell_action(command.upper(), environment, environment.tools)
    assert committed(environment, action) == normalise(command)
    thinking = Message("assistant", "Well.", action.tool_calls, thinking="I think so.")
    assert committed(environment, thinking) == normalise(command)
    assert committed(environment, Message("assistant", command)) is None
    assert spell_action("fly away", environment, environment.tools) is None


def test_without_an_environment_an_action_is_what_the_policy_would_write():
    tools = (ToolSpec("go"),)
    call = '<tool_call>go{"to": "x"}</tool_call>'
    assert spell_action(call, None, tools).tool_calls[0].arguments == {"to": "x"}
    assert spell_action("go to x", None, tools) is None
    assert spell_action("go to x", None, ()) == Message("assistant", "go to x")
    go = Message("assistant", tool_calls=(ToolCall("go", {"to": "X  y"}),))
    assert committed(None, go) == 'go{"to": "x y"}'
