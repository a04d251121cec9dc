"""Methods over episodes with a teacher, each against its formula written out with plain loops."""

import json
import math
from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np
import pytest
import torch

from pivotune.core.errors import DataError, RecipeError
from pivotune.core.protocols import SamplerAbilities, TokenScores
from pivotune.core.types import Message
from pivotune.models.chat import ChatFormat
from pivotune.models.forward import validate_tree
from pivotune.models.trees import Segment, Targets, TokenTree, context_signal
from pivotune.train.episodes import Rollouts, all_rows
from pivotune.train.objectives import OBJECTIVES
from pivotune.train.objectives.agent_opsd import AgentOpsdConfig, turn_weights
from pivotune.train.objectives.episode_grpo import EpisodeGrpo, EpisodeGrpoConfig
from pivotune.train.objectives.gigpo import GigpoConfig, step_advantages
from pivotune.train.objectives.rlsd import RlsdConfig, scaled_advantage
from pivotune.train.objectives.sdar import SdarConfig, gate
from pivotune.train.objectives.sod import SodConfig, weighed_gaps
from pivotune.train.teachers import TeacherConfig
from pivotune.train.trainer import TrainConfig, train
from pivotune.turns.hints import with_action_hint, with_lesson
from pivotune.turns.rollout import contexts
from tiny_models import byte_tokenizer
from train.playground import SMALL, materials, same_trees, untrained

GOLD = Message("assistant", "b")


@lru_cache
def groups():
    return Rollouts(materials(), EpisodeGrpoConfig(**SMALL), "x").play(0)


class OneValue:
    """A teacher model with one log-probability for every token of every action."""

    name, context_limit = "one value", 10_000
    abilities = SamplerAbilities(scores=True, loads_weights=False, token_ids=True)

    def count(self, messages, tools):
        return 1

    def score(self, requests):
        return [TokenScores((-2.0,) * len(each.token_ids)) for each in requests]


def method(name, given=None, **settings):
    kind = OBJECTIVES[name]
    return kind(given or materials(), msgspec.convert({**SMALL, **settings}, kind.Config))


def logprobs(messages, token_ids):
    """(T,) by a plain forward pass."""
    policy = untrained()
    prompt = policy.chat.render(messages, ())
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*prompt, *token_ids]])).logits[0]
    rows = logits.log_softmax(-1)
    return np.array([float(rows[len(prompt) + i - 1, t]) for i, t in enumerate(token_ids)])


def turns_of(row):
    pairs = zip(contexts(row.episode), row.episode.turns, row.signals, strict=False)
    return [(state, turn.completion.token_ids, signal) for state, turn, signal in pairs]


def test_opd_pulls_towards_the_teacher_model():
    shaped = method("opd", materials(teacher=OneValue())).shape(groups(), 0)
    assert len(shaped.rows) == sum(len(group.episodes) for group in groups())
    for row in shaped.rows:
        for turn, signal in zip(row.episode.turns, row.signals, strict=True):
            expected = -2.0 - np.array(turn.completion.logprobs)
            np.testing.assert_allclose(signal.advantages, expected, rtol=1e-5)
            assert (signal.weights == 1).all()
    assert shaped.phases["teach"].prompt_tokens > 0


def test_a_student_that_is_its_own_teacher_model_learns_nothing():
    given = materials(teacher=materials().sampler)
    for row in method("opd", given).shape(groups(), 0).rows:
        for signal in row.signals:
            np.testing.assert_allclose(signal.advantages, 0.0, atol=1e-5)


def test_opsd_is_told_the_oracles_action_at_every_turn():
    shaped = method("opsd").shape(groups(), 0)
    for state, said, signal in turns_of(shaped.rows[2]):
        expected = logprobs(with_action_hint(state, GOLD), said) - logprobs(state, said)
        np.testing.assert_allclose(signal.advantages, expected, atol=2e-5)
    assert shaped.metrics["untaught_turns"] == 0
    for row in method("opsd", hint="").shape(groups(), 0).rows:
        for signal in row.signals:
            np.testing.assert_allclose(signal.advantages, 0.0, atol=1e-5)


def test_who_cannot_score_the_students_tokens_is_refused():
    teacher = OneValue()
    teacher.abilities = SamplerAbilities(scores=False, loads_weights=False, token_ids=False)
    with pytest.raises(RecipeError, match="cannot score"):
        method("opd", materials(teacher=teacher))
    with pytest.raises(RecipeError, match="needs a teacher"):
        method("opd")
    other = ChatFormat(byte_tokenizer(special=("<|x|>", "<|im_start|>", "<|im_end|>")))
    with pytest.raises(RecipeError, match="vocabulary is not the student's") as found:
        method("opd", materials(teacher=OneValue(), teacher_chat=other))
    assert "2 of the student's 258" in str(found.value)


OFF = {
    "rlsd": {"lam": 0.0},
    "agent_opsd": {"lam": 0.0},
    "sdar": {"coefficient": 0.0},
    "skill_sd": {"coefficient": 0.0},
    "gigpo": {"step_weight": 0.0},
}


@pytest.mark.parametrize("name", OFF)
def test_a_term_that_is_off_is_grpo_bit_for_bit(name):
    plain = EpisodeGrpo(materials(), EpisodeGrpoConfig(**SMALL)).collect(0)
    collected = method(name, **OFF[name]).collect(0)
    assert same_trees(collected.trees, plain.trees)
    assert collected.cost == plain.cost
    assert collected.phases == {}


@pytest.mark.parametrize("advantage", [2.0, -1.0])
def test_rlsd_by_hand(advantage):
    gap = np.array([0.0, 0.1, 3.0, -3.0], np.float32)
    sign = 1 if advantage > 0 else -1
    expected = [
        advantage * (0.7 + 0.3 * min(max(math.exp(sign * float(g)), 0.8), 1.2)) for g in gap
    ]
    np.testing.assert_allclose(scaled_advantage(advantage, gap, 0.3, RlsdConfig()), expected, 1e-6)


def test_rlsd_leaves_the_teacher_along_the_run():
    objective = method("rlsd", lam_steps=4)
    assert objective.shape(groups(), 1).metrics["lam"] == 0.375
    assert objective.shape(groups(), 4).phases == {}
    row = objective.shape(groups(), 0).rows[0]
    state, said, signal = turns_of(row)[0]
    gap = logprobs(with_action_hint(state, GOLD), said) - logprobs(state, said)
    expected = scaled_advantage(row.advantage, gap, 0.5, RlsdConfig())
    np.testing.assert_allclose(signal.advantages, expected, atol=2e-5)


def test_sdar_pulls_every_token_with_its_gate():
    np.testing.assert_allclose(
        gate(np.array([0.0, 1.0, -1.0]), SdarConfig()),
        [0.005, 0.01 / (1 + math.exp(-5)), 0.01 / (1 + math.exp(5))],
        rtol=1e-6,
    )
    shaped = method("sdar").shape(groups(), 0)
    for row in (shaped.rows[0], shaped.rows[-1]):
        live = row.group.advantages.live
        for state, said, signal in turns_of(row):
            gap = logprobs(with_action_hint(state, GOLD), said) - logprobs(state, said)
            np.testing.assert_allclose(signal.likelihood, gate(gap, SdarConfig()), atol=1e-6)
            assert (signal.weights == float(live)).all()
            np.testing.assert_allclose(signal.advantages, row.advantage if live else 0.0)


def test_the_gates_gradient_is_that_of_the_written_loss():
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    student = logits.log_softmax(-1)[1]
    gap = (teacher[1] - student).detach()
    (0.01 * torch.sigmoid(5 * gap) * (teacher[1] - student)).backward()
    written = logits.grad.clone()
    logits.grad = None
    weight = float(gate(np.array([float(gap)]), SdarConfig())[0])
    (-weight * logits.log_softmax(-1)[1]).backward()
    np.testing.assert_allclose(logits.grad, written, atol=1e-8)


def test_sod_weights_telescope():
    gaps = (
        np.array([0.2, -0.4]),
        None,
        np.array([0.6]),
        np.array([-0.1, 0.1]),
    )
    found = weighed_gaps(gaps, SodConfig())
    eps = 1e-6
    weights = [1.0, None, (0.3 + eps) / (0.6 + eps), 1.5]
    for gap, weight, got in zip(gaps, weights, found, strict=True):
        if gap is None:
            assert got is None
        else:
            np.testing.assert_allclose(got, weight * gap, rtol=1e-5)


def test_agent_opsd_by_hand():
    gaps = (np.array([1.0, 0.5]), np.array([-2.0]), None)
    for advantage in (1.0, -1.0):
        success = 0.25
        odds, c, belief, moved = math.log(success / (1 - success)), 0.0, success, []
        for e in (1.5, -2.0, 0.0):
            c = 0.95 * c + e
            now = 1 / (1 + math.exp(-(odds + c)))
            moved.append((1 if advantage > 0 else -1) * (now - belief))
            belief = now
        mean = sum(moved) / 3
        std = math.sqrt(sum((q - mean) ** 2 for q in moved) / 3)
        expected = [min(max(1 + 0.2 * (q - mean) / (std + 1e-6), 0.8), 1.2) for q in moved]
        found = turn_weights(gaps, success, advantage, AgentOpsdConfig())
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.isfinite(turn_weights(gaps, 1.0, 1.0, AgentOpsdConfig())).all()
    row = method("agent_opsd").shape(groups(), 0).rows[0]
    share = [float(signal.advantages[0]) / row.advantage for signal in row.signals]
    assert all(0.9 - 1e-6 <= each <= 1.1 + 1e-6 for each in share)
    assert len(set(share)) > 1


def test_gigpo_compares_equal_observations_of_a_task():
    group = groups()[0]
    config = GigpoConfig(scale="none", **SMALL)
    _, found = step_advantages(group, config)
    members = {}
    for number, episode in enumerate(group.episodes):
        seen = "start"
        for t, turn in enumerate(episode.turns):
            worth = 0.95 ** (len(episode.turns) - 1 - t) * episode.reward
            members.setdefault(seen, []).append(((number, t), worth))
            seen = turn.replies[0].content
    assert set(members) == {"start", "even", "odd"}
    for each in members.values():
        mean = sum(worth for _, worth in each) / len(each)
        for key, worth in each:
            assert found[key] == pytest.approx(worth - mean)
    shaped = method("gigpo", scale="none").shape(groups(), 0)
    for row in shaped.rows:
        _, added = step_advantages(row.group, config)
        for t, signal in enumerate(row.signals):
            expected = row.advantage + added[row.number, t]
            np.testing.assert_allclose(signal.advantages, expected, atol=1e-6)


def test_skill_sd_adds_the_skills_gap():
    shaped = method("skill_sd", skills={"": "Be even."}, coefficient=0.5, hint="{lesson}").shape(
        groups(), 0
    )
    row = shaped.rows[1]
    for state, said, signal in turns_of(row):
        gap = logprobs(with_lesson(state, "Be even.", "{lesson}"), said) - logprobs(state, said)
        np.testing.assert_allclose(signal.advantages, row.advantage + 0.5 * gap, atol=2e-5)
    elsewhere = method("skill_sd", skills={"other": "x"}).shape(groups(), 0)
    plain = EpisodeGrpo(materials(), EpisodeGrpoConfig(**SMALL)).shape(groups(), 0)
    assert [row.name for row in elsewhere.rows] == [row.name for row in plain.rows]
    with pytest.raises(RecipeError, match="no skills"):
        method("skill_sd")


def test_skill_grpo_is_grpo_on_openings_that_end_in_the_skill():
    played = method("skill_grpo", skills={"": "Be even."}, hint="{lesson}").rollouts.play(0)
    for group in played:
        opening = with_lesson((Message("user", group.task.id),), "Be even.", "{lesson}")
        prompt = tuple(untrained().chat.render(opening, ()))
        for episode in group.episodes:
            assert episode.opening == opening
            assert episode.turns[0].completion.prompt_ids == prompt
            assert episode.turns[1].completion.prompt_ids[: len(prompt)] == prompt
    elsewhere = method("skill_grpo", skills={"other": "x"}).collect(0)
    plain = EpisodeGrpo(materials(), EpisodeGrpoConfig(**SMALL)).collect(0)
    assert same_trees(elsewhere.trees, plain.trees)
    with pytest.raises(RecipeError, match="no skills"):
        method("skill_grpo")


def test_the_skills_gradient_is_that_of_ratio_times_k3_at_ratio_one():
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    teacher = math.log(0.5)
    logp = logits.log_softmax(-1)[1]
    x = teacher - logp
    ((logp - logp.detach()).exp() * (x.exp() - 1 - x)).backward()
    written = logits.grad.clone()
    logits.grad = None
    gap = float((teacher - logp).detach())
    (-gap * logits.log_softmax(-1)[1]).backward()
    np.testing.assert_allclose(logits.grad, written, atol=1e-12)


def test_a_model_names_actions_for_the_self_teacher():
    given = materials()
    asked = {"kind": "self", "question": "judging", "max_tokens": 2}
    shaped = method("opsd", given, teacher=asked).shape(groups(), 0)
    turns = sum(len(row.signals) for row in all_rows(groups()))
    assert shaped.phases["teach"].judge_calls == turns
    assert 0 < shaped.metrics["untaught_turns"] <= turns
    untaught = [s for row in shaped.rows for s in row.signals if not s.live]
    assert len(untaught) == shaped.metrics["untaught_turns"]
    assert TeacherConfig(**asked).temperature == 0.0


def test_tcod_matches_the_teachers_distribution_on_the_first_turns(tmp_path):
    given = materials(teacher=materials().sampler)
    objective = method("tcod", given, top_k=5, eta=2)
    assert [objective.max_turns(step) for step in (0, 1, 2, 3, 4, 100)] == [1, 1, 2, 2, 3, 30]
    collected = objective.collect(0)
    assert collected.metrics["turns_mean"] == collected.metrics["turn_limit"] == 1
    tree = collected.trees[0]
    signal = tree.segments[0].signal
    (places,) = signal.targets.weights.nonzero()
    ids = tree.segments[0].ids
    with torch.no_grad():
        rows = untrained().model(torch.tensor([ids.tolist()])).logits[0].softmax(-1)
    for place in places:
        best = rows[place - 1].topk(5)
        assert signal.targets.ids[place].tolist() == best.indices.tolist()
        np.testing.assert_allclose(signal.targets.probs[place], best.values, atol=1e-5)
    # The student is its own teacher: nothing to learn, on either path.
    for path in ("tree", "plain"):
        policy = untrained()
        how = TrainConfig(steps=1, learning_rate=0.0, path=path)
        train(policy, method("tcod", given, top_k=5), how, tmp_path / path)
        line = json.loads((tmp_path / path / "metrics.jsonl").read_text().splitlines()[1])
        assert line["forward_kl"] == pytest.approx(0.0, abs=1e-5)
        assert line["gradient_norm"] < 1e-3


def test_tcod_compares_both_at_the_rows_own_temperature(tmp_path):
    """The student is its own teacher: at different temperatures the divergence would not be 0."""
    given = materials(teacher=materials().sampler)
    hot = method("tcod", given, top_k=5, ptgs={"tau": 1.5})
    how = TrainConfig(steps=1, learning_rate=0.0)
    train(untrained(), hot, how, tmp_path)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[1])
    assert line["temperature_max"] > 1.05 * line["temperature_min"]
    assert line["forward_kl"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.filterwarnings("error")
def test_gaps_of_any_size_reach_the_limits_in_silence():
    for sign in (1.0, -1.0):
        gap = np.full(3, sign * 1e4, np.float32)
        np.testing.assert_array_equal(gate(gap, SdarConfig()), np.float32(0.01 * (sign > 0)))
        most = 1.2 if sign > 0 else 0.8
        np.testing.assert_allclose(scaled_advantage(1.0, gap, 1.0, RlsdConfig()), most, 1e-6)
        weights = turn_weights((gap, None), 0.5, 1.0, AgentOpsdConfig())
        np.testing.assert_allclose(weights, [1.2, 0.8][:: int(sign)], rtol=1e-5)


def test_targets_that_are_no_distributions_are_refused():
    good = Targets(np.zeros((2, 1), int), np.full((2, 1), 0.5), np.ones(2, np.float32))
    for bad in (
        replace(good, ids=np.full((2, 1), 999)),
        replace(good, probs=np.full((2, 1), 1.5)),
        replace(good, weights=np.ones(3, np.float32)),
    ):
        signal = replace(context_signal(2), targets=bad)
        tree = TokenTree("t", (Segment(np.array([1, 2]), signal),))
        with pytest.raises(DataError, match="no distributions"):
            validate_tree(tree, vocabulary=260, context_limit=100)
