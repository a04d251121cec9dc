"""Over random schemas and values: respelling is always accepted, another value never.

The strategies draw a schema, a value of it, and then either a spelling that means the same or a
value that differs by one change; what is right is known from how the pair was made.
"""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pivotune.core.types import ToolSpec
from pivotune.verify import ToolCallVerifier
from verify.helpers import calls, reward

VERIFIER = ToolCallVerifier()
KEYS = ["a", "b", "c", "née", "k_1"]
Draw = Any


def text() -> st.SearchStrategy[str]:
    return st.text(
        st.characters(codec="utf-8", categories=["L", "M", "N", "P", "S", "Zs", "Cc"]), max_size=8
    )


@st.composite
def schemas(draw: Draw, depth: int = 2) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "boolean", "enum", "nullable"]
    kind = draw(st.sampled_from(kinds + ["object", "array", "set"] * (depth > 0)))
    if kind == "enum":
        return {
            "enum": draw(st.lists(text() | st.integers(), min_size=2, max_size=4, unique_by=repr))
        }
    if kind == "nullable":
        return {"anyOf": [{"type": draw(st.sampled_from(["string", "boolean"]))}, {"type": "null"}]}
    if kind == "set":
        return {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth - 1))}
    if kind == "object":
        return draw(objects(depth - 1))
    return {"type": kind}


@st.composite
def objects(draw: Draw, depth: int = 2) -> dict[str, Any]:
    properties = {}
    for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=4)):
        properties[key] = draw(schemas(depth))
        if draw(st.booleans()):
            properties[key] = {**properties[key], "default": draw(values(properties[key]))}
    required = draw(st.lists(st.sampled_from(sorted(properties) or ["-"]), unique=True))
    schema = {
        "type": "object",
        "properties": properties,
        "required": [key for key in required if key in properties],
    }
    if draw(st.booleans()):
        schema["additionalProperties"] = False
    return schema


@st.composite
def values(draw: Draw, schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "anyOf" in schema:
        return draw(values(draw(st.sampled_from(schema["anyOf"]))))
    match schema["type"]:
        case "string":
            return draw(text())
        case "integer":
            return draw(st.integers(-(10**20), 10**20))
        case "number":
            return draw(st.floats(-1e12, 1e12).map(lambda x: x + 0.0))
        case "boolean":
            return draw(st.booleans())
        case "null":
            return None
        case "array" if schema.get("uniqueItems"):
            return draw(st.lists(st.integers(0, 9), unique=True, max_size=4))
        case "array":
            return draw(st.lists(values(schema["items"]), max_size=3))
    return {
        key: draw(values(inner))
        for key, inner in schema["properties"].items()
        if key in schema["required"] or draw(st.booleans())
    }


def respell(draw: Draw, schema: dict[str, Any], value: Any) -> Any:
    """Another spelling of the same value."""
    if isinstance(value, bool) or value is None or "enum" in schema:
        return value
    if isinstance(value, str):
        form = draw(st.sampled_from(["NFC", "NFD"]))
        padded = unicodedata.normalize(form, value).replace(
            " ", draw(st.sampled_from([" ", "  ", " \t"]))
        )
        return draw(st.sampled_from(["", " ", "\n"])) + padded + draw(st.sampled_from(["", "  "]))
    if isinstance(value, (int, float)):
        forms = (
            [value, json.dumps(value)] if schema.get("type") in ("integer", "number") else [value]
        )
        if abs(value) < 2**53 and float(value).is_integer():
            forms += [int(value), float(value)]
        return draw(st.sampled_from(forms))
    if isinstance(value, list):
        items = [respell(draw, schema["items"], item) for item in value]
        return draw(st.permutations(items)) if schema.get("uniqueItems") else items
    return respell_object(draw, schema, value)


def respell_object(draw: Draw, schema: dict[str, Any], value: dict[str, Any]) -> Any:
    out = {}
    for key, inner in schema["properties"].items():
        has_default = "default" in inner and key not in schema["required"]
        if key not in value:
            if has_default and draw(st.booleans()):
                out[key] = respell(draw, inner, inner["default"])
        elif not (
            has_default and repr(value[key]) == repr(inner["default"]) and draw(st.booleans())
        ):
            out[key] = respell(draw, inner, value[key])
    return dict(draw(st.permutations(sorted(out.items(), key=lambda item: item[0]))))


def change(draw: Draw, schema: dict[str, Any], value: Any) -> Any:
    """A value that differs in one place, or the same where there is nothing to change."""
    if "enum" in schema:
        return draw(st.sampled_from([v for v in schema["enum"] if repr(v) != repr(value)]))
    if value is None:
        return True
    if isinstance(value, bool):
        return draw(st.sampled_from([not value, int(value), str(value).lower()]))
    if isinstance(value, str):
        return draw(st.sampled_from([value + "x", "x" + value, value + " x", None]))
    if isinstance(value, int):
        return draw(st.sampled_from([value + 1, value - 1, f"{value}x", bool(value)]))
    if isinstance(value, float):
        return value + max(1.0, abs(value))
    if isinstance(value, list):
        options = [[*value, 99]]
        if value:
            options.append(value[:-1])
            position = draw(st.integers(0, len(value) - 1))
            changed = list(value)
            changed[position] = change(draw, schema["items"], value[position])
            if not (schema.get("uniqueItems") and changed[position] in value):
                options.append(changed)
        return draw(st.sampled_from(options))
    return change_object(draw, schema, value)


def change_object(draw: Draw, schema: dict[str, Any], value: dict[str, Any]) -> Any:
    options: list[Any] = [{**value, "unknown": 1}]
    for key, inner in value.items():
        default = schema["properties"][key].get("default", ...)
        without = {k: v for k, v in value.items() if k != key}
        if key in schema["required"] or default is ...:
            options.append(without)
        options.append({**value, key: change(draw, schema["properties"][key], inner)})
    return draw(st.sampled_from(options))


def check_respelling(data: st.DataObject) -> None:
    schema = data.draw(objects())
    value = data.draw(values(schema))
    other = respell(data.draw, schema, value)
    spec = ToolSpec("f", "", schema)
    assert reward(VERIFIER, calls(("f", value)), calls(("f", other)), spec) == 1.0
    assert reward(VERIFIER, calls(("f", other)), calls(("f", value)), spec) == 1.0


def check_change(data: st.DataObject) -> None:
    schema = data.draw(objects())
    value = data.draw(values(schema))
    other = change(data.draw, schema, value)
    spec = ToolSpec("f", "", schema)
    assert reward(VERIFIER, calls(("f", value)), calls(("f", other)), spec) == 0.0
    assert reward(VERIFIER, calls(("f", other)), calls(("f", value)), spec) == 0.0


few = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(st.data())
def test_respelling_is_accepted(data: st.DataObject) -> None:
    check_respelling(data)


@few
@given(st.data())
def test_another_value_is_rejected(data: st.DataObject) -> None:
    check_change(data)


@pytest.mark.slow
@many
@given(st.data())
def test_respelling_is_accepted_often(data: st.DataObject) -> None:
    check_respelling(data)


@pytest.mark.slow
@many
@given(st.data())
def test_another_value_is_rejected_often(data: st.DataObject) -> None:
    check_change(data)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text(), inner, max_size=3),
    max_leaves=8,
)


@few
@given(st.dictionaries(text(), JSON, max_size=3), JSON)
def test_any_schema_and_any_values_give_a_verdict(arguments: dict[str, Any], schema: Any) -> None:
    """No schema is too odd: whatever it says, the verdict is a 0 or a 1, and equals itself."""
    spec = ToolSpec("f", "", {"properties": {"x": schema}, "type": "object"})
    made = calls(("f", {"x": arguments}))
    assert reward(VERIFIER, made, made, spec) in (0.0, 1.0)
    assert reward(VERIFIER, made, made) == 1.0
