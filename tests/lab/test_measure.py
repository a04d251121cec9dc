from collections.abc import Sequence

from pivotune.core.types import Message, Task, ToolSpec
from pivotune.domains.household.environment import HouseholdEnvironment, generated_task
from pivotune.domains.skills.suite import skill_tasks, task_item
from pivotune.lab.measure import MeasureConfig, measure_games, measure_hints, measure_skills
from pivotune.lab.mixture import SHOWN
from pivotune.models.scripted import ScriptedSampler

TASKS = tuple(generated_task(seed, "unseen") for seed in range(6))


def oracle_play(messages: Sequence[Message], tools: Sequence[ToolSpec], row: int) -> Message:
    """Play by the oracle whichever of TASKS it is."""
    environment = HouseholdEnvironment(SHOWN)
    task = next(each for each in TASKS if begins(each, messages))
    environment.reset(task)
    for message in messages:
        if message.role == "assistant":
            environment.step(message)
    action = environment.oracle().action
    assert action is not None
    return action


def begins(task: Task, messages: Sequence[Message]) -> bool:
    return HouseholdEnvironment(SHOWN).reset(task) == tuple(messages[:2])


def test_the_oracle_wins_every_game_and_idles_nowhere() -> None:
    games = measure_games(ScriptedSampler(oracle_play), TASKS, 1.0, 0)
    assert (games.won.hits, games.won.n, games.idle.hits) == (6, 6, 0)
    assert sum(each.n for each in games.by_type.values()) == 6


def test_nonsense_wins_nothing_and_only_idles() -> None:
    games = measure_games(ScriptedSampler(lambda *_: "hello"), TASKS, 1.0, 0)
    assert (games.won.hits, games.idle.share) == (0, 1.0)
    assert games.idle.n == 6 * SHOWN.step_limit


def test_skills_are_counted_one_by_one() -> None:
    tasks = skill_tasks(n=3)
    answers = {task_item(task).question: task_item(task).answer for task in tasks}

    def answer(messages: Sequence[Message], tools: Sequence[ToolSpec], row: int) -> Message:
        question = messages[0].content
        return answers[question] if not question.startswith("sort") else Message("assistant", "1")

    shares = measure_skills(ScriptedSampler(answer), tasks, 0.0, 0)
    assert {name: share.hits for name, share in shares.items()} == {
        name: 0 if name == "sorting" else 3 for name in shares
    }


def test_following_a_hint_counts_and_repeating_another_action_does_not() -> None:
    def follow(messages: Sequence[Message], tools: Sequence[ToolSpec], row: int) -> str:
        hinted = messages[-1].content.partition("here is ")[2].partition(". Decide")[0]
        return f"<tool_call>{hinted}</tool_call>"

    config = MeasureConfig(helpers=8)
    assert measure_hints(ScriptedSampler(follow), config).share == 1.0
    stubborn = ScriptedSampler(lambda *_: '<tool_call>act{"command": "sit"}</tool_call>')
    assert measure_hints(stubborn, config).hits == 0
