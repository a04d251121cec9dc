import json

import msgspec
import numpy as np
import pytest

from pivotune.core.errors import DataError, RecipeError, VerifierError
from pivotune.core.types import (
    Completion,
    Cost,
    Message,
    ParseOutcome,
    Profile,
    Sample,
    Task,
    Trajectory,
    Turn,
    Verdict,
)
from pivotune.models.chat import ChatFormat
from pivotune.models.packing import flatten_signals
from pivotune.models.sampler import TorchSampler
from pivotune.models.trees import path_ids
from pivotune.train.draws import draw_batch
from pivotune.train.objective import Collected, Materials, Stateless
from pivotune.train.objectives import OBJECTIVES, load_objective
from pivotune.train.objectives.local_grpo import (
    LocalGrpo,
    LocalGrpoConfig,
    action_advantages,
    group_tree,
)
from pivotune.train.objectives.rejection_sft import RejectionSft, RejectionSftConfig
from pivotune.train.objectives.sft import Sft, SftConfig, encode_trajectory, keep_all
from pivotune.train.trainer import TrainConfig, train
from pivotune.train.trunks import merge_trunks
from pivotune.turns.rollout import Group
from tiny_models import CHATML, byte_tokenizer
from train.toy import small_policy

STRIPPING = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content and loop.last %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CHAT = ChatFormat(byte_tokenizer(CHATML))
STOP = CHAT.turn_end_id


def trajectory(name="t", turns=3, thinking=""):
    messages = [Message("user", f"task {name}")]
    for i in range(turns):
        messages.append(Message("assistant", f"act {i}", thinking=thinking))
        messages.append(Message("user", f"saw {i}"))
    return Trajectory(name, "toy", Task(name, "toy"), (), tuple(messages))


def turn(name, text="hello", trajectory_id="t", index=0):
    state = (Message("user", text),)
    return Turn(name, trajectory_id, Task("t", "toy"), index, state, (), Message("assistant", "a"))


def trained_text(tree):
    """What the trained tokens of a tree say, `|` for the stop token."""
    flat = flatten_signals([tree])
    return "".join("|" if i == STOP else CHAT.decode([i]) for i in flat.ids.tolist())


def test_every_item_is_drawn_once_an_epoch_in_a_new_order():
    pool = list("abcdefg")
    steps = [draw_batch(pool, 3, seed=1, name="x", step=step) for step in range(14)]
    drawn = [item for step in steps for item in step]
    epochs = [drawn[i : i + 7] for i in range(0, 42, 7)]
    assert all(sorted(epoch) == pool for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert draw_batch(pool, 3, seed=1, name="x", step=9) == steps[9]
    assert [draw_batch(pool, 7, seed=1, name="y", step=0)] != [
        draw_batch(pool, 7, seed=1, name="x", step=0)
    ]


def test_sft_trains_all_actions_of_a_trajectory_in_one_trunk():
    given = trajectory()
    found = encode_trajectory(CHAT, given, keep_all, 1000)
    (tree,) = found.trees
    assert trained_text(tree) == "act 0|act 1|act 2|"
    prompt, action = CHAT.render_action(given.messages[:5], (), given.messages[5])
    assert tree.segments[0].ids.tolist() == prompt + action
    assert found.cut == 0


def test_a_template_that_strips_thinking_gives_one_tree_a_turn():
    chat = ChatFormat(byte_tokenizer(STRIPPING))
    found = encode_trajectory(chat, trajectory(thinking="why"), keep_all, 1000)
    assert [trained_text(tree) for tree in found.trees] == [
        f"<think>\nwhy\n</think>\nact {i}|" for i in range(3)
    ]
    materials = Materials(chat=chat, trajectories=[trajectory(thinking="why")])
    collected = Sft(materials, SftConfig(batch=1)).collect(0)
    assert collected.metrics["split_share"] == 1.0


def test_sft_cuts_behind_the_last_action_that_fits():
    whole = encode_trajectory(CHAT, trajectory(), keep_all, 1000).trees[0].token_count
    found = encode_trajectory(CHAT, trajectory(), keep_all, whole - 1)
    assert trained_text(found.trees[0]) == "act 0|act 1|"
    assert found.cut == 1
    assert encode_trajectory(CHAT, trajectory(), keep_all, 3).trees == ()


def test_sft_trains_only_given_turns_when_asked():
    materials = Materials(
        chat=CHAT, trajectories=[trajectory()], turns=[turn("t1", index=1), turn("t9", index=9)]
    )
    (tree,) = Sft(materials, SftConfig(batch=1, only_given_turns=True)).collect(0).trees
    assert trained_text(tree) == "act 1|"
    (tree,) = Sft(materials, SftConfig(batch=1)).collect(0).trees
    assert trained_text(tree) == "act 0|act 1|act 2|"


def test_replay_has_its_share():
    materials = Materials(
        chat=CHAT,
        trajectories=[trajectory(f"e{i}") for i in range(5)],
        replay=[trajectory(f"r{i}", turns=1) for i in range(3)],
    )
    objective = Sft(materials, SftConfig(batch=8, replay_share=0.25))
    for step in range(3):
        names = [tree.id for tree in objective.collect(step).trees]
        assert sum(name.startswith("r") for name in names) == 2
        assert len(names) == 8


def test_what_is_missing_is_named():
    with pytest.raises(RecipeError, match="'sft' needs expert trajectories"):
        Sft(Materials(chat=CHAT), SftConfig())
    with pytest.raises(RecipeError, match="needs replay trajectories"):
        Sft(Materials(chat=CHAT, trajectories=[trajectory()]), SftConfig(replay_share=0.5))
    with pytest.raises(RecipeError, match="'local_grpo' needs a sampler"):
        LocalGrpo(Materials(), LocalGrpoConfig())


def sample(ids, reward, finish="stop"):
    verdict = Verdict(reward, "said so")
    message = Message("assistant", "x")
    return Sample(tuple(ids), (-1.0,) * len(ids), message, ParseOutcome.OK, finish, verdict)


def profile(name, samples, prompt_tokens):
    return Profile(
        name, "h", "p", "v", "1", 1.0, 0, 8, prompt_tokens, Verdict(1.0, ""), tuple(samples)
    )


def test_rejection_sft_trains_accepted_samples_as_they_were_recorded():
    length = len(CHAT.render(turn("a").state, ()))
    samples = [
        sample([1, 2, STOP], 1.0),
        sample([3, STOP], 0.0),
        sample([4, STOP], None),
        sample([5, 6], 1.0, "length"),
        sample([1, 2, STOP], 1.0),
        sample([7, STOP], 0.5),
    ]
    dead = profile("b", [sample([3, STOP], 0.0)], length)
    materials = Materials(
        chat=CHAT, turns=[turn("a"), turn("b")], profiles=[profile("a", samples, length), dead]
    )
    (tree,) = RejectionSft(materials, RejectionSftConfig(batch=1)).collect(0).trees
    assert [s.ids.tolist() for s in tree.segments[1:]] == [[1, 2, STOP], [1, 2, STOP], [7, STOP]]
    assert path_ids(tree, 1).tolist() == [*CHAT.render(turn("a").state, ()), 1, 2, STOP]
    assert flatten_signals([tree]).ce_weights.tolist() == [1.0] * 8
    config = RejectionSftConfig(batch=1, accept_at=0.75, distinct=True)
    (tree,) = RejectionSft(materials, config).collect(3).trees
    assert [s.ids.tolist() for s in tree.segments[1:]] == [[1, 2, STOP]]


def test_rejection_sft_refuses_a_prompt_that_changed():
    materials = Materials(
        chat=CHAT, turns=[turn("a")], profiles=[profile("a", [sample([1, STOP], 1.0)], 5)]
    )
    with pytest.raises(DataError, match="length that it was profiled with"):
        RejectionSft(materials, RejectionSftConfig()).collect(0)


def completion(ids, outcome=ParseOutcome.OK, prompt=(9, 9, 9)):
    return Completion(
        tuple(prompt),
        tuple(ids),
        tuple(-0.5 - i for i in range(len(ids))),
        Message("assistant"),
        outcome,
        "stop",
        0.7,
        "p",
    )


def group(rewards, outcomes=None, name="a", prompt=(9, 9, 9)):
    outcomes = outcomes or [ParseOutcome.OK] * len(rewards)
    return Group(
        turn(name),
        tuple(completion([i + 1, STOP], o, prompt) for i, o in enumerate(outcomes)),
        tuple(Verdict(reward, "") for reward in rewards),
        Cost(),
    )


def test_a_group_becomes_a_trunk_with_its_sampled_actions():
    given = group([1.0, None, 0.0])
    tree = group_tree(given, action_advantages(given, LocalGrpoConfig()))
    assert [s.ids.tolist() for s in tree.segments] == [[9, 9, 9], [1, STOP], [3, STOP]]
    flat = flatten_signals([tree])
    np.testing.assert_allclose(flat.advantages, [1, 1, -1, -1], rtol=1e-5)
    np.testing.assert_allclose(flat.behaviour, [-0.5, -1.5] * 2)
    np.testing.assert_allclose(flat.temperature, 0.7)
    assert flat.row.tolist() == [0, 0, 2, 2]


MALFORMED = [ParseOutcome.OK, ParseOutcome.MALFORMED, ParseOutcome.OK]


@pytest.mark.parametrize(
    ("malformed", "rewards", "values", "valid"),
    [
        ("reward", [1.0, 0.0, 1.0], [0.7071, -1.4142, 0.7071], [True, True, True]),
        ("mask", [1.0, 0.0, 0.0], [1.0, 0.0, -1.0], [True, False, True]),
        ("mask", [1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [True, False, True]),
        ("penalty", [1.0, 0.0, 0.0], [1.0, -2.0, -1.0], [True, True, True]),
        ("penalty", [1.0, 0.0, 1.0], [0.0, -2.0, 0.0], [False, True, False]),
    ],
)
def test_actions_that_do_not_parse(malformed, rewards, values, valid):
    config = LocalGrpoConfig(malformed=malformed, penalty=-2.0)
    found = action_advantages(group(rewards, MALFORMED), config)
    np.testing.assert_allclose(found.values, values, atol=1e-4)
    assert found.valid.tolist() == valid
    assert found.live == any(values)


def test_prompts_that_extend_one_another_share_a_trunk():
    prompts = {"a": (1, 2, 3), "b": (1, 2, 3, 4, 5), "c": (1, 7, 3), "d": (1, 2)}
    config = LocalGrpoConfig()
    groups = [group([1.0, 0.0], name=name, prompt=prompt) for name, prompt in prompts.items()]
    trees = [group_tree(each, action_advantages(each, config)) for each in groups]
    merged = merge_trunks(trees)
    assert [tree.id for tree in merged] == ["b + a + d", "c"]

    def rows(trees):
        return sorted(
            (path_ids(tree, i).tolist(), segment.signal.advantages.tolist())
            for tree in trees
            for i, segment in enumerate(tree.segments)
            if segment.signal.live.any()
        )

    assert rows(merged) == rows(trees)
    assert len({s.signal.row for s in merged[0].segments[1:]}) == 6


class EvenByte:
    """Accepts actions whose first byte is even; its verdicts name no environment."""

    name, version, needs_environment = "even", "1", False

    def __init__(self, reward=lambda completion: float(completion.token_ids[0] % 2 == 0)):
        self.reward = reward

    def verify(self, turn, completion, environment):
        return Verdict(self.reward(completion), "")


def grpo(policy, verifier, **config):
    materials = Materials(
        sampler=TorchSampler(policy),
        turns=[turn(f"t{i}", text=f"question {i}") for i in range(6)],
        solved=[turn(f"s{i}", text=f"solved {i}") for i in range(4)],
        verifier=verifier,
        seed=3,
    )
    settings = {"batch": 4, "group": 6, "max_tokens": 3, **config}
    return LocalGrpo(materials, LocalGrpoConfig(**settings))


def test_local_grpo_collects_live_groups_only():
    collected = grpo(small_policy(), EvenByte()).collect(0)
    metrics = collected.metrics
    assert metrics["groups"] == 4
    assert sum(len(t.segments) - 1 for t in collected.trees) == 6 * 4 * metrics["live_share"]
    assert collected.cost.rollout_turns == collected.cost.verifier_calls == 24
    assert 0 < metrics["reward_mean"] < 1
    assert metrics["action_tokens_max"] <= 3
    assert np.allclose(sum(s.signal.advantages[0] for s in collected.trees[0].segments[1:]), 0)


def test_groups_that_agree_give_no_tree():
    collected = grpo(small_policy(), EvenByte(lambda completion: 0.1 + 0.2)).collect(0)
    assert list(collected.trees) == []
    assert collected.metrics["live_share"] == 0


def test_steps_draw_new_samples_and_repeat_exactly():
    objective = grpo(small_policy(), EvenByte())
    first, second, again = objective.collect(0), objective.collect(1), objective.collect(0)

    def sampled(found):
        return [s.ids.tolist() for tree in found.trees for s in tree.segments]

    assert sampled(first) == sampled(again) != sampled(second)


def test_too_many_invalid_verdicts_stop_the_step():
    with pytest.raises(VerifierError, match="24 of 24 verdicts are invalid"):
        grpo(small_policy(), EvenByte(lambda completion: None)).collect(0)


def test_solved_turns_are_guarded():
    alone = grpo(small_policy(), EvenByte()).collect(0)
    guarded = grpo(small_policy(), EvenByte(), guard=3).collect(0)
    assert [t.id for t in guarded.trees][: len(alone.trees)] == [t.id for t in alone.trees]
    assert {t.id for t in guarded.trees[len(alone.trees) :]} <= {"s0", "s1", "s2", "s3"}
    assert len(guarded.trees) > len(alone.trees)
    assert guarded.cost.rollout_turns == alone.cost.rollout_turns + 3 * 6
    # What is watched of the pivots does not change.
    watched = dict(guarded.metrics)
    assert 0 < watched.pop("guard_reward_mean") < 1
    assert watched == alone.metrics


def test_a_guard_needs_solved_turns():
    materials = Materials(
        sampler=TorchSampler(small_policy()), turns=[turn("t")], verifier=EvenByte()
    )
    with pytest.raises(RecipeError, match="turns that the base solves"):
        LocalGrpo(materials, LocalGrpoConfig(guard=2))


def test_greedy_groups_are_refused():
    with pytest.raises(RecipeError, match="two actions that can differ"):
        grpo(small_policy(), EvenByte(), temperature=0.0)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_local_grpo_learns_what_the_verifier_accepts(tmp_path, temperature):
    policy = small_policy()
    objective = grpo(policy, EvenByte(), temperature=temperature, batch=6, group=8)
    config = TrainConfig(steps=15, learning_rate=3e-2, warmup_steps=1, token_budget=2000)
    train(policy, objective, config, tmp_path)
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()[1:]]
    rewards = [line["reward_mean"] for line in lines]
    assert np.mean(rewards[:2]) < 0.7 < 0.9 < np.mean(rewards[-3:])
    assert lines[0]["ratio_max"] == pytest.approx(1.0, abs=1e-4)


class OwnConfig(msgspec.Struct, frozen=True):
    weight: float = 2.0


class Own(Stateless):
    Config = OwnConfig

    def __init__(self, materials, config):
        self.config = config

    def collect(self, step):
        return Collected([])


def test_objectives_by_name_and_by_module():
    assert load_objective("sft") is Sft
    for name, method in OBJECTIVES.items():
        assert load_objective(name).Config() == method.Config()
    own = load_objective(f"{__name__}:Own")
    assert own(Materials(), own.Config()).config.weight == 2.0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("grpo", "no such objective"),
        ("no_module:Name", "cannot be imported"),
        ("json:nothing", "cannot be imported"),
        ("json:JSONDecoder", "no settings class"),
    ],
)
def test_objectives_that_are_not_there(name, problem):
    with pytest.raises(RecipeError, match=problem):
        load_objective(name)
