"""Over random schemas and values: respelling is always accepted, another value never.

The strategies draw a schema, a value of it, and then either a spelling that means the same or a
value that differs by one change; what is right is known from how the pair was made.
"""

import json
import unicodedata
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pivotune.core.types import ToolSpec
from pivotune.verify import ToolCallVerifier, selftest
from verify.helpers import calls, reward, turn

VERIFIER = ToolCallVerifier()
KEYS = ["a", "b", "c", "née", "k_1"]
Draw = Any


def text() -> st.SearchStrategy[str]:
    return st.text(
        st.characters(codec="utf-8", categories=["L", "M", "N", "P", "S", "Zs", "Cc"]), max_size=8
    )


SCALARS = ["string", "integer", "number", "boolean", "enum", "const", "nullable", "optional"]
FORMATS = ["date", "date-time", "email"]
NESTED = ["object", "array", "set", "tuple", "map", "union"]


@st.composite
def schemas(draw: Draw, depth: int = 2) -> dict[str, Any]:
    kind = draw(st.sampled_from(SCALARS + FORMATS + NESTED * (depth > 0)))
    match kind:
        case "enum":
            members = st.lists(text() | st.integers(), min_size=2, max_size=4, unique_by=repr)
            return {"enum": draw(members)}
        case "const":
            return {"const": draw(text() | st.integers())}
        case "nullable":
            plain = {"type": draw(st.sampled_from(["string", "boolean"]))}
            return {"anyOf": [plain, {"type": "null"}]}
        case "optional":
            return {"type": [draw(st.sampled_from(["integer", "number", "string"])), "null"]}
        case "date" | "date-time" | "email":
            return {"type": "string", "format": kind}
        case "set":
            return {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}
        case "array":
            return {"type": "array", "items": draw(schemas(depth - 1))}
        case "tuple":
            return {"type": "array", "prefixItems": [draw(schemas(depth - 1)) for _ in range(2)]}
        case "map":
            return {"type": "object", "additionalProperties": draw(schemas(depth - 1))}
        case "union":
            return {"oneOf": [tagged(tag, draw(schemas(depth - 1))) for tag in ("x", "y")]}
        case "object":
            return draw(objects(depth - 1))
    return {"type": kind}


def tagged(tag: str, payload: dict[str, Any]) -> dict[str, Any]:
    """One member of a union, told from the others by its tag."""
    properties = {"tag": {"const": tag}, "payload": payload}
    return {"type": "object", "properties": properties, "required": ["tag", "payload"]}


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


def kind_of(schema: dict[str, Any]) -> str:
    """The one word that says how values of a schema are made and changed."""
    for key in ("enum", "const", "anyOf", "oneOf", "format", "prefixItems"):
        if key in schema:
            return schema["format"] if key == "format" else key
    if schema.get("uniqueItems"):
        return "set"
    if schema["type"] == "object" and "properties" not in schema:
        return "map"
    return "optional" if isinstance(schema["type"], list) else schema["type"]


@st.composite
def values(draw: Draw, schema: dict[str, Any]) -> Any:
    match kind_of(schema):
        case "enum":
            return draw(st.sampled_from(schema["enum"]))
        case "const":
            return schema["const"]
        case "anyOf":
            return draw(values(draw(st.sampled_from(schema["anyOf"]))))
        case "oneOf":
            return draw(values(draw(st.sampled_from(schema["oneOf"]))))
        case "optional":
            return draw(values({"type": draw(st.sampled_from(schema["type"]))}))
        case "date":
            return draw(st.dates()).isoformat()
        case "date-time":
            instant = st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1))
            return draw(instant).replace(microsecond=0).isoformat() + "Z"
        case "email":
            return draw(st.sampled_from(["Ann@example.org", "bo.b@mail.example.com"]))
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
        case "set":
            return draw(st.lists(st.integers(0, 9), unique=True, max_size=4))
        case "array":
            return draw(st.lists(values(schema["items"]), max_size=3))
        case "prefixItems":
            return [draw(values(each)) for each in schema["prefixItems"]]
        case "map":
            entries = st.dictionaries(text(), values(schema["additionalProperties"]), max_size=3)
            return draw(entries)
    return {
        key: draw(values(inner))
        for key, inner in schema["properties"].items()
        if key in schema["required"] or draw(st.booleans())
    }


def branch_of(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """The member of a tagged union that a value is of."""
    return next(b for b in schema["oneOf"] if b["properties"]["tag"]["const"] == value["tag"])


def respell(draw: Draw, schema: dict[str, Any], value: Any) -> Any:
    """Another spelling of the same value."""
    kind = kind_of(schema)
    if isinstance(value, bool) or value is None or kind in ("enum", "const"):
        return value
    if kind == "date-time":
        zone = timezone(timedelta(minutes=draw(st.integers(-12 * 60, 14 * 60))))
        return datetime.fromisoformat(value).astimezone(zone).isoformat()
    if kind == "email":
        local, _, host = value.partition("@")
        return f"{local}@{draw(st.sampled_from([host, host.upper()]))}"
    if isinstance(value, str):
        form = draw(st.sampled_from(["NFC", "NFD"]))
        padded = unicodedata.normalize(form, value).replace(
            " ", draw(st.sampled_from([" ", "  ", " \t"]))
        )
        return draw(st.sampled_from(["", " ", "\n"])) + padded + draw(st.sampled_from(["", "  "]))
    if isinstance(value, (int, float)):
        typed = kind in ("integer", "number", "optional")
        forms = [value, json.dumps(value)] if typed else [value]
        if abs(value) < 2**53 and float(value).is_integer():
            forms += [int(value), float(value)]
        return draw(st.sampled_from(forms))
    if kind == "set":
        return draw(st.permutations([respell(draw, schema["items"], item) for item in value]))
    if kind == "array":
        return [respell(draw, schema["items"], item) for item in value]
    if kind == "prefixItems":
        pairs = zip(schema["prefixItems"], value, strict=True)
        return [respell(draw, inner, item) for inner, item in pairs]
    if kind == "map":
        inner = schema["additionalProperties"]
        return {key: respell(draw, inner, value[key]) for key in reversed(value)}
    if kind == "oneOf":
        schema = branch_of(schema, value)
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
    """A value that differs in one place."""
    kind = kind_of(schema)
    if kind == "enum":
        return draw(st.sampled_from([v for v in schema["enum"] if repr(v) != repr(value)]))
    if value is None:
        return True
    if isinstance(value, bool):
        return draw(st.sampled_from([not value, int(value), str(value).lower()]))
    if kind == "date":
        other = 2 if value.endswith("-01") else 1
        return date.fromisoformat(value).replace(day=other).isoformat()
    if kind == "date-time":
        return (datetime.fromisoformat(value) + timedelta(seconds=1)).isoformat()
    if kind == "email":
        return "c" + value
    if isinstance(value, str):
        return draw(st.sampled_from([value + "x", "x" + value, value + " x", None]))
    if isinstance(value, int):
        return draw(st.sampled_from([value + 1, value - 1, f"{value}x", bool(value)]))
    if isinstance(value, float):
        return value + max(1.0, abs(value))
    if isinstance(value, list):
        return change_list(draw, schema, value)
    if kind == "map":
        inner = schema["additionalProperties"]
        options = [{**value, "another key": draw(values(inner))}]
        for key in value:
            options.append({k: v for k, v in value.items() if k != key})
            options.append({**value, key: change(draw, inner, value[key])})
        return draw(st.sampled_from(options))
    if kind == "oneOf":
        schema = branch_of(schema, value)
    return change_object(draw, schema, value)


def change_list(draw: Draw, schema: dict[str, Any], value: list[Any]) -> list[Any]:
    """One item more or less, or one changed."""
    prefix = schema.get("prefixItems")
    options = [[*value, 99]]
    if value:
        options.append(value[:-1])
        position = draw(st.integers(0, len(value) - 1))
        changed = list(value)
        inner = prefix[position] if prefix else schema["items"]
        changed[position] = change(draw, inner, value[position])
        if not (schema.get("uniqueItems") and changed[position] in value):
            options.append(changed)
    return draw(st.sampled_from(options))


def change_object(draw: Draw, schema: dict[str, Any], value: dict[str, Any]) -> Any:
    options: list[Any] = [{**value, "unknown": 1}]
    for key, inner in value.items():
        default = schema["properties"][key].get("default", ...)
        without = {k: v for k, v in value.items() if k != key}
        if key in schema["required"] or default is ...:
            options.append(without)
        options.append({**value, key: change(draw, schema["properties"][key], inner)})
    return draw(st.sampled_from(options))


def hoist(draw: Draw, schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with some properties behind `$ref` and `allOf`."""
    properties, definitions = dict(schema["properties"]), {}
    for key, inner in properties.items():
        where = draw(st.sampled_from(["here", "reference", "part"]))
        if where == "reference":
            definitions[key] = inner
            properties[key] = {"$ref": f"#/$defs/{key}"}
        elif where == "part":
            properties[key] = {"allOf": [inner]}
    return {**schema, "properties": properties, "$defs": definitions}


def check_respelling(data: st.DataObject) -> None:
    schema = data.draw(objects())
    value = data.draw(values(schema))
    other = respell(data.draw, schema, value)
    spec = ToolSpec("f", "", hoist(data.draw, schema))
    assert reward(VERIFIER, calls(("f", value)), calls(("f", other)), spec) == 1.0
    assert reward(VERIFIER, calls(("f", other)), calls(("f", value)), spec) == 1.0


def check_change(data: st.DataObject) -> None:
    schema = data.draw(objects())
    value = data.draw(values(schema))
    other = change(data.draw, schema, value)
    spec = ToolSpec("f", "", hoist(data.draw, schema))
    assert reward(VERIFIER, calls(("f", value)), calls(("f", other)), spec) == 0.0
    assert reward(VERIFIER, calls(("f", other)), calls(("f", value)), spec) == 0.0


def check_several(data: st.DataObject) -> None:
    """Calls in any order and spelling are the same; with one value changed they never are."""
    schema = data.draw(objects(depth=1))
    spec = ToolSpec("f", "", schema)
    made = data.draw(st.lists(values(schema), min_size=2, max_size=4))
    order = data.draw(st.permutations(range(len(made))))
    respelt = [("f", respell(data.draw, schema, made[i])) for i in order]
    expected = calls(*[("f", value) for value in made])
    assert reward(VERIFIER, expected, calls(*respelt), spec) == 1.0
    assert reward(VERIFIER, calls(*respelt), expected, spec) == 1.0
    assert reward(VERIFIER, expected, calls(*respelt, respelt[0]), spec) == 0.0
    place = order[0]
    changed = [("f", change(data.draw, schema, made[place])), *respelt[1:]]
    assert reward(VERIFIER, expected, calls(*changed), spec) == 0.0
    assert reward(VERIFIER, calls(*changed), expected, spec) == 0.0


few = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(st.data())
def test_respelling_is_accepted(data: st.DataObject) -> None:
    check_respelling(data)


@few
@given(st.data())
def test_another_value_is_rejected(data: st.DataObject) -> None:
    check_change(data)


@few
@given(st.data())
def test_several_calls(data: st.DataObject) -> None:
    check_several(data)


@pytest.mark.slow
@many
@given(st.data())
def test_several_calls_often(data: st.DataObject) -> None:
    check_several(data)


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


KEYWORDS = [
    *("type", "properties", "required", "items", "prefixItems", "additionalProperties"),
    *("anyOf", "oneOf", "allOf", "enum", "const", "default", "format", "uniqueItems", "$ref", "x"),
]
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["string", "object", "array", "number", "#", "#/x", "date", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    ),
    max_leaves=12,
)


@few
@given(
    st.dictionaries(st.sampled_from(KEYWORDS), ODD, max_size=5),
    st.dictionaries(st.sampled_from(["x", "type"]), ODD, max_size=2),
)
def test_keywords_with_values_that_make_no_sense(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Traces hold such schemas: there is a verdict, and a selftest, and no crash."""
    spec, made = ToolSpec("f", "", schema), calls(("f", arguments))
    assert reward(VERIFIER, made, made, spec) in (0.0, 1.0)
    report = selftest([turn(made, spec)], VERIFIER, repeats=1)
    assert report.invalid == 0


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
