import random
from pathlib import Path

import msgspec
import pytest

from domains.household.games import official_games
from pivotune.core.types import Completion, Message, ParseOutcome, Trajectory, Turn
from pivotune.domains.household import engine
from pivotune.domains.household.actions import put_template, to_message
from pivotune.domains.household.environment import (
    EnvironmentConfig,
    HouseholdEnvironment,
    generated_task,
)
from pivotune.domains.household.expert import ExpertConfig, SearchingExpert
from pivotune.domains.household.files import load_game
from pivotune.domains.household.game import Game, Goal, Receptacle, Thing
from pivotune.domains.household.generator import (
    FULL_GAMES,
    SMALL_GAMES,
    TINY_GAMES,
    GeneratorConfig,
    generate_game,
)
from pivotune.domains.household.progress import ProgressVerifier, judge, start
from pivotune.domains.household.traces import record

PUT = "move {object} to {receptacle}"


def room() -> Game:
    """A bedroom by hand: a book lies in drawer 1, a pen on desk 1; the book goes on the bed."""
    places = ("bed", "desk", "drawer", "shelf", "laundryhamper")
    receptacles = tuple(
        Receptacle(f"{kind}_bar_0", kind, f"loc_bar_{i}", openable=kind == "drawer")
        for i, kind in enumerate(places, 1)
    )
    fits = dict.fromkeys(("desk", "drawer", "shelf"), ("book", "pen"))
    return Game(
        id="by hand",
        task_type="pick_and_place_simple",
        task="put a book in bed.",
        scene="bedroom",
        start="loc_bar_0",
        receptacles=receptacles,
        things=(
            Thing("book_bar_0", "book", ("drawer_bar_0",)),
            Thing("pen_bar_0", "pen", ("desk_bar_0",)),
        ),
        fits=fits | {"bed": ("book",), "laundryhamper": ()},
        goal=Goal(thing_type="book", receptacle_type="bed"),
    )


def accepted(commands: list[str], game: Game | None = None) -> list[bool]:
    """The verdict on each command of a walk."""
    game = game or room()
    return [judge(game, tuple(commands[:i]), commands[i]).accepted for i in range(len(commands))]


def test_searching_taking_and_putting_is_accepted() -> None:
    commands = [
        "go to desk 1",
        "go to shelf 1",
        "go to drawer 1",
        "open drawer 1",
        "take book 1 from drawer 1",
        "go to bed 1",
        "move book 1 to bed 1",
    ]
    assert accepted(commands) == [True] * 7


def test_commands_without_effect_are_rejected() -> None:
    walk = ["go to desk 1"]
    for command in ("look", "inventory", "help", "examine desk 1", "take book 1 from desk 1", "x"):
        assert accepted([*walk, command])[-1] is False


def test_what_cannot_hold_the_wanted_thing_is_no_place_to_search() -> None:
    assert accepted(["go to laundryhamper 1"]) == [False]


def test_what_has_been_seen_is_not_searched_again() -> None:
    commands = ["go to desk 1", "go to shelf 1", "go to desk 1", "go to shelf 1", "go to desk 1"]
    assert accepted(commands) == [True, True, False, False, False]


def test_a_shut_place_is_opened_before_going_on() -> None:
    assert accepted(["go to drawer 1", "go to desk 1"]) == [True, False]
    assert accepted(["go to drawer 1", "go to desk 1", "go to shelf 1"])[-1] is True


def test_searching_on_after_the_thing_has_been_seen_is_rejected() -> None:
    found = ["go to drawer 1", "open drawer 1"]
    assert accepted([*found, "go to desk 1"]) == [True, True, False]
    assert accepted([*found, "close drawer 1"])[-1] is False
    assert accepted([*found, "take book 1 from drawer 1", "go to shelf 1"])[-1] is False


def test_the_way_back_from_a_mistake_is_accepted_once() -> None:
    strayed = ["go to drawer 1", "open drawer 1", "go to desk 1"]
    back = [*strayed, "go to drawer 1"]
    assert accepted(back)[-1] is True
    assert accepted([*back, "go to desk 1", "go to drawer 1"])[-2:] == [False, False]


def test_taking_and_putting_back_for_ever_earns_nothing() -> None:
    found = ["go to drawer 1", "open drawer 1"]
    loop = ["take book 1 from drawer 1", "move book 1 to drawer 1"]
    assert accepted(found + loop * 4)[2:] == [True] + [False] * 7


def test_a_thing_that_is_not_wanted_is_in_the_way() -> None:
    commands = ["go to desk 1", "take pen 1 from desk 1", "move pen 1 to desk 1"]
    assert accepted(commands) == [True, False, True]


def test_looking_around_scores_nothing_on_any_game() -> None:
    for seed in range(20):
        game = generate_game(seed, "train")
        assert not any(accepted(["look"] * 10, game))


@pytest.mark.parametrize("config", [SMALL_GAMES, FULL_GAMES], ids=["small", "full"])
def test_walking_to_and_fro_scores_nothing(config: GeneratorConfig) -> None:
    """First visits apart, and one way back to what was found: then never again."""
    rng = random.Random(0)
    for seed in range(15):
        game = generate_game(seed, "train", config)
        state, _ = engine.start(game)
        places = [c for c in engine.admissible(state) if c.startswith("go to")]
        there, back = rng.sample(places, 2)
        verdicts = accepted([there, back] * 8, game)
        assert not any(verdicts[4:])
        assert sum(verdicts) <= 3


@pytest.mark.parametrize("stall", [("look",), ("inventory", "look"), ("go to {a}", "go to {b}")])
def test_stalling_after_any_expert_prefix_scores_nothing(stall: tuple[str, ...]) -> None:
    for seed in range(12):
        trace = record(generated_task(seed, "train"), ExpertConfig(), EnvironmentConfig(), seed)
        commands = commands_of(trace)
        game = generate_game(seed, "train")
        position = start(game)
        for command in commands[: len(commands) // 2]:
            position = position.after(command)
        state = position.state
        names = sorted(c[6:] for c in engine.admissible(state) if c.startswith("go to"))
        visited = [c[6:] for c in commands[: len(commands) // 2] if c.startswith("go to")]
        a, b = (visited * 2 + names)[:2] if len(set(visited)) > 1 else names[:2]
        verdicts = []
        for command in [s.format(a=a, b=b) for s in stall] * 8:
            verdicts.append(position.judge(command).accepted)
            position = position.after(command)
        assert not any(verdicts[4:])


@pytest.mark.parametrize("noise", [0.0, 0.25, 0.5])
@pytest.mark.parametrize(
    "config", [TINY_GAMES, SMALL_GAMES, FULL_GAMES], ids=["tiny", "small", "full"]
)
def test_the_experts_own_moves_are_accepted(config: GeneratorConfig, noise: float) -> None:
    rejected = []
    for seed in range(40):
        game = generate_game(seed, "unseen", config)
        position = start(game)
        expert = SearchingExpert(ExpertConfig(noise=noise), seed, put_template(game))
        expert.begin(engine.start(game)[1])
        state = position.state
        for _ in range(60):
            choice = expert.choose()
            if choice is None or state.won:
                break
            verdict = position.judge(choice.command)
            if not choice.mistake and not verdict.accepted:
                rejected.append((game.id, choice.command, verdict.reason))
            position = position.after(choice.command)
            state, observation = engine.step(state, choice.command)
            expert.observe(choice.command, observation)
    assert rejected == []


def test_on_official_games_only_a_go_to_within_reach_is_rejected(tmp_path: Path) -> None:
    """There two places can be at one location: going from one to the other does nothing."""
    for path in official_games(tmp_path)[::8]:
        game = load_game(path)
        position = start(game)
        expert = SearchingExpert(ExpertConfig(noise=0.2), 0, put_template(game))
        expert.begin(engine.start(game)[1])
        while not position.state.won:
            choice = expert.choose()
            assert choice is not None
            verdict = position.judge(choice.command)
            nothing = verdict.reason == "nothing happens" and choice.command.startswith("go to")
            assert choice.mistake or verdict.accepted or nothing, choice.command
            _, observation = engine.step(position.state, choice.command)
            expert.observe(choice.command, observation)
            position = position.after(choice.command)


# The verifier


def commands_of(trace: Trajectory) -> list[str]:
    calls = [m.tool_calls[0] for m in trace.messages if m.role == "assistant"]
    return [(call.arguments or {})["command"] for call in calls]


def turn_of(trace: Trajectory, index: int) -> Turn:
    at = [i for i, m in enumerate(trace.messages) if m.role == "assistant"][index]
    return Turn(
        id=f"{trace.id}:{index}",
        trajectory_id=trace.id,
        task=trace.task,
        index=index,
        state=trace.messages[:at],
        tools=trace.tools,
        expert=trace.messages[at],
    )


def completion(message: Message, outcome: ParseOutcome = ParseOutcome.OK) -> Completion:
    return Completion(
        prompt_ids=(),
        token_ids=(),
        logprobs=(),
        message=message,
        outcome=outcome,
        finish="stop",
        temperature=1.0,
        policy_hash="",
    )


def expert_trace(seed: int) -> Trajectory:
    return record(generated_task(seed, "train"), ExpertConfig(), EnvironmentConfig(), seed)


def test_every_expert_turn_scores_one_with_and_without_an_environment() -> None:
    verifier, environment = ProgressVerifier(), HouseholdEnvironment()
    for seed in range(15):
        trace = expert_trace(seed)
        for index in range(trace.meta["steps"]):
            turn = turn_of(trace, index)
            environment.restore(turn)
            before = environment.state
            given = verifier.verify(turn, completion(turn.expert), environment)
            assert environment.state is before
            assert given == verifier.verify(turn, completion(turn.expert), None)
            assert given.reward == 1.0
            assert set(given.parts) == {"shorter", "explores"}
            assert max(given.parts.values()) == 1.0


def test_bad_actions_score_zero_and_are_not_invalid() -> None:
    verifier, turn = ProgressVerifier(), turn_of(expert_trace(0), 2)
    for outcome in ParseOutcome:
        if outcome is not ParseOutcome.OK:
            verdict = verifier.verify(turn, completion(turn.expert, outcome), None)
            assert verdict.reward == 0.0
            assert outcome.value in verdict.reason
    silent = Message(role="assistant", content="I am done.")
    assert verifier.verify(turn, completion(silent), None).reward == 0.0
    look = to_message("look", "act", PUT)
    assert verifier.verify(turn, completion(look), None).reward == 0.0


def test_a_turn_that_cannot_be_restored_is_invalid() -> None:
    turn = turn_of(expert_trace(0), 2)
    lost = msgspec.structs.replace(turn, task=generated_task(1, "train"))
    verdict = ProgressVerifier().verify(lost, completion(turn.expert), None)
    assert verdict.invalid
    assert "restored" in verdict.reason
