"""Two JSON values under one schema: the first difference that matters, or none.

A schema is compiled lazily into `Comparator`s, one a place, which are kept; so a schema that
refers to itself is no trouble, and the second comparison costs only the walk over the values.
The rules are those of the docs' verifier page, numbered there.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec
from rapidfuzz.distance import Levenshtein

from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.types import JsonObject, ToolSpec
from pivotune.verify.matching import same_set
from pivotune.verify.shell import same_command
from pivotune.verify.strings import (
    FORMATS,
    PATH_FORMATS,
    PATH_NAMES,
    normalise,
    normalise_path,
)


class FieldRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one field differs from the usual: named by a pattern such as `*.command`.

    `compare`: "text" (the usual), "exact" (character for character), "path", "command".
    `similarity` accepts free text whose normalised edit similarity reaches it.
    """

    compare: Literal["text", "exact", "path", "command"] = "text"
    ignore_case: bool = False
    similarity: float | None = None
    unordered: bool = False


Rules = Mapping[str, FieldRule]

_MISSING: Any = object()
_USUAL = FieldRule()
_PATH = FieldRule(compare="path")
_NUMBER = re.compile(r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?\s*")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}
_MAX_UNIONS = 8
_MAX_CHILDREN = 256  # undeclared keys are not bounded in number
_MAX_REFERENCES = 32
_RELATIVE = 1e-9


class Comparator:
    """Compares values at one place of a schema. `path` is `tool.argument…`, for field rules."""

    __slots__ = (
        "_branches",
        "_children",
        "_closed",
        "_format",
        "_items",
        "_properties",
        "_root",
        "_rules",
        "_unions",
        "default",
        "enum",
        "path",
        "required",
        "rule",
        "schema",
        "types",
    )

    def __init__(
        self, schema: Any, root: JsonObject, path: str, rules: Rules, unions: int = 0
    ) -> None:
        self.schema: JsonObject = _resolve(schema, root)
        self._root, self.path, self._rules, self._unions = root, path, rules, unions
        kind = self.schema.get("type")
        self.types = frozenset(kind if isinstance(kind, list) else [kind] if kind else [])
        self.enum: list[Any] | None = _enum_of(self.schema)
        self.default: Any = self.schema.get("default", _MISSING)
        self.rule = _rule_for(path, self.schema, rules)
        self.required = tuple(self.schema.get("required") or ())
        self._properties: JsonObject = self.schema.get("properties") or {}
        self._closed = self.schema.get("additionalProperties") is False
        self._format = FORMATS.get(str(self.schema.get("format")))
        self._children: dict[str, Comparator] = {}
        self._items: Comparator | None = None
        self._branches: list[Comparator] | None = None

    def difference(self, expected: Any, actual: Any) -> str:
        """Empty when the two mean the same, else where and how they differ."""
        if self._has_unions():
            return self._in_unions(expected, actual)
        kind, other = type(expected), type(actual)
        if kind is str and other is str:
            return self._strings(expected, actual)
        if kind is dict and other is dict:
            return self._objects(expected, actual)
        if kind is list and other is list:
            return self._arrays(expected, actual)
        if kind is bool or other is bool or expected is None or actual is None:
            return "" if kind is other and expected == actual else self._say(expected, actual)
        if kind in (int, float) and other in (int, float):
            return "" if same_number(expected, actual) else self._say(expected, actual)
        return self._mixed(expected, actual)

    def equal(self, expected: Any, actual: Any) -> bool:
        return not self.difference(expected, actual)

    def _say(self, expected: Any, actual: Any) -> str:
        return f"{self.path}: expected {_brief(expected)}, got {_brief(actual)}"

    def _mixed(self, expected: Any, actual: Any) -> str:
        """A string against something else: equal only where the schema says what it stands for."""
        first, second = self._as_declared(expected), self._as_declared(actual)
        kinds = {type(first), type(second)}
        if kinds in ({dict}, {list}) or kinds <= {int, float}:
            return self.difference(first, second)
        return self._say(expected, actual)

    def _as_declared(self, value: Any) -> Any:
        """A string as the number, object or array that the schema says the field holds."""
        types = self.types - {"null"}
        if type(value) is not str or not types:
            return value
        if types <= {"number", "integer"} and _NUMBER.fullmatch(value):
            number = _read_number(value)
            return value if number is None else number
        if types <= {"object", "array"}:
            parsed = _read_container(value)
            return value if parsed is None else parsed
        return value

    def _strings(self, expected: str, actual: str) -> str:
        if expected == actual:
            return ""
        if self.enum is not None or self.rule.compare == "exact":
            return self._say(expected, actual)
        first, second = self._as_declared(expected), self._as_declared(actual)
        if type(first) is not str and type(second) is not str:
            return self._mixed(first, second)
        if self._format is not None:
            meant, got = self._format(expected), self._format(actual)
            if meant is not None and got is not None:
                return "" if meant == got else self._say(expected, actual)
        return "" if self._same_text(expected, actual) else self._say(expected, actual)

    def _same_text(self, expected: str, actual: str) -> bool:
        rule = self.rule
        if rule.compare == "command":
            return same_command(expected, actual)
        first, second = normalise(expected), normalise(actual)
        if rule.compare == "path":
            first, second = normalise_path(first), normalise_path(second)
        if rule.ignore_case:
            first, second = first.casefold(), second.casefold()
        if first == second:
            return True
        document, other = _read_container(first), _read_container(second)
        if document is not None and other is not None:
            return UNTYPED.equal(document, other)
        if rule.similarity is None:
            return False
        return bool(Levenshtein.normalized_similarity(first, second) >= rule.similarity)

    def _objects(self, expected: JsonObject, actual: JsonObject) -> str:
        for key in self.required:
            if key not in actual or key not in expected:
                return f"{self.path}.{key}: required, but missing"
        for key, value in expected.items():
            child = self._child(key)
            if key in actual:
                if problem := child.difference(value, actual[key]):
                    return problem
            elif child.default is _MISSING or child.difference(child.default, value):
                return f"{child.path}: missing, expected {_brief(value)}"
        for key, value in actual.items():
            if key in expected:
                if self._closed and key not in self._properties:
                    return f"{self.path}.{key}: unknown key"
                continue
            if key not in self._properties:
                return f"{self.path}.{key}: unknown key"
            child = self._child(key)
            if child.default is _MISSING or child.difference(child.default, value):
                return f"{child.path}: not expected, got {_brief(value)}"
        return ""

    def _arrays(self, expected: list[Any], actual: list[Any]) -> str:
        if len(expected) != len(actual):
            return f"{self.path}: expected {len(expected)} items, got {len(actual)}"
        prefix = self.schema.get("prefixItems")
        if isinstance(prefix, list) and prefix:
            return self._tuples(prefix, expected, actual)
        items = self._item()
        if self.rule.unordered or self.schema.get("uniqueItems") is True:
            same = same_set(expected, actual, items.equal)
            return "" if same else self._say(expected, actual)
        for one, other in zip(expected, actual, strict=True):
            if problem := items.difference(one, other):
                return problem
        return ""

    def _tuples(self, prefix: list[Any], expected: list[Any], actual: list[Any]) -> str:
        for position, (one, other) in enumerate(zip(expected, actual, strict=True)):
            if position < len(prefix):
                child = self._child_at(f"[{position}]", prefix[position], self.path)
            else:
                child = self._item()
            if problem := child.difference(one, other):
                return problem
        return ""

    def _item(self) -> "Comparator":
        if self._items is None:
            items = self.schema.get("items")
            self._items = Comparator(items, self._root, self.path, self._rules)
        return self._items

    def _child(self, key: str) -> "Comparator":
        child = self._children.get(key)
        if child is None:
            schema = self._properties.get(key)
            if schema is None:
                schema = self.schema.get("additionalProperties")
            child = self._child_at(key, schema, f"{self.path}.{key}")
        return child

    def _child_at(self, key: str, schema: Any, path: str) -> "Comparator":
        child = self._children.get(key)
        if child is None:
            child = Comparator(schema, self._root, path, self._rules)
            if len(self._children) < _MAX_CHILDREN:
                self._children[key] = child
        return child

    def _has_unions(self) -> bool:
        if self._branches is None:
            self._branches = self._compile_unions()
        return bool(self._branches)

    def _compile_unions(self) -> list["Comparator"]:
        choices = self.schema.get("anyOf") or self.schema.get("oneOf")
        if not isinstance(choices, list) or self._unions >= _MAX_UNIONS:
            return []
        beside = {k: v for k, v in self.schema.items() if k not in ("anyOf", "oneOf", "default")}
        return [
            Comparator(
                _merge([beside, _resolve(choice, self._root)]),
                self._root,
                self.path,
                self._rules,
                self._unions + 1,
            )
            for choice in choices
        ]

    def _in_unions(self, expected: Any, actual: Any) -> str:
        """Equal under any branch that both are of; where one is of none, by the other's branch.

        `{"kind": "x", "n": "5"}` is of the branch whose kind is x and whose n is a number.
        """
        first, second = self._branches_of(expected), self._branches_of(actual)
        both = [branch for branch in first if branch in second]
        if first and second and not both:
            return UNTYPED.difference(expected, actual) or self._say(expected, actual)
        branches = both or first or second or self._only_branch(expected, actual)
        problems = [branch.difference(expected, actual) for branch in branches]
        return "" if "" in problems else problems[0]

    def _branches_of(self, value: Any) -> list["Comparator"]:
        """Branches that admit a value as it is, else those that admit what it stands for."""
        branches = self._branches or []
        as_it_is = [branch for branch in branches if branch.admits(value)]
        return as_it_is or [branch for branch in branches if branch.admits(value, loosely=True)]

    def _only_branch(self, expected: Any, actual: Any) -> list["Comparator"]:
        """Where neither is of any branch: the one branch beside null, or no schema at all."""
        plain = [branch for branch in self._branches or () if branch.types - {"null"}]
        known = len(plain) == 1 and expected is not None and actual is not None
        return plain if known else [UNTYPED]

    def admits(self, value: Any, *, loosely: bool = False) -> bool:
        """Whether a value is of this schema's types, constants, keys and items; not its bounds.

        `loosely`: a number or a document in a string counts as what the schema says it is.
        """
        if loosely:
            value = self._as_declared(value)
        if self._has_unions():
            return any(branch.admits(value, loosely=loosely) for branch in self._branches or ())
        if self.types and not any(_is_of(kind, value) for kind in self.types):
            return False
        if self.enum is not None and not any(UNTYPED.equal(v, value) for v in self.enum):
            return False
        if isinstance(value, list) and not self.schema.get("prefixItems"):
            return all(self._item().admits(inner, loosely=loosely) for inner in value)
        if not isinstance(value, dict):
            return True
        if any(key not in value for key in self.required):
            return False
        if self._closed and not value.keys() <= self._properties.keys():
            return False
        return all(
            self._child(key).admits(inner, loosely=loosely)
            for key, inner in value.items()
            if key in self._properties
        )


def compile_tool(tool: ToolSpec, rules: Rules) -> Comparator:
    """A comparator of the tool's arguments."""
    return Comparator(tool.parameters, tool.parameters, tool.name, rules)


def same_number(expected: float, actual: float) -> bool:
    """Integers exactly, whatever their size or spelling; else to a relative 1e-9."""
    if type(expected) is int and type(actual) is int:
        return expected == actual
    try:
        one, other = float(expected), float(actual)
    except OverflowError:  # an integer beyond every float is no float
        return False
    if not (math.isfinite(one) and math.isfinite(other)):
        return False
    if one.is_integer() and other.is_integer():
        return int(expected) == int(actual)
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=0.0)


def _read_number(text: str) -> int | float | None:
    """None for more digits than Python converts."""
    stripped = text.strip()
    try:
        return float(stripped) if set(stripped) & set(".eE") else int(stripped)
    except ValueError:
        return None


def _read_container(text: str) -> Any:
    """The object or array that a string holds; None where it holds none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return parse_json(text)
    except JsonProblemError:
        return None


def _resolve(schema: Any, root: JsonObject) -> JsonObject:
    """Follow local references and merge `allOf`; what cannot be followed says nothing."""
    sound = _sound(schema)
    for _ in range(_MAX_REFERENCES):
        reference = sound.get("$ref")
        if reference is None:
            break
        beside = {key: value for key, value in sound.items() if key != "$ref"}
        sound = _merge([_sound(_find(reference, root)), beside])
    else:
        return {}
    parts = [_sound(part) for part in sound.get("allOf", ())]
    if not parts:
        return sound
    beside = {key: value for key, value in sound.items() if key != "allOf"}
    found = [_sound(_find(p["$ref"], root)) if "$ref" in p else p for p in parts]
    return _merge([*(part for part in found if "allOf" not in part), beside])


def _sound(schema: Any) -> JsonObject:
    """The keywords whose values are of the kind that they must be; others say nothing."""
    if not isinstance(schema, dict):
        return {}
    return {k: v for k, v in schema.items() if k not in _KEYWORDS or _KEYWORDS[k](v)}


def _find(reference: str, root: JsonObject) -> JsonObject:
    """The schema at a local reference such as `#/$defs/x`."""
    if not reference.startswith("#"):
        return {}
    place: Any = root
    for name in reference[1:].split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, dict) else None
    return place if isinstance(place, dict) else {}


def _merge(parts: Sequence[JsonObject]) -> JsonObject:
    """Keywords of all parts; properties and required names are united."""
    merged: JsonObject = {}
    for part in parts:
        for key, value in part.items():
            if key == "properties" and isinstance(value, dict):
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required" and isinstance(value, list):
                merged[key] = [*merged.get(key, []), *value]
            else:
                merged[key] = value
    return merged


def _enum_of(schema: JsonObject) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _rule_for(path: str, schema: JsonObject, rules: Rules) -> FieldRule:
    for pattern, rule in rules.items():
        if fnmatchcase(path, pattern):
            return rule
    if schema.get("format") in PATH_FORMATS or path.rpartition(".")[2] in PATH_NAMES:
        return _PATH
    return _USUAL


def _is_of(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return type(value) is bool
    if type(value) is bool:
        return False
    if kind == "integer" and type(value) is float:
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


_KEYWORDS: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: isinstance(value, str) or _is_texts(value),
    "required": _is_texts,
    "properties": lambda value: isinstance(value, dict),
    "enum": _is_list,
    "anyOf": _is_list,
    "oneOf": _is_list,
    "allOf": _is_list,
    "prefixItems": _is_list,
    "format": lambda value: isinstance(value, str),
    "$ref": lambda value: isinstance(value, str),
}

UNTYPED = Comparator({}, {}, "value", {})
