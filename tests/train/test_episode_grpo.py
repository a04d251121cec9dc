import json
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from pivotune.core.errors import RecipeError, VerifierError
from pivotune.evaluate.suites import Suite, score_suite
from pivotune.models.packing import flatten_signals
from pivotune.train.episodes import Rollouts, row_trees
from pivotune.train.objective import Materials
from pivotune.train.objectives.episode_grpo import EpisodeGrpo, EpisodeGrpoConfig
from pivotune.train.trainer import TrainConfig, Validation, train
from pivotune.turns.rollout import EpisodeLimits
from pivotune.turns.sampling import PtgsConfig
from train.playground import (
    SMALL,
    ByteGame,
    Finishing,
    materials,
    played_tokens,
    same_trees,
    tasks,
    trained_tokens,
)
from train.toy import small_policy


def config(**more):
    return EpisodeGrpoConfig(**{**SMALL, **more})


def expected_tokens(groups):
    """Every action token of a live group's episodes with (r - mean) / std of its rewards."""
    found = []
    for group in groups:
        rewards = np.array([episode.reward for episode in group.episodes])
        if rewards.max() == rewards.min():
            continue
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for episode, advantage in zip(group.episodes, advantages, strict=True):
            each = [advantage] * len(episode.turns)
            found += played_tokens(episode, each, group.temperature)
    return sorted(found)


@pytest.mark.parametrize("rows", ["episode", "turn"])
def test_every_action_token_has_its_episodes_advantage(rows):
    given = materials()
    collected = EpisodeGrpo(given, config(rows=rows)).collect(0)
    groups = Rollouts(given, config(), "x").play(0)
    assert trained_tokens(collected.trees) == expected_tokens(groups) != []
    played = sum(len(e.turns) for g in groups for e in g.episodes)
    assert collected.cost.rollout_turns == collected.cost.environment_steps == played
    assert 0 < collected.metrics["live_share"] <= 1


def test_an_episode_is_one_tree_unless_its_history_is_rewritten():
    given = materials()
    rows = EpisodeGrpo(given, config()).shape(Rollouts(given, config(), "x").play(0), 0).rows
    for row in rows:
        trees = row_trees([row], "episode")
        ids = [turn.completion.prompt_ids + turn.completion.token_ids for turn in row.episode.turns]
        breaks = sum(b[: len(a)] != a for a, b in pairwise(ids))
        assert len(trees) == 1 + breaks
        (sample,) = {int(row) for tree in trees for row in flatten_signals([tree]).row}
        assert sample == 0


def test_each_turn_is_a_sample_of_its_own_when_asked():
    trees = EpisodeGrpo(materials(), config(rows="turn")).collect(0).trees
    for tree in trees:
        rows = [segment.signal.row for segment in tree.segments[1:]]
        assert len(set(rows)) == len(rows)


def test_steps_repeat_exactly_and_differ():
    objective = EpisodeGrpo(materials(), config(batch=2, group=3))
    first, again, other = (objective.collect(step).trees for step in (0, 0, 1))
    assert same_trees(first, again)
    assert not same_trees(first, other)


class Broken(ByteGame):
    def step(self, action):
        raise RuntimeError("out of order")


def test_failed_environments_are_no_zeros():
    given = materials(make_environment=lambda task: Broken())
    with pytest.raises(VerifierError, match="12 of 12 episodes failed"):
        EpisodeGrpo(given, config()).collect(0)
    collected = EpisodeGrpo(given, config(invalid_limit=1.0)).collect(0)
    assert list(collected.trees) == []
    assert collected.metrics["failed"] == 12


def test_what_is_missing_is_named():
    with pytest.raises(RecipeError, match="needs a sampler"):
        EpisodeGrpo(Materials(), config())
    with pytest.raises(RecipeError, match="needs tasks to play"):
        EpisodeGrpo(materials(tasks=[]), config())
    with pytest.raises(RecipeError, match="two episodes that can differ"):
        EpisodeGrpo(materials(), config(group=1))


def test_the_first_ratio_is_one_at_every_groups_own_temperature(tmp_path):
    policy = small_policy()
    settings = config(batch=4, group=8, ptgs=PtgsConfig(tau=1.5))
    how = TrainConfig(steps=1, learning_rate=1e-3, token_budget=4000)
    train(policy, EpisodeGrpo(materials(policy), settings), how, tmp_path)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[1])
    assert line["temperature_max"] > 1.1 * line["temperature_min"]
    assert line["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert len(json.loads((tmp_path / "last" / "state.json").read_text())["objective"]["ptgs"]) == 4


def test_a_resumed_run_has_the_same_weights_and_tallies(tmp_path):
    def run(folder, *steps):
        for count in steps:
            policy = small_policy()
            how = TrainConfig(steps=count, learning_rate=1e-2, checkpoint_every=1)
            settings = config(group=6, ptgs=PtgsConfig(tau=1.5))
            train(policy, EpisodeGrpo(materials(policy), settings), how, folder)
        state = json.loads((folder / "last" / "state.json").read_text())
        return (folder / "last" / "weights.safetensors").read_bytes(), state["objective"]

    whole, resumed = run(tmp_path / "a", 3), run(tmp_path / "b", 2, 3)
    assert whole == resumed
    assert len(whole[1]["ptgs"]) == 4


class Recording(Finishing):
    """Notes the temperatures that it is asked for."""

    def __init__(self, policy):
        super().__init__(policy)
        self.asked = []

    def sample(self, requests):
        self.asked += [request.temperature for request in requests]
        return super().sample(requests)


def test_ptgs_never_reaches_a_validation(tmp_path):
    policy = small_policy()
    sampler = Recording(policy)
    limits = EpisodeLimits(max_turns=3, max_tokens=2)
    suite = Suite("seen", "in_domain", tuple(tasks(2)), temperature=0.7, limits=limits)
    validated = []

    def evaluate(step):
        before = len(sampler.asked)
        found = score_suite(sampler, suite, lambda task: ByteGame(), seed=0)
        validated.extend(sampler.asked[before:])
        del sampler.asked[before:]
        return Validation(*found)

    objective = EpisodeGrpo(
        materials(policy, sampler=sampler), config(batch=2, ptgs=PtgsConfig(tau=1.5))
    )
    how = TrainConfig(steps=1, learning_rate=1e-2, evaluate_every=1)
    train(policy, objective, how, tmp_path, evaluate=evaluate)
    assert set(validated) == {0.7}
    assert len(set(sampler.asked)) == 2  # a temperature of its own for each task


def test_a_failed_environment_is_no_lost_game_of_a_validation():
    class Sometimes(ByteGame):
        def step(self, action):
            if self.task.id == "g0":
                raise RuntimeError("out of order")
            return super().step(action)

    suite = Suite("seen", "in_domain", tuple(tasks(2)), limits=EpisodeLimits(3, 2))
    alone = msgspec.structs.replace(suite, tasks=suite.tasks[1:])
    sampler = Finishing(small_policy())
    scores = [
        score_suite(sampler, each, lambda task: Sometimes(), seed=0)[0] for each in (suite, alone)
    ]
    assert scores[0] == scores[1] in (0.0, 1.0)


@pytest.mark.slow
def test_episode_grpo_learns_the_game(tmp_path):
    policy = small_policy()
    how = TrainConfig(steps=20, learning_rate=3e-2, warmup_steps=1, token_budget=4000)
    train(policy, EpisodeGrpo(materials(policy), config(group=8)), how, tmp_path)
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()[1:]]
    rewards = [line["reward_mean"] for line in lines]
    assert np.mean(rewards[:2]) < 0.7 < 0.85 < np.mean(rewards[-3:])
