import json
from typing import Any

import pytest

from pivotune.core.errors import RecipeError, VerifierError
from pivotune.core.types import Completion, ParseOutcome, ToolSpec, Turn, Verdict
from pivotune.verify import (
    VERIFIERS,
    AllOf,
    AnyOf,
    FirstOf,
    SchemaConfig,
    SchemaVerifier,
    StrictVerifier,
    TextConfig,
    TextVerifier,
    ToolCallVerifier,
    ToolNameVerifier,
    Weighted,
    as_completion,
    build_verifier,
    safely,
    text_similarity,
)
from pivotune.verify.command import CommandVerifier, read_commands
from verify.helpers import broken, calls, reward, say, tool, turn


class Constant:
    """A verifier that always says the same, and counts how often it is asked."""

    version = "1"
    needs_environment = False

    def __init__(self, answer: float | Exception | None, name: str = "constant") -> None:
        self.answer, self.name, self.asked = answer, name, 0

    def verify(self, turn: Turn, completion: Completion, environment: Any) -> Verdict:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return Verdict(self.answer, "said so")


def test_strict_is_character_for_character() -> None:
    strict = StrictVerifier()
    assert reward(strict, say("go to desk 1"), say("go to desk 1")) == 1.0
    assert reward(strict, say("go to desk 1"), say("go to desk 1 ")) == 0.0
    assert reward(strict, calls(("f", {"x": 1})), calls(("f", {"x": 1}))) == 1.0
    assert reward(strict, calls(("f", {"x": 1})), calls(("f", {"x": 1.0}))) == 0.0


def test_tool_name_ignores_arguments_only() -> None:
    names = ToolNameVerifier()
    assert reward(names, calls(("f", {"x": 1})), calls(("f", {"x": 2}))) == 1.0
    assert reward(names, calls(("f", {}), ("g", {})), calls(("g", {}), ("f", {}))) == 1.0
    assert reward(names, calls(("f", {}), ("g", {})), calls(("f", {}), ("f", {}))) == 0.0
    assert reward(names, calls(("f", {})), say("done")) == 0.0
    assert reward(names, say("done"), say("finished")) == 1.0
    assert reward(names, say("done"), say(" ")) == 0.0


@pytest.mark.parametrize(
    ("a", "b", "similarity"),
    [
        ("abcd", "abcd", 1.0),
        ("one two three four five", "one  two three four five", 1.0),
        ("abcd", "abxd", 0.75),
        ("ab", "", 0.0),
    ],
)
def test_text_similarity(a: str, b: str, similarity: float) -> None:
    assert text_similarity(a, b) == text_similarity(b, a) == similarity


def test_text_threshold() -> None:
    assert reward(TextVerifier(TextConfig(threshold=0.75)), say("abcd"), say("abxd")) == 1.0
    assert reward(TextVerifier(TextConfig(threshold=0.76)), say("abcd"), say("abxd")) == 0.0
    assert reward(TextVerifier(TextConfig(ignore_case=True)), say("Paris"), say("paris")) == 1.0
    assert reward(TextVerifier(), say("x"), say("")) == 0.0
    mug, cup = say("take mug 1 from countertop 1"), say("take cup 1 from countertop 1")
    assert reward(TextVerifier(), mug, cup) == 0.0
    assert reward(TextVerifier(), calls(("f", {})), calls(("f", {}))) is None


def test_schema_of_a_reply() -> None:
    form = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    verifier = SchemaVerifier(SchemaConfig(form))
    assert reward(verifier, say("-"), say('{"a": 1}')) == 1.0
    assert reward(verifier, say("-"), say('```json\n{"a": 1}\n```')) == 1.0
    assert reward(verifier, say("-"), say('{"a": "1"}')) == 0.0
    verdict = verifier.verify(turn(say("-")), as_completion(say('{"a": 1, "a": 2}')), None)
    assert verdict.parts == {"malformed": 1.0}
    with pytest.raises(VerifierError, match="not a JSON schema"):
        SchemaVerifier(SchemaConfig({"type": "nothing"}))


def test_schema_of_calls() -> None:
    spec = tool(required=("x",), x={"type": "integer"})
    expert = calls(("f", {"x": 1}))
    assert reward(SchemaVerifier(), expert, calls(("f", {"x": 2})), spec) == 1.0
    assert reward(SchemaVerifier(), expert, calls(("f", {})), spec) == 0.0
    assert reward(SchemaVerifier(), expert, calls(("g", {"x": 2})), spec) == 0.0
    assert reward(SchemaVerifier(), expert, say("x"), spec) == 0.0


def test_schemas_are_not_looked_up_in_the_network(monkeypatch: Any) -> None:
    """A reference to elsewhere, or to nothing, or round in a circle, gives no verdict."""
    asked: list[Any] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *given, **_: asked.append(given))
    made = calls(("f", {"x": 1}))
    for schema in (
        {"properties": {"x": {"$ref": "http://example.org/x.json"}}},
        {"properties": {"x": {"$ref": "#/$defs/nothing"}}},
        {"$ref": "#"},
    ):
        spec = ToolSpec("f", "", schema)
        assert reward(safely(SchemaVerifier()), made, made, spec) is None
        assert reward(ToolCallVerifier(), made, made, spec) == 1.0
    assert asked == []


def harness(*keystrokes: str, complete: bool = False, plan: str = "p") -> str:
    commands = [{"keystrokes": k, "duration": 0.1} for k in keystrokes]
    return json.dumps({"analysis": plan, "commands": commands, "task_complete": complete})


def test_commands_of_calls_replies_blocks_and_messages() -> None:
    command = CommandVerifier()
    assert (
        reward(
            command, calls(("bash", {"command": "ls  -la"})), calls(("bash", {"command": "ls -al"}))
        )
        == 1.0
    )
    assert (
        reward(command, calls(("bash", {"command": "ls"})), calls(("bash", {"command": "pwd"})))
        == 0.0
    )
    assert (
        reward(command, say("first:\n```\nls  -la\n```"), say("now\n```bash\nls -la\n```\n")) == 1.0
    )
    assert reward(command, say("```\nls\n```"), say("```\nrm x\n```")) == 0.0
    assert reward(command, say(harness("ls -a\n")), say(harness("ls  -a\n", plan="q"))) == 1.0
    assert reward(command, say(harness("ls -a\n")), say(harness("ls -a"))) == 0.0
    assert reward(command, say(harness("ls\n")), say(harness("ls\n", "ls\n"))) == 0.0
    assert reward(command, say(harness(complete=True)), say(harness())) == 0.0
    assert reward(command, say("cat ./a/b"), say("cat a//b")) == 1.0
    assert reward(command, say("Hello.\n# Total: 5"), say("Hello.\n# Total: 6")) == 0.0
    assert read_commands("```\na\n```\ntext\n```\nb\n```").commands == ("b",)


ELSEWHERE = {"effect", "outcome", "judge", "process_reward"}
"""Families that need an environment or an endpoint; they have tests of their own."""


@pytest.mark.parametrize("name", sorted(VERIFIERS.keys() - ELSEWHERE))
def test_every_family_accepts_the_expert_and_turns_broken_actions_down(name: str) -> None:
    verifier = build_verifier(name)
    spec = tool(x={"type": "integer"})
    made = calls(("f", {"x": 1}))
    if name != "text":
        assert reward(verifier, made, made, spec) == 1.0
    for outcome in (ParseOutcome.MALFORMED, ParseOutcome.TRUNCATED, ParseOutcome.EMPTY):
        verdict = verifier.verify(turn(made, spec), broken(outcome, "why"), None)
        assert verdict.reward == 0.0
        assert verdict.parts == {outcome.value: 1.0}


def test_a_verifier_that_raises_is_invalid_never_zero() -> None:
    failing = safely(Constant(RuntimeError("boom")))
    verdict = failing.verify(turn(say("a")), as_completion(say("a")), None)
    assert verdict.invalid
    assert "boom" in verdict.reason
    for nonsense in (float("nan"), 1.5, -0.1):
        assert (
            safely(Constant(nonsense)).verify(turn(say("a")), as_completion(say("a")), None).invalid
        )


ONE, ZERO, HALF, NONE = 1.0, 0.0, 0.5, None
BOOM = RuntimeError("boom")


@pytest.mark.parametrize(
    ("kind", "answers", "expected", "asked"),
    [
        (AllOf, [ONE, ONE], 1.0, [1, 1]),
        (AllOf, [ZERO, ONE], 0.0, [1, 0]),
        (AllOf, [HALF, ONE], 0.5, [1, 1]),
        (AllOf, [NONE, ZERO], 0.0, [1, 1]),
        (AllOf, [BOOM, ONE], None, [1, 1]),
        (AnyOf, [ONE, ZERO], 1.0, [1, 0]),
        (AnyOf, [ZERO, HALF], 0.5, [1, 1]),
        (AnyOf, [BOOM, ONE], 1.0, [1, 1]),
        (AnyOf, [NONE, ZERO], None, [1, 1]),
        (FirstOf, [NONE, ZERO, ONE], 0.0, [1, 1, 0]),
        (FirstOf, [ONE, ZERO], 1.0, [1, 0]),
        (FirstOf, [NONE, BOOM], None, [1, 1]),
    ],
)
def test_compositions(kind: Any, answers: list[Any], expected: Any, asked: list[int]) -> None:
    members = [Constant(answer, f"m{i}") for i, answer in enumerate(answers)]
    verdict = kind(members).verify(turn(say("a")), as_completion(say("a")), None)
    assert verdict.reward == expected
    assert [member.asked for member in members] == asked


def test_weighted() -> None:
    verifier = Weighted([Constant(1.0, "a"), Constant(0.5, "b")], [3.0, 1.0])
    verdict = verifier.verify(turn(say("a")), as_completion(say("a")), None)
    assert verdict.reward == pytest.approx(0.875)
    assert verdict.parts == {"a": 1.0, "b": 0.5}
    assert reward(Weighted([Constant(1.0), Constant(None)], [1, 1]), say("a"), say("a")) is None
    for weights in ([1.0], [0.0, 0.0], [-1.0, 2.0]):
        with pytest.raises(VerifierError, match="weights"):
            Weighted([Constant(1.0), Constant(1.0)], weights)


def test_building_from_settings() -> None:
    built = build_verifier(
        {"name": "tool_call", "order": "sequence", "fields": {"*.q": {"similarity": 0.8}}}
    )
    assert isinstance(built, ToolCallVerifier)
    assert built.config.fields["*.q"].similarity == 0.8
    both = build_verifier({"name": "weighted", "of": ["tool_name", "tool_call"], "weights": [1, 3]})
    expert, other = calls(("f", {"x": 1})), calls(("f", {"x": 2}))
    assert reward(both, expert, other) == 0.25
    assert build_verifier("pivotune.verify.strict:StrictVerifier").name == "strict"
    assert build_verifier("mine", {"mine": lambda: Constant(1.0, "mine")}).name == "mine"


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("tool_cal", VerifierError, "did you mean 'tool_call'"),
        ({"name": "tool_call", "oder": "any"}, RecipeError, "did you mean 'order'"),
        ({"name": "tool_call", "order": "backwards"}, RecipeError, "order"),
        ({"name": "text", "threshold": 2}, RecipeError, "threshold"),
        ({"name": "strict", "x": 1}, RecipeError, "does not take"),
        ({"name": "any_of"}, VerifierError, "under `of`"),
        ({"name": "any_of", "of": []}, VerifierError, "of no verifier"),
        ({"name": "any_of", "of": ["strict"], "x": 1}, RecipeError, "does not take"),
        ("no.such.module:thing", VerifierError, "cannot be loaded"),
        ({}, VerifierError, "unknown verifier"),
    ],
)
def test_settings_that_make_no_sense(spec: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        build_verifier(spec)


def test_lenient_repairs_are_said() -> None:
    completion = Completion(
        (),
        (),
        (),
        calls(("f", {})),
        ParseOutcome.OK,
        "stop",
        1.0,
        "p",
        "",
        "repaired: a missing brace",
    )
    verdict = ToolCallVerifier().verify(turn(calls(("f", {}))), completion, None)
    assert verdict.reward == 1.0
    assert "repaired: a missing brace" in verdict.reason
