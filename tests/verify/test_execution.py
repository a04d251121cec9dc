"""Verifiers that run actions or ask a scoring model: `effect`, `outcome`, `process_reward`."""

from collections.abc import Sequence
from typing import Any

import pytest

from loopback import Loopback, Reply
from pivotune.core.errors import RecipeError
from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, Cost, Message, ParseOutcome, Turn
from pivotune.domains.household.environment import HouseholdEnvironment, generated_task
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.verify import (
    EffectConfig,
    EffectVerifier,
    OutcomeConfig,
    OutcomeVerifier,
    ProcessRewardConfig,
    ProcessRewardVerifier,
    as_completion,
    build_verifier,
    safely,
)
from verify.files_environment import FilesEnvironment
from verify.helpers import broken, calls, say, turn

WRITE = calls(("write", {"path": "a", "text": "1"}))


def effect(expert: Message, action: Message, files: dict[str, str], **options: Any) -> Any:
    environment = FilesEnvironment(files)
    verifier = safely(EffectVerifier(EffectConfig(**options)))
    verdict = verifier.verify(turn(expert), as_completion(action), environment)
    assert environment.files == files, "the original is never stepped"
    return verdict


@pytest.mark.parametrize(
    ("files", "action", "reward"),
    [
        ({}, WRITE, 1.0),
        ({}, calls(("append", {"path": "a", "text": "1"})), 1.0),
        ({"a": "0"}, calls(("append", {"path": "a", "text": "1"})), 0.0),
        ({}, calls(("write", {"path": "a", "text": "2"})), 0.0),
        ({}, calls(("write", {"path": "b", "text": "1"})), 0.0),
        ({}, calls(("remove", {"path": "a"})), 0.0),
        ({}, say("I wrote it."), 0.0),
        ({}, Message("assistant"), 0.0),
        ({"a": "1"}, WRITE, 1.0),
    ],
)
def test_effects_are_compared_not_texts(
    files: dict[str, str], action: Message, reward: float
) -> None:
    assert effect(WRITE, action, files).reward == reward


def test_output_counts_unless_it_is_left_out() -> None:
    nothing, looking = calls(("remove", {"path": "b"})), calls(("list", {}))
    assert effect(looking, nothing, {"a": "x"}).reason == (
        "expected the answer 'a', got 'no such file'"
    )
    assert effect(looking, nothing, {"a": "x"}, compare_output=False).reward == 1.0


def test_the_reason_names_the_place_and_the_cost_is_two_steps() -> None:
    verdict = effect(WRITE, calls(("write", {"path": "b", "text": "1"})), {})
    assert verdict.reason == "files.a: expected '1', got nothing"
    assert verdict.cost == Cost(environment_steps=2)


def test_ending_the_task_is_an_effect() -> None:
    finish = calls(("write", {"path": "done", "text": ""}))
    assert effect(finish, finish, {}).reward == 1.0
    assert effect(finish, WRITE, {}).reward == 0.0


def test_what_cannot_be_executed_is_invalid() -> None:
    assert effect(WRITE, calls(("crash", {})), {}).invalid
    verdict = EffectVerifier().verify(turn(WRITE), as_completion(WRITE), None)
    assert verdict.invalid
    cut = broken(ParseOutcome.TRUNCATED, "the token limit")
    assert EffectVerifier().verify(turn(WRITE), cut, None).reward == 0.0


def household() -> tuple[Turn, HouseholdEnvironment]:
    environment = HouseholdEnvironment()
    task = generated_task(5, "train", TINY_GAMES)
    opening = environment.reset(task)
    action = environment.oracle().action
    assert action is not None
    return Turn("t#0", "t", task, 0, opening, environment.tools, action), environment


def act(command: str) -> Completion:
    return as_completion(calls(("act", {"command": command})))


def test_effects_in_the_household() -> None:
    """A reworded command has the same effect; another place, or none, has not."""
    state, environment = household()
    verifier = EffectVerifier()
    places = [c for c in environment.oracle().admissible if c.startswith("go to")]
    wanted = (state.expert.tool_calls[0].arguments or {})["command"]
    assert wanted in places
    receptacle = wanted.removeprefix("go to ")
    typed = as_completion(calls(("go_to", {"receptacle": receptacle})))
    assert verifier.verify(state, typed, environment).reward == 1.0
    others = [verifier.verify(state, act(c), environment).reward for c in places if c != wanted]
    assert others == [0.0] * (len(places) - 1)
    assert verifier.verify(state, act("look"), environment).reward == 0.0
    assert verifier.verify(state, act("fly"), environment).reward == 0.0


def test_outcome_with_the_oracle_asks_whether_the_task_can_still_be_won_in_time() -> None:
    """`remaining` steps in all: after the expert's action one less is enough, else it is not."""
    state, environment = household()
    remaining = environment.oracle().remaining
    assert remaining is not None
    exact = OutcomeVerifier(OutcomeConfig(horizon=remaining - 1))
    verdict = exact.verify(state, as_completion(state.expert), environment)
    assert (verdict.reward, verdict.cost.environment_steps) == (1.0, remaining)
    assert exact.verify(state, act("look"), environment).reward == 0.0
    longer = OutcomeVerifier(OutcomeConfig(horizon=remaining))
    assert longer.verify(state, act("look"), environment).reward == 1.0
    assert environment.oracle().remaining == remaining
    assert exact.version != longer.version


def test_outcome_is_the_mean_over_rollouts_of_a_policy() -> None:
    """Two of three rollouts write the file that the outcome asks for."""
    names: list[str] = []

    def play(environment: Environment, history: Sequence[Message], steps: int, name: str) -> Cost:
        assert [m.role for m in history] == ["user", "assistant", "tool"]
        names.append(name)
        text = "1" if len(names) < 3 else "2"
        environment.step(calls(("write", {"path": "a", "text": text})))
        return Cost(environment_steps=1, sampled_tokens=7)

    verifier = OutcomeVerifier(OutcomeConfig(horizon=4, rollouts=3), play, "mine")
    list_files = as_completion(calls(("list", {})))
    verdict = verifier.verify(turn(WRITE), list_files, FilesEnvironment())
    assert verdict.reward == pytest.approx(2 / 3)
    assert len(set(names)) == 3
    assert verdict.cost == Cost(environment_steps=6, sampled_tokens=21)
    assert verifier.version.endswith("+mine")


def test_an_outcome_without_anyone_to_play_on_is_invalid() -> None:
    verifier = safely(OutcomeVerifier())
    verdict = verifier.verify(turn(WRITE), as_completion(WRITE), FilesEnvironment())
    assert verdict.invalid
    assert "no oracle" in verdict.reason
    at_once = OutcomeVerifier(OutcomeConfig(horizon=0))
    assert at_once.verify(turn(WRITE), as_completion(WRITE), FilesEnvironment()).reward == 1.0


def test_a_scoring_function_and_its_threshold() -> None:
    score = lambda turn, action: float(len(action.content))  # noqa: E731
    verifier = ProcessRewardVerifier(ProcessRewardConfig(threshold=3.0), score)
    verdicts = [verifier.verify(turn(say("x")), as_completion(say(t)), None) for t in ("ab", "abc")]
    assert [v.reward for v in verdicts] == [0.0, 1.0]
    assert verdicts[0].parts == {"value": 2.0}
    nan = ProcessRewardVerifier(score=lambda turn, action: float("nan"))
    assert nan.verify(turn(say("x")), as_completion(say("x")), None).invalid


@pytest.mark.parametrize(
    ("body", "reward", "value"),
    [
        ({"data": [{"data": [0.1, 0.9]}]}, 1.0, 0.9),
        ({"data": [{"data": [[0.9, 0.1], [0.8, 0.2]]}]}, 0.0, 0.2),
        ({"data": [{"score": 0.7}], "usage": {"total_tokens": 12}}, 1.0, 0.7),
        ({"data": []}, None, None),
        ({"data": [{"data": []}]}, None, None),
        ({"data": [{"data": "0.9"}]}, None, None),
        ({"data": [{"data": [True]}]}, None, None),
        ("a chat answer", None, None),
        (Reply(b"down", 503), None, None),
    ],
)
def test_a_reward_model_behind_an_endpoint(
    body: Any, reward: float | None, value: float | None
) -> None:
    with Loopback(lambda request: body) as server:
        spec = {"name": "process_reward", "url": server.url, "model": "prm", "retries": 0}
        verdict = build_verifier(spec).verify(turn(WRITE), as_completion(WRITE), None)
    assert verdict.reward == reward
    assert verdict.parts.get("value") == value
    assert verdict.cost.judge_calls == 1
    (request,) = server.requests
    assert request.path == "/v1/pooling"
    assert request.body["messages"][-1] == {
        "role": "assistant",
        "content": 'write({"path": "a", "text": "1"})',
    }


def test_a_process_reward_without_a_model_is_refused() -> None:
    with pytest.raises(RecipeError, match="which model"):
        build_verifier("process_reward")
