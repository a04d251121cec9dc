"""What the preflight promises, against closed forms; its pilot through an endpoint."""

import msgspec
import pytest

from loopback import Loopback
from pipeline.test_smollm2 import Quiet
from pivotune.core.errors import PreflightError
from pivotune.core.estimate import Estimate
from pivotune.core.store import read_json
from pivotune.core.types import Cost, Message, ParseOutcome, Profile, Sample, Verdict
from pivotune.pipeline.flow import run_stages
from pivotune.pipeline.plan import LOCAL_TURNS, PILOT_EPISODES, Plan, _live_groups
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder


def profile(number, successes, n):
    samples = tuple(
        Sample(
            token_ids=(1,),
            logprobs=(0.0,),
            message=Message("assistant", "a"),
            outcome=ParseOutcome.OK,
            finish="stop",
            verdict=Verdict(float(i < successes), ""),
        )
        for i in range(n)
    )
    verdict = Verdict(1.0, "")
    return Profile(f"t#{number}", "p", "w", "v", "1", 1.0, 0, 8, 9, verdict, samples)


def test_groups_of_two_at_success_18_percent():
    """1 - p^G - (1-p)^G = 2 * 0.18 * 0.82: less than a third of such groups train anything."""
    found = _live_groups([profile(i, 9, 50) for i in range(40)], 2)
    assert found.value == pytest.approx(2 * 0.18 * 0.82, abs=0.01)


def test_the_plan_says_the_share_before_any_training():
    plan = Plan(
        candidates=10,
        dropped={},
        clipped_share=0.0,
        prompt_tokens_mean=9.0,
        prompt_tokens_max=12,
        action_tokens_mean=3.0,
        pilot_turns=4,
        accepted_mean=0.18,
        live_groups={"pivotrl": Estimate(0.2952, 0.25, 0.33, 40), "other": Estimate.undefined("x")},
        sample_rate=1.0,
        train_rate=1.0,
        profile_turns=80,
        profile_minutes=1.0,
        methods={},
        evaluation_minutes=2.0,
        cost=Cost(),
    )
    lines = plan.lines()
    assert "pivotrl: expected share of live groups on random turns: 30%" in lines
    assert "other: expected share of live groups on random turns: undefined" in lines
    assert plan.minutes == 3.0
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def served(request):
    """A completion endpoint that says nothing of value, two answers a request."""
    if request.path == "/v1/models":
        return {"data": [{"id": "mine", "max_model_len": 4096}]}
    count = request.body.get("n", 1)
    choices = [{"index": i, "text": "look", "finish_reason": "stop"} for i in range(count)]
    return {"choices": choices, "usage": {"prompt_tokens": 10, "completion_tokens": 2 * count}}


def plan_at(server, folder, *overrides):
    """Four games of the embedded base's own traces, profiled at the endpoint, K = 2."""
    settings = ("sampler=server", f"server.url={server.url}", "traces.games=4", "profile.samples=2")
    recipe = load_recipe(None, (*settings, *overrides))
    run_stages(Run(RunFolder(folder, recipe), Quiet()), "plan")
    return read_json(folder / "plan.json", Plan)


def test_a_pilot_through_an_endpoint_is_charged_and_asked_for_once(tmp_path):
    with Loopback(served) as server:
        quiet = ("methods={}", "evaluate.episodes=0", "evaluate.items=0", "profile.turns=12")
        found = plan_at(server, tmp_path, *quiet)
        asked = [r.body for r in server.requests if r.body.get("max_tokens") == 48]
        assert plan_at(server, tmp_path, *quiet) == found
        assert len([r for r in server.requests if r.body.get("max_tokens") == 48]) == len(asked)
        cooler = plan_at(server, tmp_path, *quiet, "profile.temperature=0.5")
    assert cooler.cost.rollout_turns == found.cost.rollout_turns
    assert found.pilot_turns == 3
    assert found.cost.rollout_turns == 2 * 3 == sum(body["n"] for body in asked)
    assert found.accepted_mean == 0.0
    assert (found.profile_turns, found.minutes) == (2 * 12, found.profile_minutes)
    assert "endpoint: model mine; prompts rendered here, sent as token ids" in found.lines()


def test_what_runs_here_is_timed_here(tmp_path):
    """Training and evaluation never ask the endpoint: a few groups and games are played locally."""
    with Loopback(served) as server:
        found = plan_at(server, tmp_path, "profile.turns=8", "evaluate.max_turns=3")
    assert found.pilot_episodes == PILOT_EPISODES
    # No game of the seen rooms is won in three turns by a policy that samples at temperature 1.
    assert found.episode_turns == 3.0
    groups = 2 * 2 + 2 * min(2, LOCAL_TURNS)
    assert found.cost.rollout_turns == groups + PILOT_EPISODES * 3 == groups + 24
    assert found.train_rate > 0
    assert found.evaluation_minutes > 0
    assert found.methods["sft"].validation_turns == 3 * 64 * (2 + 119 // 20)
    assert "pilot: 8 episodes of the base, 3.0 turns each" in found.lines()


def test_clipped_experts_are_refused_before_the_endpoint_samples(tmp_path):
    with Loopback(served) as server:
        with pytest.raises(PreflightError, match="100 % clipped"):
            plan_at(server, tmp_path, "profile.max_tokens=4")
        assert all(r.body.get("max_tokens", 1) == 1 for r in server.requests)


def test_an_endpoint_that_renders_leaves_lengths_to_be_guessed(tmp_path):
    def chat(request):
        if request.path == "/v1/models":
            return {"data": [{"id": "hosted"}]}
        return "look"

    quiet = ("methods={}", "evaluate.episodes=0", "evaluate.items=0", "profile.turns=4")
    with Loopback(chat) as server:
        found = plan_at(server, tmp_path, *quiet, "server.chat=true", "profile.max_tokens=4")
    assert found.clipped_share == 1.0
    assert any("guesses from the number of bytes" in line for line in found.lines())
