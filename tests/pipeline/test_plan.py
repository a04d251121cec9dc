"""What the preflight promises, against closed forms."""

import msgspec
import pytest

from pivotune.core.estimate import Estimate
from pivotune.core.types import Cost, Message, ParseOutcome, Profile, Sample, Verdict
from pivotune.pipeline.plan import Plan, _live_groups


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
