import msgspec
import pytest

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.types import Message, Task, ToolCall, Trajectory, Turn
from pivotune.domains.household.actions import TOOLS, Dialect, put_template, to_command, to_message
from pivotune.domains.household.environment import (
    EnvironmentConfig,
    HouseholdEnvironment,
    game_task,
    generated_task,
    task_game,
)
from pivotune.domains.household.expert import ExpertConfig, SearchingExpert
from pivotune.domains.household.generator import generate_game
from pivotune.domains.household.traces import record

DIALECTS: tuple[Dialect, ...] = ("act", "typed")


def fresh(seed: int = 0, dialect: Dialect = "act", step_limit: int = 30) -> HouseholdEnvironment:
    environment = HouseholdEnvironment(EnvironmentConfig(dialect, step_limit))
    environment.reset(generated_task(seed, "train"))
    return environment


def act(command: str) -> Message:
    return to_message(command, "act", "move {object} to {receptacle}", "call_0")


def turns_of(trajectory: Trajectory) -> list[Turn]:
    return [
        Turn(
            id=f"{trajectory.id}:{index}",
            trajectory_id=trajectory.id,
            task=trajectory.task,
            index=index,
            state=trajectory.messages[:at],
            tools=trajectory.tools,
            expert=trajectory.messages[at],
        )
        for index, at in enumerate(
            i for i, message in enumerate(trajectory.messages) if message.role == "assistant"
        )
    ]


def noisy_trajectory(seed: int, dialect: Dialect = "act") -> Trajectory:
    task = generated_task(seed, "train")
    return record(task, ExpertConfig(noise=0.4), EnvironmentConfig(dialect), seed)


def test_opening_and_first_step() -> None:
    environment = HouseholdEnvironment()
    system, user = environment.reset(generated_task(0, "train"))
    assert (system.role, user.role) == ("system", "user")
    assert len(system.content) < 100
    assert user.content.startswith("-= Welcome to TextWorld, ALFRED! =-")
    assert "Your task is to: " in user.content
    result = environment.step(act("inventory"))
    assert [m.content for m in result.replies] == ["You are not carrying anything."]
    assert result.replies[0].role == "tool"
    assert result.replies[0].tool_call_id == "call_0"
    assert not result.done


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_oracle_wins_every_game_in_as_many_steps_as_it_says(dialect: Dialect) -> None:
    for seed in range(20):
        environment = fresh(seed, dialect)
        remaining = environment.oracle().remaining
        assert remaining is not None
        for left in range(remaining, 0, -1):
            view = environment.oracle()
            assert view.remaining == left
            assert view.action is not None
            assert environment.reward() == 0.0
            result = environment.step(view.action)
        assert result.done
        assert environment.reward() == 1.0


def test_commands_survive_both_dialects() -> None:
    commands = [
        "go to desk 1",
        "open drawer 2",
        "close drawer 2",
        "take mug 1 from desk 1",
        "heat mug 1 with microwave 1",
        "cool mug 1 with fridge 1",
        "clean mug 1 with sinkbasin 1",
        "slice bread 1 with knife 1",
        "use desklamp 1",
        "examine mug 1",
        "look",
        "inventory",
    ]
    wordings = {"move {object} to {receptacle}": "move mug 1 to shelf 2"}
    wordings["put {object} in/on {receptacle}"] = "put mug 1 in/on shelf 2"
    for put, putting in wordings.items():
        for command in [*commands, putting]:
            for dialect in DIALECTS:
                message = to_message(command, dialect, put)
                assert to_command(message, put).command == command
                offered = {tool.name for tool in TOOLS[dialect]}
                assert message.tool_calls[0].name in offered


def test_typed_put_follows_the_wording_of_the_game() -> None:
    call = ToolCall(name="put", arguments={"object": "mug 1", "receptacle": "shelf 2"})
    message = Message(role="assistant", tool_calls=(call,))
    game = generate_game(0, "train")
    assert to_command(message, put_template(game)).command == "move mug 1 to shelf 2"
    older = msgspec.structs.replace(game, grammar="put")
    assert to_command(message, put_template(older)).command == "put mug 1 in/on shelf 2"


def test_tool_schemas_name_every_argument() -> None:
    for dialect in DIALECTS:
        for tool in TOOLS[dialect]:
            schema = tool.parameters
            assert schema["type"] == "object"
            assert set(schema["required"]) == set(schema["properties"])
    put = next(tool for tool in TOOLS["typed"] if tool.name == "put")
    assert put.parameters["required"] == ["object", "receptacle"]


BAD_CALLS = {
    "unknown tool": (ToolCall("fly", {}),),
    "wrong argument": (ToolCall("act", {"order": "look"}),),
    "missing argument": (ToolCall("act", {}),),
    "surplus argument": (ToolCall("look", {"where": "here"}),),
    "not text": (ToolCall("act", {"command": 3}),),
    "no JSON": (ToolCall("act", None, "{command: look"),),
    "blank": (ToolCall("act", {"command": "  "}),),
    "two calls": (ToolCall("act", {"command": "look"}, id="a"), ToolCall("look", {}, id="b")),
    "no call": (),
}


@pytest.mark.parametrize("calls", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_action_is_answered_changes_nothing_and_counts(calls: tuple[ToolCall, ...]) -> None:
    environment = fresh(step_limit=2)
    before = environment.state
    action = Message(role="assistant", content="hm", tool_calls=calls)
    result = environment.step(action)
    assert environment.state == before
    assert environment.commands == ()
    assert all(reply.content.startswith("Error: ") for reply in result.replies)
    assert [reply.tool_call_id for reply in result.replies] == [call.id for call in calls] or (
        not calls and result.replies[0].role == "user"
    )
    assert not result.done
    assert environment.step(action).done


def test_braces_in_arguments_are_only_text() -> None:
    call = ToolCall("go_to", {"receptacle": "{object} 1"})
    read = to_command(Message(role="assistant", tool_calls=(call,)), "")
    assert read.command == "go to {object} 1"


def test_a_clone_goes_its_own_way() -> None:
    environment = fresh()
    place = environment.oracle().action
    assert place is not None
    copy = environment.clone()
    copy.step(place)
    assert environment.commands == ()
    assert copy.commands != ()
    assert copy.state != environment.state
    environment.step(place)
    assert copy.state == environment.state


def test_a_clone_copies_nothing_however_long_the_game() -> None:
    """Constant time: the same objects under the same few names, after 0 turns and after 25."""
    environment = fresh()
    for _ in range(26):
        copy = environment.clone()
        assert len(copy.__dict__) < 12
        assert copy.__dict__.keys() == environment.__dict__.keys()
        assert all(copy.__dict__[name] is value for name, value in environment.__dict__.items())
        environment.step(act("look"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_restore_replays_every_turn_and_goes_on_from_the_last(dialect: Dialect) -> None:
    for seed in range(5):
        trajectory = noisy_trajectory(seed, dialect)
        onward = HouseholdEnvironment(EnvironmentConfig(dialect))
        turns = turns_of(trajectory)
        for turn in turns:
            onward.restore(turn)
            again = HouseholdEnvironment(EnvironmentConfig(dialect))
            again.restore(turn)
            assert onward.state == again.state
            assert onward.commands == again.commands
        end = onward.step(turns[-1].expert)
        assert end.replies == trajectory.messages[-1:]
        assert onward.reward() == trajectory.reward
        onward.restore(turns[0])  # and back again
        assert onward.commands == ()


def test_restore_refuses_an_observation_that_differs() -> None:
    turn = turns_of(noisy_trajectory(3))[-1]
    last = msgspec.structs.replace(turn.state[-1], content="You arrive at the moon.")
    wrong = msgspec.structs.replace(turn, state=(*turn.state[:-1], last))
    environment = HouseholdEnvironment()
    environment.restore(turns_of(noisy_trajectory(3))[-1])
    with pytest.raises(ReplayMismatch, match="the moon"):
        environment.restore(wrong)
    with pytest.raises(ReplayMismatch):
        environment.restore(msgspec.structs.replace(turn, task=generated_task(4, "train")))


def test_restore_accepts_another_system_message() -> None:
    turn = turns_of(noisy_trajectory(1))[-1]
    other = (Message(role="system", content="Be brief."), *turn.state[1:])
    environment = HouseholdEnvironment()
    environment.restore(msgspec.structs.replace(turn, state=other))
    assert len(environment.commands) > 0


def test_a_task_holds_its_game_either_way() -> None:
    game = generate_game(7, "unseen")
    task = generated_task(7, "unseen")
    assert task_game(task) == game
    whole = game_task(game, "unseen")
    stored = msgspec.json.decode(msgspec.json.encode(whole), type=Task)
    assert task_game(stored) == game


@pytest.mark.parametrize(
    "payload", [{}, {"seed": 1}, {"game": 3}, {"seed": 1, "split": "x", "config": {}}]
)
def test_a_payload_that_is_no_game_is_one_clear_error(payload: dict[str, object]) -> None:
    with pytest.raises(DataError, match="not a household game"):
        task_game(Task(id="t", domain="household", payload=payload))


@pytest.mark.parametrize("dialect", ["act", "typed"])
def test_advice_is_what_the_searching_expert_would_do(dialect: Dialect) -> None:
    hidden = 0
    for number in range(4):
        environment = HouseholdEnvironment(EnvironmentConfig(dialect=dialect))
        environment.reset(generated_task(number, "train"))
        expert = SearchingExpert(ExpertConfig(), 0, put_template(environment.game))
        expert.begin(environment.opening)
        while not environment.done:
            action = environment.advice()
            choice = expert.choose()
            assert action is not None
            assert choice is not None
            assert environment.read(action) == choice.command
            hidden += action != environment.oracle().action
            if len(environment.commands) == 3:
                environment.step(environment.spell("look"))
                assert environment.advice() == action
            result = environment.step(action)
            expert.observe(choice.command, result.replies[0].content)
        assert environment.reward() == 1.0
    assert hidden > 0  # it does not know where things are
