from collections import Counter

import msgspec
import numpy as np

from pivotune.core.types import Message, Task
from pivotune.domains.household.actions import to_message
from pivotune.domains.household.environment import HouseholdEnvironment, generated_task
from pivotune.domains.household.expert import Memory
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.domains.skills.hints import describe_action
from pivotune.domains.skills.item import SkillItem
from pivotune.domains.skills.judging import read_judgement
from pivotune.domains.skills.suite import SKILLS, split_of
from pivotune.lab.mixture import (
    FIRST_GAME,
    SHOWN,
    MixtureConfig,
    draw_conversations,
    draw_mixture,
    judging_messages,
)
from pivotune.lab.noisy_expert import Doubts, moment, play_unsurely
from pivotune.lab.rendering import Hint, conversation_tree
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import path_ids

CONFIG = MixtureConfig(games=2, hints=2, judge_every=2, items=2, echo_steps=0, unsure_from=10)
CERTAIN = msgspec.convert(dict.fromkeys(Doubts.__struct_fields__, 0.0), Doubts)


def test_a_step_is_a_function_of_config_and_step(chat: ChatFormat) -> None:
    first, again = draw_mixture(chat, CONFIG, 3), draw_mixture(chat, CONFIG, 3)
    assert [tree.id for tree in first] == [tree.id for tree in again]
    for left, right in zip(first, again, strict=True):
        for one, other in zip(left.segments, right.segments, strict=True):
            assert np.array_equal(one.ids, other.ids)
    assert list(draw_conversations(CONFIG, 3)) != list(draw_conversations(CONFIG, 4))


def test_a_step_holds_what_its_config_says() -> None:
    drawn = list(draw_conversations(CONFIG, 0))
    counts = Counter(each.source for each in drawn)
    assert counts == {
        "household": 2,
        "judging": 1,
        "echoes": CONFIG.echoes,
        "skills": 2 * (len(SKILLS) + len(CONFIG.hard)),
    }
    assert all(len(each.hints) == 2 for each in drawn if each.source == "household")
    for each in drawn:
        if each.source == "skills":
            question, answer = each.messages
            item = SkillItem(skill_of(question), question.content, answer, each.tools)
            assert split_of(item) == "train"
            assert SKILLS[item.skill].check(item, answer)


def skill_of(question: Message) -> str:
    starts = {
        "sort": "sorting",
        "word,": "strings",
        "list,": "lists",
        "copy,": "copying",
        "count": "counting",
    }
    if question.content.endswith("="):
        return "arithmetic"
    found = [skill for start, skill in starts.items() if question.content.startswith(start)]
    return found[0] if found else "logic" if " is " in question.content[:20] else "calendar"


def test_only_what_the_assistant_says_is_trained_with_weight_one(chat: ChatFormat) -> None:
    messages = (Message("user", "a b"), Message("assistant", "c"), Message("user", "d"))
    (trunk,) = conversation_tree(chat, "x", messages, (), context_weight=0.5).segments
    tokens = [chat.tokenizer.decode([i]) for i in trunk.ids]
    weights = dict(zip(tokens, trunk.signal.ce_weights.tolist(), strict=True))
    assert weights == {
        "<|user|>": 0.5,
        "a": 0.5,
        " b": 0.5,
        "<|assistant|>": 0.5,
        "c": 1.0,
        "<|end|>": 1.0,
        "d": 0.5,
    }
    assert trunk.signal.ce_weights[0] == 0.0


def test_a_hinted_branch_is_the_hinted_prompt_and_the_action(chat: ChatFormat) -> None:
    messages = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    action = Message("assistant", "d")
    tree = conversation_tree(chat, "x", messages, (), hints=[Hint(1, action)])
    text = chat.tokenizer.decode(path_ids(tree, 1))
    assert text.startswith("<|user|>a<|user|>A reasonable action here is d.")
    assert text.endswith("hint.<|assistant|>d<|end|>")
    assert tree.segments[1].signal.ce_weights.tolist()[-2:] == [1.0, 1.0]
    assert tree.segments[1].signal.ce_weights.sum() == 2.0


def test_hints_are_admissible_and_not_always_the_best() -> None:
    best = []
    for step in range(10):
        for each in draw_conversations(CONFIG, step):
            for hint in each.hints:
                task = next(
                    task
                    for number in range(2)
                    if (task := generated_task(FIRST_GAME + 2 * step + number, "train", TINY_GAMES))
                    and opening(task) == each.messages[:2]
                )
                environment = HouseholdEnvironment(SHOWN)
                environment.reset(task)
                for message in each.messages[: hint.position]:
                    if message.role == "assistant":
                        environment.step(message)
                view = environment.oracle()
                assert (hint.action.tool_calls[0].arguments or {})["command"] in view.admissible
                best.append(view.action == hint.action)
    assert 0.4 < sum(best) / len(best) < 0.8


def opening(task: Task) -> tuple[Message, ...]:
    return HouseholdEnvironment(SHOWN).reset(task)


def test_a_judgement_names_the_first_turn_that_lengthens_the_plan() -> None:
    named = 0
    for game in range(30):
        task = generated_task(game, "train")
        question, answer = judging_messages(task, Doubts(), 0)
        judged = read_judgement(answer)
        environment = HouseholdEnvironment(SHOWN)
        environment.reset(task)
        lines = question.content.splitlines()[1:-1]
        for turn, line in enumerate(lines, 1):
            said, _, reply = line.partition(". ")[2].partition(" -> ")
            before = environment.oracle()
            command = said.removeprefix('act{"command": "').removesuffix('"}')
            (answered,) = environment.step(act(command)).replies
            assert answered.content == reply
            after = environment.oracle()
            assert before.remaining is not None
            worse = after.remaining is None or after.remaining > before.remaining
            if worse:
                assert before.action is not None
                assert judged == (turn, describe_action(before.action))
                named += 1
                break
        else:
            assert judged is None
    assert 2 < named < 30


def act(command: str) -> Message:
    return to_message(command, "act", "move {object} to {receptacle}")


def test_a_player_without_doubts_makes_no_mistakes_and_wins() -> None:
    for game in range(20):
        played = play_unsurely(generated_task(game, "train"), CERTAIN, SHOWN, 0)
        assert played.reward == 1.0
        assert set(played.meta["mistakes"]) == {""}


def test_doubts_belong_to_their_moments() -> None:
    only = msgspec.structs.replace(CERTAIN, treat=1.0)
    plain = [generated_task(game, "train") for game in range(40)]
    for task in plain:
        played = play_unsurely(task, only, SHOWN, 0)
        text = played.messages[1].content.rpartition("Your task is to: ")[2]
        treated = any(word in text for word in ("clean", "heat", "hot", "cool"))
        assert any(played.meta["mistakes"]) == treated


def test_some_mistakes_say_the_last_command_again() -> None:
    repeats = 0
    for game in range(20):
        played = play_unsurely(generated_task(game, "train", TINY_GAMES), Doubts(), SHOWN, 0)
        said = [each.tool_calls for each in played.messages if each.role == "assistant"]
        for i, mistake in enumerate(played.meta["mistakes"]):
            if mistake == "repeat":
                assert said[i] == said[i - 1]
                repeats += 1
    assert repeats > 5


def test_mistakes_weigh_little_until_the_end() -> None:
    config = msgspec.structs.replace(CONFIG, mistake_weight=0.25, unsure_from=4)
    for step, weight in ((3, 0.25), (4, 1.0)):
        for each in draw_conversations(config, step):
            if each.source == "household":
                actions = sum(message.role == "assistant" for message in each.messages)
                assert len(each.action_weights) == actions
                assert set(each.action_weights) <= {weight, 1.0}
    assert 0.25 in each_weights(config, 3)


def each_weights(config: MixtureConfig, step: int) -> list[float]:
    return [weight for each in draw_conversations(config, step) for weight in each.action_weights]


def test_an_action_has_its_own_weight(chat: ChatFormat) -> None:
    messages = (
        Message("user", "a"),
        Message("assistant", "b"),
        Message("user", "c"),
        Message("assistant", "d"),
    )
    (trunk,) = conversation_tree(chat, "x", messages, (), action_weights=[0.5, 1.0]).segments
    tokens = [chat.tokenizer.decode([i]) for i in trunk.ids]
    weights = list(zip(tokens, trunk.signal.ce_weights.tolist(), strict=True))
    assert [pair for pair in weights if pair[1]] == [
        ("b", 0.5),
        ("<|end|>", 0.5),
        ("d", 1.0),
        ("<|end|>", 1.0),
    ]


def test_moments_of_a_game() -> None:
    memory = Memory(
        "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 1,"
        " a fridge 1, and a sinkbasin 1.\n\nYour task is to: put a clean mug in desk."
    )
    seen = [moment(memory)]
    steps = (
        ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed."),
        ("open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see a mug 1."),
        ("go to desk 1", "You arrive at desk 1. On the desk 1, you see nothing."),
        ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is open. In it, you see a mug 1."),
        ("take mug 1 from drawer 1", "You pick up the mug 1 from the drawer 1."),
        ("clean mug 1 with sinkbasin 1", "You clean the mug 1 using the sinkbasin 1."),
        ("go to desk 1", "You arrive at desk 1. On the desk 1, you see nothing."),
    )
    for command, answer in steps:
        memory.note(command, answer)
        seen.append(moment(memory))
    assert seen == ["search", "open", "take", "fetch", "take", "treat", "deliver", "place"]
