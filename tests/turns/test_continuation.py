from pivotune.core.types import Message, Turn
from pivotune.domains.household.environment import HouseholdEnvironment, generated_task
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.continuation import policy_rollout
from pivotune.verify import OutcomeConfig, OutcomeVerifier, as_completion


def test_a_policy_plays_on_from_the_action():
    """A policy that plays the oracle's moves wins in exactly the remaining steps."""
    environment = HouseholdEnvironment()
    opening = environment.reset(generated_task(5, "train", TINY_GAMES))
    expert = []
    played = environment.clone()
    while (action := played.oracle().action) is not None:
        expert.append(action)
        if played.step(action).done:
            break
    seen = []

    def script(messages, tools, row):
        seen.append(len(messages))
        done = sum(m.role == "assistant" for m in messages)
        return expert[done]

    turn = Turn("t#0", "t", environment._task, 0, opening, environment.tools, expert[0])
    rollout = policy_rollout(ScriptedSampler(script), temperature=1.0, seed=1, max_tokens=48)

    def reward(horizon):
        verifier = OutcomeVerifier(OutcomeConfig(horizon=horizon), rollout, "scripted")
        return verifier.verify(turn, as_completion(expert[0]), environment)

    verdict = reward(len(expert) - 1)
    assert verdict.reward == 1.0
    assert verdict.cost.environment_steps == len(expert)
    assert verdict.cost.rollout_turns == len(expert) - 1
    assert seen[0] == len(opening) + 2
    assert reward(len(expert) - 2).reward == 0.0
    bad = as_completion(Message("assistant", "no call"))
    assert OutcomeVerifier(OutcomeConfig(horizon=0)).verify(turn, bad, environment).reward == 0.0
