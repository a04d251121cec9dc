import random

import pytest

from pivotune.core.errors import StoreError, VerifierError
from pivotune.core.types import Cost, Message, Task, ToolCall, ToolSpec, Turn, Verdict
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.adaptive import AdaptiveConfig
from pivotune.turns.pivots import profile_stats
from pivotune.turns.profile import ProfileConfig, profile_turns, repeatability, rescore

CALL = '<tool_call>act{"command": "%s"}</tool_call>'
TOOLS = (ToolSpec("act"),)


def turn(name):
    expert = Message("assistant", tool_calls=(ToolCall("act", {"command": "right"}),))
    task = Task(name, "toy")
    return Turn(f"{name}#0", name, task, 0, (Message("user", name),), TOOLS, expert)


class Equal:
    """Accepts the expert's own arguments; can be told to fail on an action."""

    name, version, needs_environment = "equal", "1", False

    def __init__(self, fails_on=""):
        self.fails_on = fails_on

    def verify(self, turn, completion, environment):
        if self.fails_on and self.fails_on in completion.text:
            raise RuntimeError("judge timed out")
        ok = completion.message.tool_calls == turn.expert.tool_calls
        calls = completion.message.tool_calls
        same = bool(calls) and calls[0].arguments == turn.expert.tool_calls[0].arguments
        return Verdict(float(ok or same), "same" if same else completion.outcome.value)


def script(messages, tools, row):
    answers = [CALL % "right", CALL % "left", "<tool_call>act{oops</tool_call>", CALL % "right"]
    return answers[row % 4]


def run(path, turns, verifier=None, **options):
    config = ProfileConfig(**({"samples": 4, "portion": 2} | options))
    return profile_turns(
        *(ScriptedSampler(script), turns, verifier or Equal(), None, config), seed=1, path=path
    )


def test_one_malformed_reply_is_a_reward_of_zero_among_four(tmp_path):
    (profile,) = run(tmp_path / "p.jsonl", [turn("a")])
    assert profile.rewards == (1.0, 0.0, 0.0, 1.0)
    assert [s.outcome.value for s in profile.samples] == ["ok", "ok", "malformed", "ok"]
    assert profile.expert.reward == 1.0
    assert profile.cost.rollout_turns == 4
    assert profile.cost.verifier_calls == 4 + 2 * 4 + 1  # rewards differ: asked twice again
    assert (profile.agreed, profile.repeated) == (8, 8)


def test_a_verifier_that_raises_is_invalid_and_never_zero(tmp_path):
    profiles = run(tmp_path / "p.jsonl", [turn("a")], Equal("left"), invalid_limit=0.5)
    assert profiles[0].rewards == (1.0, 0.0, 1.0)
    assert "judge timed out" in profiles[0].samples[1].verdict.reason


def test_too_many_invalid_verdicts_stop_the_run_and_keep_the_work(tmp_path):
    path = tmp_path / "p.jsonl"
    with pytest.raises(VerifierError, match="judge timed out"):
        run(path, [turn("a")], Equal("left"))
    assert path.stat().st_size > 0


def test_profiles_are_the_same_wherever_the_run_was_killed(tmp_path):
    turns = [turn(name) for name in "abcde"]
    whole = tmp_path / "whole.jsonl"
    run(whole, turns)
    lines = [line.split(b'"cost"')[0] for line in whole.read_bytes().splitlines(keepends=True)]
    for cut in range(0, whole.stat().st_size, 97):
        part = tmp_path / "part.jsonl"
        part.write_bytes(whole.read_bytes()[:cut])
        told = []
        profile_turns(
            *(ScriptedSampler(script), turns, Equal(), None, ProfileConfig(samples=4, portion=2)),
            seed=1,
            path=part,
            on_progress=told.append,
        )
        assert [line.split(b'"cost"')[0] for line in part.read_bytes().splitlines()] == [
            line.rstrip(b"\n") for line in lines
        ]
        assert sum(told) == 5


def test_profiles_of_another_policy_are_refused(tmp_path):
    path = tmp_path / "p.jsonl"
    run(path, [turn("a")])
    other = ScriptedSampler(script, policy_hash="other")
    with pytest.raises(StoreError, match="--redo profile"):
        profile_turns(
            *(other, [turn("a")], Equal(), None, ProfileConfig(samples=4)), seed=1, path=path
        )


class Never:
    name, version, needs_environment = "never", "1", False

    def verify(self, turn, completion, environment):
        return Verdict(0.0, "never")


def test_rescoring_keeps_the_samples(tmp_path):
    first = run(tmp_path / "p.jsonl", [turn("a")])
    (second,) = rescore(first, {"a#0": turn("a")}, Never(), None)
    assert second.rewards == (0.0,) * 4
    assert second.verifier == "never"
    assert [s.token_ids for s in second.samples] == [s.token_ids for s in first[0].samples]
    assert second.cost == Cost(verifier_calls=5)


class Flips:
    """Right about everything, but every tenth answer is turned round, at random."""

    name, version, needs_environment = "flips", "1", False

    def __init__(self, inner, seed):
        self.inner, self.random = inner, random.Random(seed)

    def verify(self, turn, completion, environment):
        verdict = self.inner.verify(turn, completion, environment)
        if self.random.random() < 0.1:
            return Verdict(1.0 - verdict.reward, "turned round")
        return verdict


class Always:
    name, version, needs_environment = "always", "1", False

    def verify(self, turn, completion, environment):
        return Verdict(1.0, "always")


def test_a_turn_on_which_only_the_verifier_wavers_is_not_mixed(tmp_path):
    """200 turns, all samples right: 57 % look mixed at first, less than 1 % once asked again."""
    turns = [turn(str(i)) for i in range(200)]
    options = {"samples": 8}
    once = run(tmp_path / "once.jsonl", turns, Flips(Always(), 1), again=0, **options)
    assert sum(profile_stats(each).mixed for each in once) == pytest.approx(114, abs=21)
    again = run(tmp_path / "again.jsonl", turns, Flips(Always(), 1), **options)
    assert sum(profile_stats(each).mixed for each in again) <= 6
    agreed, repeated = repeatability(again)
    # Of the turns that look mixed 0.1 / 0.57 of the first answers are wrong, and are confirmed
    # by chance only: 0.825 * 0.9 + 0.175 * 0.1 = 0.76.
    assert agreed / repeated == pytest.approx(0.76, abs=0.04)
    assert any("changes: 1, " in s.verdict.reason for p in again for s in p.samples)


def test_mixed_turns_stay_mixed_under_a_verifier_that_wavers(tmp_path):
    turns = [turn(str(i)) for i in range(100)]
    found = run(tmp_path / "p.jsonl", turns, Flips(Equal(), 2), samples=8)
    assert sum(profile_stats(each).mixed for each in found) >= 97


def test_rescoring_asks_again_and_stops_for_too_many_failures(tmp_path):
    first = run(tmp_path / "p.jsonl", [turn("a")])
    (again,) = rescore(first, {"a#0": turn("a")}, Equal(), None)
    assert (again.rewards, again.agreed, again.repeated) == (first[0].rewards, 8, 8)
    with pytest.raises(VerifierError, match="judge timed out"):
        rescore(first, {"a#0": turn("a")}, Equal("left"), None)
    with pytest.raises(StoreError, match="not among the trajectories"):
        rescore(first, {}, Equal(), None)


def test_turns_that_their_first_samples_decide_are_sampled_no_further(tmp_path):
    def play(messages, tools, row):
        if messages[0].content == "easy":
            return CALL % "right"
        return script(messages, tools, row)

    config = ProfileConfig(samples=8, adaptive=AdaptiveConfig(first=4, doubt=0.1))
    turns = [turn("easy"), turn("open")]
    easy, other = profile_turns(
        ScriptedSampler(play), turns, Equal(), None, config, seed=1, path=tmp_path / "p.jsonl"
    )
    assert (len(easy.samples), easy.cost.rollout_turns) == (4, 4)
    assert other.rewards == (1.0, 0.0, 0.0, 1.0) * 2
    assert other.cost.rollout_turns == 8
    assert other.cost.prompt_tokens == 2 * easy.cost.prompt_tokens  # asked twice
