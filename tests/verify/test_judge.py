"""The judge against a server on loopback that answers well, badly, late, or half the time."""

import json
import threading
from typing import Any

import pytest
from msgspec import structs

from loopback import Loopback, Reply, Request
from pivotune.core.errors import RecipeError, VerifierError
from pivotune.core.types import Message, ParseOutcome
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.profile import ProfileConfig, profile_turns
from pivotune.verify import (
    AllOf,
    AnyOf,
    EffectVerifier,
    FirstOf,
    JudgeConfig,
    JudgeVerifier,
    StrictVerifier,
    as_completion,
    build_verifier,
    verify_all,
)
from pivotune.verify.compose import count_at_once
from pivotune.verify.judge import read_answer
from verify.helpers import broken, calls, say, tool, turn

FAST: dict[str, Any] = {"timeout_s": 10.0, "deadline_s": 30.0, "backoff_s": 0.001, "retries": 3}
EXPERT = calls(("book", {"city": "Rome", "nights": 2}))
SAME = calls(("book", {"nights": 2.0, "city": "Roma"}))
OTHER = calls(("book", {"city": "Oslo", "nights": 2}))
TURN = turn(EXPERT, tool("book", city={"type": "string"}, nights={"type": "integer"}))


def question(request: Request) -> dict[str, Any]:
    """The parts of a question, decoded."""
    text = request.body["messages"][1]["content"]
    pairs = [part.partition(": ") for part in text.split("\n\n")]
    return {name: json.loads(value) for name, _, value in pairs}


def fair(request: Request) -> str:
    """Accepts whatever does not speak of Oslo."""
    asked = question(request)
    return json.dumps({"equivalent": "Oslo" not in asked["A"] + asked["B"], "reason": "seen"})


def judge(server: Loopback, **options: Any) -> JudgeVerifier:
    return JudgeVerifier(JudgeConfig(url=server.url, model="m", **(FAST | options)))


def test_both_orders_are_asked_and_counted() -> None:
    with Loopback(fair) as server:
        verifier = judge(server)
        accepted = verifier.verify(TURN, as_completion(SAME), None)
        rejected = verifier.verify(TURN, as_completion(OTHER), None)
    assert (accepted.reward, rejected.reward) == (1.0, 0.0)
    assert accepted.parts == {"expert_first": 1.0, "expert_second": 1.0}
    assert (accepted.cost.judge_calls, accepted.cost.judge_tokens) == (2, 200)
    first, second = question(server.requests[0]), question(server.requests[1])
    assert (first["A"], first["B"]) == (second["B"], second["A"])
    assert first["A"] == 'book({"city": "Rome", "nights": 2})'
    assert [spec["name"] for spec in first["tools"]] == ["book"]
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].body["temperature"] == 0


def test_long_messages_of_the_history_are_cut_and_actions_are_not() -> None:
    state = (Message("user", "old"), *[Message("tool", "a" * 9000 + "end")] * 6)
    long = calls(("book", {"city": "Rome" * 5000, "nights": 2}))
    with Loopback(fair) as server:
        judge(server).verify(structs.replace(TURN, state=state), as_completion(long), None)
        judge(server, history=0).verify(TURN, as_completion(SAME), None)
    first, none = question(server.requests[0]), question(server.requests[2])
    assert [len(message["content"]) for message in first["history"]] == [6005] * 6
    assert first["history"][0]["content"].endswith("aaend")
    assert "Rome" * 5000 in first["B"]
    assert none["history"] == []


def test_an_answer_that_depends_on_the_order_rejects() -> None:
    def first_is_better(request: Request) -> str:
        return json.dumps({"equivalent": "Rome" in question(request)["A"]})

    with Loopback(first_is_better) as server:
        verdict = judge(server).verify(TURN, as_completion(SAME), None)
    assert verdict.reward == 0.0
    assert "depends on the order" in verdict.reason
    assert verdict.parts == {"expert_first": 1.0, "expert_second": 0.0}


def test_what_needs_no_judge_is_not_asked() -> None:
    with Loopback(fair) as server:
        verifier = judge(server)
        spelt_otherwise = calls(("book", {"nights": 2, "city": "Rome"}))
        assert verifier.verify(TURN, as_completion(spelt_otherwise), None).reward == 1.0
        assert verifier.verify(TURN, as_completion(say("Booked.")), None).parts == {"no_call": 1.0}
        cut = broken(ParseOutcome.TRUNCATED, "the token limit")
        assert verifier.verify(TURN, cut, None).reward == 0.0
    assert server.requests == []


@pytest.mark.parametrize(
    ("text", "equivalent"),
    [
        ('{"equivalent": true}', True),
        ('{"equivalent": false, "reason": "other city"}', False),
        ('Let me see.\n```json\n{"equivalent": true, "reason": "a {b} c"}\n```', True),
        ('<think>{"equivalent": true}</think>{"equivalent": false}', False),
        ('{"equivalent": true} no: {"equivalent": false}', False),
        ('{"equivalent": "true"}', None),
        ('{"equivalent": 1}', None),
        ('{"equivalent": true', None),
        ('{"equivalent": true, "equivalent": false}', None),
        ("yes", None),
        ("", None),
        ("{" * 5000, None),
    ],
)
def test_answers(text: str, equivalent: bool | None) -> None:
    answer = read_answer(text)
    assert (answer.equivalent if answer else None) is equivalent


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("These look alike to me!", "no verdict: 'These look alike"),
        ({"choices": []}, "no verdict: ''"),
        ({"choices": [{"message": {"content": None}}]}, "no verdict: ''"),
        ({"error": "overloaded"}, "no verdict"),
        (Reply(b'["not", "a", "completion"]'), "no verdict"),
        (Reply(b"<html>bad gateway</html>"), "not JSON"),
        (Reply(b"no such model", 404), "HTTP 404"),
        (Reply(b"down", 503), "HTTP 503"),
    ],
)
def test_garbage_is_invalid_and_never_zero(answer: Any, said: str) -> None:
    with Loopback(lambda request: answer) as server:
        verdict = judge(server, retries=1).verify(TURN, as_completion(SAME), None)
    assert verdict.invalid
    assert said in verdict.reason
    assert verdict.cost.judge_calls == len(server.requests)


def test_a_judge_that_fails_half_the_time_still_answers() -> None:
    def half(request: Request) -> str | Reply:
        return Reply(b"", 500) if request.number % 2 == 0 else fair(request)

    with Loopback(half) as server:
        verdict = judge(server).verify(TURN, as_completion(SAME), None)
    assert verdict.reward == 1.0
    assert verdict.cost.judge_calls == 4


def test_a_hanging_judge_is_invalid_at_the_deadline_and_soon_not_asked_any_more() -> None:
    with Loopback(lambda request: Reply(wait_s=600)) as server:
        verifier = judge(server, timeout_s=0.2, deadline_s=30.0, retries=0)
        verdicts = [verifier.verify(TURN, as_completion(SAME), None) for _ in range(40)]
    assert all(verdict.invalid for verdict in verdicts)
    assert all("no answer within 0.2 s" in verdict.reason for verdict in verdicts[:5])
    assert all("5 times in a row" in verdict.reason for verdict in verdicts[5:])
    assert sum(verdict.cost.judge_calls for verdict in verdicts) == 5


def test_answers_are_kept_on_disk(tmp_path: Any) -> None:
    with Loopback(fair) as server:
        options = {"cache": str(tmp_path)}
        first = judge(server, **options).verify(TURN, as_completion(SAME), None)
        again = judge(server, **options).verify(TURN, as_completion(SAME), None)
        assert len(server.requests) == 2
        assert (again.reward, again.reason) == (first.reward, first.reason)
        assert again.cost.judge_calls == 0
        judge(server, **options).verify(TURN, as_completion(OTHER), None)
        assert len(server.requests) == 4
        for path in tmp_path.rglob("*.json"):
            path.write_text("{torn")
        assert judge(server, **options).verify(TURN, as_completion(SAME), None).reward == 1.0
        assert len(server.requests) == 6


def test_failures_are_not_kept(tmp_path: Any) -> None:
    with Loopback(lambda r: "hm" if r.number == 0 else fair(r)) as server:
        options = {"cache": str(tmp_path)}
        assert judge(server, **options).verify(TURN, as_completion(SAME), None).invalid
        assert judge(server, **options).verify(TURN, as_completion(SAME), None).reward == 1.0


def test_the_key_is_nowhere_but_in_the_header(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setenv("TEST_KEY", "s3cret")
    with Loopback(fair) as server:
        verifier = judge(server, key_env="TEST_KEY", cache=str(tmp_path))
        verdict = verifier.verify(TURN, as_completion(SAME), None)
    assert server.requests[0].headers["Authorization"] == "Bearer s3cret"
    kept = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert "s3cret" not in kept + verifier.version + repr(verdict) + repr(verifier.config)
    assert "s3cret" not in json.dumps(server.requests[0].body)


def test_the_version_follows_what_decides_the_answer() -> None:
    def version(**options: Any) -> str:
        return JudgeVerifier(JudgeConfig(url="http://localhost:1", **options)).version

    one = version(model="m")
    assert one == version(model="m", deadline_s=5.0, cache="elsewhere")
    assert len({one, version(model="n"), version(model="m", request={})}) == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "which model"),
        ({"model": "m"}, "not an address"),
        ({"model": "m", "url": "http://localhost:1", "key": "x"}, "unknown key 'key'"),
        ({"model": "m", "url": "http://localhost:1", "key_env": "NO_SUCH_KEY"}, "holds no key"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        build_verifier({"name": "judge", **settings})


ANSWERS = [
    '<tool_call>book{"city": "Rome", "nights": 2}</tool_call>',
    '<tool_call>book{"city": "Roma", "nights": 2}</tool_call>',
    '<tool_call>book{"city": "Oslo", "nights": 2}</tool_call>',
    "Booked.",
]


def profile(server: Loopback, path: Any, **options: Any) -> Any:
    sampler = ScriptedSampler(lambda messages, tools, row: ANSWERS[row])
    config = ProfileConfig(samples=4, invalid_limit=0.3)
    verifier = FirstOf([judge(server, **options)])
    return profile_turns(sampler, [TURN], verifier, None, config, seed=1, path=path)


def test_its_cost_is_in_the_profile(tmp_path: Any) -> None:
    """Two samples need the judge, in both orders; equal and other kinds of action do not."""
    with Loopback(fair) as server:
        (found,) = profile(server, tmp_path / "p.jsonl")
    assert found.rewards == (1.0, 1.0, 0.0, 0.0)
    assert found.cost.judge_calls == len(server.requests)
    assert found.cost.judge_tokens == 100 * len(server.requests)


def test_failures_leave_the_group_or_stop_the_run_with_a_reason(tmp_path: Any) -> None:
    def only_oslo(request: Request) -> str | Reply:
        return fair(request) if "Oslo" in json.dumps(request.body) else Reply(b"", 500)

    with Loopback(only_oslo) as server:
        (found,) = profile(server, tmp_path / "some.jsonl", retries=0)
        assert found.rewards == (1.0, 0.0, 0.0)
    with (
        Loopback(lambda request: Reply(b"", 500)) as server,
        pytest.raises(VerifierError, match=r"2 of 4 verdicts are invalid.*\n.*HTTP 500"),
    ):
        profile(server, tmp_path / "all.jsonl", retries=0)


class Crowded:
    """Answers as `fair` does once `count` questions wait at the same time."""

    def __init__(self, count: int) -> None:
        self.full = threading.Barrier(count)
        self.waiting, self.most, self.lock = 0, 0, threading.Lock()

    def __call__(self, request: Request) -> str:
        with self.lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        self.full.wait(300)
        with self.lock:
            self.waiting -= 1
        return fair(request)


def test_several_questions_are_asked_at_once_and_come_back_in_order() -> None:
    """Eight actions in both orders, four at once: four rounds that only fill up together."""
    cities = ["Oslo", "Roma", "Oslo ", "Rom", "Rome ", "Oslo!", "Rome!", "OSLO: Oslo"]
    actions = [as_completion(calls(("book", {"city": city, "nights": 2}))) for city in cities]
    crowd = Crowded(4)
    with Loopback(crowd) as server:
        verifier = AnyOf([StrictVerifier(), judge(server, concurrency=4, timeout_s=600.0)])
        verdicts = verify_all(verifier, TURN, actions, None)
    assert [verdict.reward for verdict in verdicts] == [float("Oslo" not in c) for c in cities]
    assert [verdict.cost.judge_calls for verdict in verdicts] == [2] * 8
    assert (crowd.most, len(server.requests)) == (4, 16)


def test_equal_questions_at_once_are_asked_once_where_answers_are_kept(tmp_path: Any) -> None:
    with Loopback(fair) as server:
        verifier = judge(server, cache=str(tmp_path))
        verdicts = verify_all(verifier, TURN, [as_completion(SAME)] * 8, None)
        assert len(server.requests) == 2
    assert [verdict.reward for verdict in verdicts] == [1.0] * 8
    assert sum(verdict.cost.judge_calls for verdict in verdicts) == 2


def test_what_needs_an_environment_is_asked_one_after_the_other() -> None:
    with Loopback(fair) as server:
        asked = judge(server, concurrency=4)
        assert count_at_once(AllOf([asked, StrictVerifier()])) == 4
        assert count_at_once(AllOf([asked, EffectVerifier()])) == 1
        assert count_at_once(StrictVerifier()) == 1
