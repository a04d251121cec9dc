import random
from collections import Counter

import msgspec
import pytest

from pivotune.core.errors import DataError
from pivotune.domains.household import engine
from pivotune.domains.household.actions import put_template
from pivotune.domains.household.expert import (
    MISTAKES,
    Choice,
    Errand,
    ExpertConfig,
    SearchingExpert,
    read_errand,
)
from pivotune.domains.household.game import Game
from pivotune.domains.household.generator import (
    FULL_GAMES,
    SMALL_GAMES,
    TASK_TYPES,
    GeneratorConfig,
    generate_game,
)

Played = list[tuple[Choice, str]]


def play(game: Game, config: ExpertConfig, seed: int = 0, limit: int = 60) -> tuple[bool, Played]:
    """Is the game won, and what was done and answered."""
    state, opening = engine.start(game)
    expert = SearchingExpert(config, seed, put_template(game))
    expert.begin(opening)
    played: Played = []
    while not state.won and len(played) < limit:
        choice = expert.choose()
        if choice is None:
            break
        state, observation = engine.step(state, choice.command)
        expert.observe(choice.command, observation)
        played.append((choice, observation))
    return state.won, played


@pytest.mark.parametrize("config", [SMALL_GAMES, FULL_GAMES], ids=["small", "full"])
def test_without_noise_every_game_is_won_and_nothing_done_is_impossible(
    config: GeneratorConfig,
) -> None:
    for seed in range(60):
        game = generate_game(seed, "unseen", config)
        won, played = play(game, ExpertConfig(), seed, limit=100)
        assert won, game.id
        assert all(not choice.mistake for choice, _ in played)
        assert all(observation != engine.NOTHING for _, observation in played)


def test_games_in_the_older_wording_are_won_too() -> None:
    for seed in range(15):
        game = msgspec.structs.replace(generate_game(seed, "train"), grammar="put")
        won, played = play(game, ExpertConfig(), seed)
        assert won, [choice.command for choice, _ in played]


def test_the_same_seed_plays_alike_and_another_differently() -> None:
    config = ExpertConfig(noise=0.3)
    games = [generate_game(seed, "train") for seed in range(20)]
    first = [play(game, config, seed=1) for game in games]
    assert first == [play(game, config, seed=1) for game in games]
    assert first != [play(game, config, seed=2) for game in games]


def test_noise_lowers_success_and_every_kind_of_mistake_is_made() -> None:
    kinds: Counter[str] = Counter()
    won = []
    for noise in (0.0, 0.3, 0.7):
        results = [
            play(generate_game(seed, "train"), ExpertConfig(noise=noise), seed, limit=20)
            for seed in range(40)
        ]
        won.append(sum(result for result, _ in results))
        kinds.update(choice.mistake for _, played in results for choice, _ in played)
    assert won[0] == 40
    assert won[0] > won[1] > won[2]
    assert set(kinds) == {"", *MISTAKES}


def test_a_single_kind_of_mistake_can_be_asked_for() -> None:
    config = ExpertConfig(noise=0.5, mistakes=("look",))
    for seed in range(20):
        _, played = play(generate_game(seed, "train"), config, seed)
        assert {choice.mistake for choice, _ in played} <= {"", "look"}
        assert all((choice.command == "look") == bool(choice.mistake) for choice, _ in played)


def test_giving_up_ends_the_game() -> None:
    lengths = [
        len(play(generate_game(seed, "train"), ExpertConfig(give_up=1.0), seed)[1])
        for seed in range(5)
    ]
    assert lengths == [1] * 5


def test_a_forgotten_step_is_noticed_and_made_good() -> None:
    config = ExpertConfig(noise=0.5, mistakes=("skip_step",))
    kind = GeneratorConfig(task_types=("pick_heat_then_place_in_recep",))
    seen = 0
    for seed in range(20):
        won, played = play(generate_game(seed, "train", kind), config, seed, limit=100)
        deluded = [choice.command for choice, _ in played if choice.mistake == "skip_step"]
        seen += bool(deluded)
        assert won
        assert not any(command.startswith("heat ") for command in deluded)
    assert seen > 8


def test_the_expert_needs_nothing_but_texts() -> None:
    """It plays a game told by hand, with no engine anywhere."""
    expert = SearchingExpert(ExpertConfig(), seed=0)
    expert.begin(
        "You are in the middle of a room. Looking quickly around you, you see a desk 1, "
        "a drawer 1, and a bed 1.\n\nYour task is to: put a book in drawer."
    )
    told = {
        "go to bed 1": "You arrive at bed 1. On the bed 1, you see nothing.",
        "go to desk 1": "You arrive at desk 1. On the desk 1, you see a pen 1, and a book 2.",
        "take book 2 from desk 1": "You pick up the book 2 from the desk 1.",
        "go to drawer 1": "You arrive at drawer 1. The drawer 1 is closed.",
        "open drawer 1": "You open the drawer 1. The drawer 1 is open. In it, you see nothing.",
    }
    commands = []
    while True:
        choice = expert.choose()
        assert choice is not None
        commands.append(choice.command)
        if choice.command not in told:
            break
        expert.observe(choice.command, told[choice.command])
    last = ["take book 2 from desk 1", "go to drawer 1", "open drawer 1", "move book 2 to drawer 1"]
    assert [c for c in commands if c in last][-4:] == last or commands[-1] == last[-1]


def test_task_sentences() -> None:
    assert read_errand("put a clean bowl in cabinet.") == Errand("bowl", "cabinet", "clean")
    assert read_errand("heat some egg and put it in fridge.") == Errand("egg", "fridge", "heat")
    assert read_errand("put a cool pan in countertop.") == Errand("pan", "countertop", "cool")
    assert read_errand("put some book on sofa.") == Errand("book", "sofa")
    assert read_errand("find two cd and put them in safe.") == Errand("cd", "safe", count=2)
    lamp = Errand("mug", "desklamp", under_lamp=True)
    assert read_errand("examine the mug with the desklamp.") == lamp
    assert read_errand("look at mug under the desklamp.") == lamp
    with pytest.raises(DataError, match="does not understand"):
        read_errand("water the plants.")


def test_every_generated_sentence_is_understood() -> None:
    random_games = [generate_game(seed, "train") for seed in range(60)]
    assert {game.task_type for game in random_games} == set(TASK_TYPES)
    for game in random_games:
        errand = read_errand(game.task)
        assert errand.thing == game.goal.thing_type
        assert errand.target in (game.goal.receptacle_type, game.goal.lamp_type)
        assert errand.count == game.goal.count
        assert bool(errand.treatment) == bool(game.goal.conditions)


def test_random_answers_never_break_the_expert() -> None:
    rng = random.Random(0)
    for seed in range(30):
        game = generate_game(seed, "train")
        state, opening = engine.start(game)
        expert = SearchingExpert(ExpertConfig(noise=0.5), seed)
        expert.begin(opening)
        for _ in range(40):
            choice = expert.choose()
            if choice is None:
                break
            command = choice.command if rng.random() < 0.7 else "look"
            state, observation = engine.step(state, command)
            expert.observe(choice.command, observation)
