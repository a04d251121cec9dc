from typing import Any

import pytest

from pivotune.core.types import Message, ParseOutcome, ToolCall, ToolSpec
from pivotune.verify import FieldRule, ToolCallConfig, ToolCallVerifier, as_completion
from verify.helpers import broken, calls, reward, say, tool, turn

VERIFIER = ToolCallVerifier()
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBERS = {"type": "array", "items": {"type": "number"}}
WORDS = {"type": "array", "items": {"type": "string"}}
TAGGED = {
    "oneOf": [
        {"properties": {"t": {"const": tag}, "n": inner}, "required": ["t", "n"]}
        for tag, inner in (("x", INTEGER), ("y", STRING), ("z", {"enum": ["low", "high"]}))
    ]
}


def same(expected: Any, actual: Any, schema: dict[str, Any] | None = None) -> bool:
    """Whether two values of the argument x are the same under a schema, both ways round."""
    spec = tool(x=schema or {})
    verdicts = [
        reward(VERIFIER, calls(("f", {"x": a})), calls(("f", {"x": b})), spec)
        for a, b in ((expected, actual), (actual, expected))
    ]
    assert verdicts[0] == verdicts[1]
    return verdicts[0] == 1.0


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.0, True),
        ([12, 15], [12.0, 15.0], True),
        (True, 1, False),
        (False, 0, False),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.0 + 1e-12, True),
        (1.5, 1.5 + 1e-6, False),
        (999, 10, False),
        (10**20, 10**20 + 1, False),
        (2**53, 2**53 + 1, False),
        (2**53, float(2**53), True),
        (10**22, 1e22, True),
        (10**400, 1.5, False),
        (1.5, -(10**400), False),
        (10**400, 10**400, True),
        (0, 1e-300, False),
        (None, 0, False),
        (None, "", False),
        (None, False, False),
        ("5", 5, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([], {}, False),
        ("", "x", False),
    ],
)
def test_values_without_a_schema(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is equal


@pytest.mark.parametrize(
    ("schema", "a", "b", "equal"),
    [
        ({"type": "number"}, 5, "5", True),
        ({"type": "integer"}, 5, "5.0", True),
        ({"type": "integer"}, "5", "5.0", True),
        ({"type": "integer"}, 5, "five", False),
        ({"type": ["integer", "null"]}, 5, "5", True),
        ({"type": "string"}, 5, "5", False),
        ({"type": ["integer", "string"]}, 5, "5", False),
        ({"type": "boolean"}, True, "true", False),
        ({"type": "integer"}, 10**30, str(10**30), True),
        ({"type": "integer"}, 10**30, str(10**30 + 1), False),
        ({"type": "number"}, 3.5, "9" * 400, False),
        ({"type": "number"}, 3, "9" * 5000, False),
        ({"type": "number"}, "9" * 5000, "9" * 5000 + " ", True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5, "5", True),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 5, "5", False),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, None, "", False),
        (TAGGED, {"t": "x", "n": 5}, {"t": "x", "n": "5"}, True),
        (TAGGED, {"t": "x", "n": 5}, {"t": "x", "n": "6"}, False),
        (TAGGED, {"t": "x", "n": 5}, {"t": "y", "n": "5"}, False),
        (TAGGED, {"t": "y", "n": "5"}, {"t": "y", "n": 5}, False),
        (TAGGED, {"t": "z", "n": "low"}, {"t": "z", "n": "low "}, False),
        ({"anyOf": [{"enum": ["a"]}, {"enum": ["a "]}]}, "a", "a ", False),
        ({"anyOf": [{"enum": ["low"]}, {"type": "null"}]}, "low", "low ", False),
        ({"anyOf": [NUMBERS, WORDS]}, [1], ["1"], False),
        ({"anyOf": [NUMBERS, {"type": "null"}]}, [1], ["1"], True),
        ({"type": "object"}, {"a": [1, {"b": 2}]}, '{"a": [1.0, {"b": 2}]}', True),
        ({"type": "string"}, '{"a": 1, "b": [2]}', '{"b":[2.0],"a":1}', True),
        ({"type": "string"}, '{"a": 1}', '{"a": 2}', False),
        ({"type": "string"}, '{"a": 1}', '{"a": 1', False),
        ({"type": "array", "uniqueItems": True}, [1, 2, 3], [3, 1, 2], True),
        ({"type": "array", "uniqueItems": True}, [1, 1, 2], [1, 2, 2], False),
        ({"enum": ["low", "high"]}, "low", "low ", False),
        ({"enum": ["low", "high"]}, "low", "high", False),
        ({"type": "array", "prefixItems": [INTEGER, STRING]}, [5, "a"], ["5", "a "], True),
        ({"type": "array", "items": {"type": "number"}}, [1, 2], ["1", "2.0"], True),
    ],
)
def test_values_under_a_schema(schema: dict[str, Any], a: Any, b: Any, equal: bool) -> None:
    assert same(a, b, schema) is equal


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("Paris", "paris ", False),
        ("New York", "new york", False),
        ("Paris", " Paris ", True),
        ("New York", "New \t York\n", True),
        ("caf\u00e9", "cafe\u0301", True),
        ("rm a.txt", "cat a.txt", False),
        ("rm -rf build dir", "rm -rf home dir", False),
        ("git push origin main", "git push origin main --force", False),
        ("one two three four five", "one two three four five", True),
        ("src/models.py", "test/models.py", False),
        ("서울", "\uc11c\uc6b8", True),
    ],
)
def test_strings_follow_one_rule(a: str, b: str, equal: bool) -> None:
    assert same(a, b, STRING) is equal


@pytest.mark.parametrize(
    ("kind", "a", "b", "equal"),
    [
        ("date", "2024-05-01", " 2024-05-01", True),
        ("date", "2024-05-01", "2024-05-02", False),
        ("date-time", "2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00", True),
        ("date-time", "2024-05-01T12:00:00z", "2024-05-01T12:00:00.000Z", True),
        ("date-time", "2024-05-01T12:00:00Z", "2024-05-01T12:00:00", False),
        ("date-time", "2024-05-01T12:00:00Z", "2024-05-01T12:00:01Z", False),
        ("email", "Ann@Example.org", "Ann@example.ORG", True),
        ("email", "Ann@example.org", "ann@example.org", False),
        ("uri", "HTTP://Example.org:80", "http://example.org/", True),
        ("uri", "http://e.org/a%2fb%7e", "http://e.org/a%2Fb~", True),
        ("uri", "http://e.org/a", "http://e.org/A", False),
        ("uri", "http://e.org/?a=1&b=2", "http://e.org/?b=2&a=1", False),
        ("uri", "http://e.org", "https://e.org", False),
        ("uri", "http://e.org/é", "http://e.org/%C3%A9", True),
        ("path", "./src//models.py", "src/models.py", True),
        ("path", "a/../b", "b", False),
    ],
)
def test_formats_compare_by_meaning(kind: str, a: str, b: str, equal: bool) -> None:
    assert same(a, b, {"type": "string", "format": kind}) is equal


@pytest.mark.parametrize("name", ["path", "file_path", "dir", "cwd"])
def test_arguments_that_are_called_paths_compare_as_paths(name: str) -> None:
    """`src/models.py` is no `test/models.py`, however much of the two is alike."""
    places = ("src/models.py", "./src//models.py", "test/models.py", "models.py")
    expert, *others = [calls(("f", {name: place})) for place in places]
    assert [reward(VERIFIER, expert, other) for other in others] == [1.0, 0.0, 0.0]


def test_a_format_that_does_not_parse_compares_as_text() -> None:
    assert same("tomorrow", " tomorrow", {"type": "string", "format": "date"})
    assert not same("tomorrow", "2024-05-01", {"type": "string", "format": "date"})


BASE = tool(required=("a",), a=INTEGER, base={"type": "integer", "default": 10}, note=STRING)


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        ({"a": 1}, {"a": 1, "base": 10}, True),
        ({"a": 1, "base": 10}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "base": 10.0}, True),
        ({"a": 1}, {"a": 1, "base": 999}, False),
        ({"a": 1}, {"a": 1, "base": None}, False),
        ({"a": 1}, {"a": 1, "extra": 1}, False),
        ({"a": 1}, {}, False),
        ({"a": 1}, {"a": 1, "note": "x"}, False),
        ({"a": 1, "note": "x"}, {"a": 1}, False),
        ({"base": 10}, {"base": 10}, False),
    ],
)
def test_defaults_required_and_unknown_keys(expected: Any, actual: Any, equal: bool) -> None:
    assert reward(VERIFIER, calls(("f", expected)), calls(("f", actual)), BASE) == float(equal)


def test_null_is_the_same_as_omitted_only_where_null_is_the_default() -> None:
    spec = tool(x={"type": ["string", "null"], "default": None}, y={"type": ["string", "null"]})
    given, omitted = calls(("f", {"x": None})), calls(("f", {}))
    assert reward(VERIFIER, given, omitted, spec) == reward(VERIFIER, omitted, given, spec) == 1.0
    assert reward(VERIFIER, omitted, calls(("f", {"y": None})), spec) == 0.0


def test_nested_objects_follow_the_same_rules() -> None:
    inner = {
        "type": "object",
        "properties": {"k": INTEGER, "d": {"type": "integer", "default": 3}},
        "required": ["k"],
        "additionalProperties": False,
    }
    schema = {"type": "array", "items": inner}
    assert same([{"k": 1}], [{"k": "1", "d": 3}], schema)
    assert not same([{"k": 1}], [{"k": 1, "d": 4}], schema)
    assert not same([{"k": 1}], [{"k": 1, "z": 4}], schema)
    assert not same([{"k": 1, "z": 4}], [{"k": 1, "z": 4}], schema)


def test_a_schema_that_refers_to_itself() -> None:
    tree = {
        "type": "object",
        "properties": {
            "v": INTEGER,
            "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
        },
    }
    spec = ToolSpec(
        "f",
        "",
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}},
    )
    deep: Any = {"v": 1, "next": None}
    other: Any = {"v": "1", "next": None}
    for _ in range(20):
        deep, other = {"v": 2, "next": deep}, {"next": other, "v": 2.0}
    assert reward(VERIFIER, calls(("f", {"x": deep})), calls(("f", {"x": other})), spec) == 1.0
    other["next"]["next"]["v"] = 3
    assert reward(VERIFIER, calls(("f", {"x": deep})), calls(("f", {"x": other})), spec) == 0.0
    loop = ToolSpec(
        "f",
        "",
        {
            "$ref": "#",
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}},
            "properties": {"x": {"$ref": "#/$defs/a"}},
        },
    )
    assert reward(VERIFIER, calls(("f", {"x": 1})), calls(("f", {"x": 1})), loop) == 1.0


A, B, C = ("f", {"x": "A"}), ("f", {"x": "B"}), ("g", {"x": "A"})
SPECS = (tool("f", x=STRING), tool("g", x=STRING))


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        ([A, B], [B, A], True),
        ([A, B], [A, A], False),
        ([A, A], [A, B], False),
        ([A], [A, A], False),
        ([A], [A] + [B] * 19, False),
        ([A, B], [A], False),
        ([A], [C], False),
        ([A, B, C], [C, B, A], True),
        ([A], [("h", {"x": "A"})], False),
        ([("h", {})], [("h", {})], False),
    ],
)
def test_several_calls(expected: list[Any], actual: list[Any], equal: bool) -> None:
    assert reward(VERIFIER, calls(*expected), calls(*actual), *SPECS) == float(equal)


def test_matching_is_maximal_not_greedy() -> None:
    """Greedy matching would give the loose expected call the only answer of the tight one."""
    fuzzy = ToolCallVerifier(ToolCallConfig(fields={"f.x": FieldRule(similarity=0.5)}))
    expected = calls(("f", {"x": "abcd"}), ("f", {"x": "abxy"}))
    actual = calls(("f", {"x": "abxd"}), ("f", {"x": "aacd"}))
    # abcd fits both; abxy fits abxd only.
    assert reward(fuzzy, expected, actual, *SPECS) == 1.0


def test_order_and_surplus_are_options() -> None:
    sequence = ToolCallVerifier(ToolCallConfig(order="sequence"))
    assert reward(sequence, calls(A, B), calls(B, A), *SPECS) == 0.0
    ignore = ToolCallVerifier(ToolCallConfig(surplus="ignore"))
    assert reward(ignore, calls(A), calls(B, A), *SPECS) == 1.0
    assert reward(ignore, calls(A, A), calls(B, A), *SPECS) == 0.0
    both = ToolCallVerifier(ToolCallConfig(order="sequence", surplus="ignore"))
    assert reward(both, calls(A, B), calls(A, C, B), *SPECS) == 1.0
    assert reward(both, calls(A, B), calls(B, C, A), *SPECS) == 0.0
    versions = {v.version for v in (VERIFIER, sequence, ignore, both)}
    assert len(versions) == 4


def test_tools_are_not_needed() -> None:
    assert reward(VERIFIER, calls(A), calls(A)) == 1.0
    assert reward(VERIFIER, calls(A), calls(B)) == 0.0


def test_where_the_expert_spoke() -> None:
    expert = say("Your seat is booked, have a good flight.")
    assert reward(VERIFIER, expert, say("Your seat is  booked, have a good flight.")) == 1.0
    assert reward(VERIFIER, expert, say("I cannot do that.")) == 0.0
    verdict = VERIFIER.verify(turn(expert), as_completion(say("")), None)
    assert (verdict.reward, verdict.parts) == (0.0, {"empty": 1.0})
    verdict = VERIFIER.verify(turn(expert), as_completion(calls(A)), None)
    assert (verdict.reward, verdict.parts) == (0.0, {"unexpected_call": 1.0})


@pytest.mark.parametrize(
    "outcome", [ParseOutcome.MALFORMED, ParseOutcome.TRUNCATED, ParseOutcome.EMPTY]
)
def test_actions_that_cannot_be_read_are_valid_zeros(outcome: ParseOutcome) -> None:
    verdict = VERIFIER.verify(turn(calls(A), *SPECS), broken(outcome, "duplicate key x"), None)
    assert verdict.reward == 0.0
    assert verdict.parts == {outcome.value: 1.0}
    assert verdict.reason == f"{outcome.value}: duplicate key x"


def test_no_call_and_broken_arguments_have_their_own_category() -> None:
    verdict = VERIFIER.verify(turn(calls(A), *SPECS), as_completion(say("hello")), None)
    assert (verdict.reward, verdict.parts) == (0.0, {"no_call": 1.0})
    bad = Message("assistant", tool_calls=(ToolCall("f", None, "{x"),))
    verdict = VERIFIER.verify(turn(calls(A), *SPECS), as_completion(bad), None)
    assert (verdict.reward, verdict.parts) == (0.0, {"malformed": 1.0})
    assert VERIFIER.verify(turn(bad, *SPECS), as_completion(calls(A)), None).invalid


def test_reasons_name_the_place() -> None:
    verdict = VERIFIER.verify(turn(calls(A), *SPECS), as_completion(calls(B)), None)
    assert verdict.reason == "f.x: expected 'A', got 'B'"
    assert verdict.parts == {"names": 1.0, "arguments": 0.0}


@pytest.mark.parametrize(
    ("rule", "a", "b", "equal"),
    [
        (FieldRule(ignore_case=True), "Paris", "PARIS", True),
        (FieldRule(compare="exact"), "a  b", "a b", False),
        (FieldRule(compare="command"), "ls  -la", "ls -al", True),
        (FieldRule(compare="path"), "./a//b", "a/b", True),
        (FieldRule(similarity=0.9), "the quick brown fox", "the quick brown fix", True),
        (FieldRule(similarity=0.9), "the quick", "the slow", False),
        (FieldRule(unordered=True), ["a", "b"], ["b", "a"], True),
    ],
)
def test_field_rules(rule: FieldRule, a: Any, b: Any, equal: bool) -> None:
    verifier = ToolCallVerifier(ToolCallConfig(fields={"*.x": rule}))
    assert reward(verifier, calls(("f", {"x": a})), calls(("f", {"x": b})), tool(x={})) == float(
        equal
    )
