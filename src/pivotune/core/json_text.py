"""JSON text read without forgiveness: what a lenient parser would quietly change is an error.

The standard parser keeps the last of two equal keys, accepts `NaN`, turns `1e999` into infinity
and lets lone surrogates through; none of these survives being written again as the same value.
"""

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 64


class JsonProblemError(ValueError):
    """Says in a few words what is wrong with a JSON text."""


def parse_json(text: str) -> Any:
    """Raises `JsonProblemError`: broken, duplicate key, non-finite, glued values, too deep."""
    try:
        value = DECODER.decode(text)
    except JsonProblemError:
        raise
    except json.JSONDecodeError as error:
        raise JsonProblemError(_describe(error)) from None
    except RecursionError:
        raise JsonProblemError(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise JsonProblemError(str(error)) from None
    check_depth(value, text.count("{") + text.count("["))
    if "\\ud" in text or "\\uD" in text:
        check_surrogates(value)
    return value


def check_depth(value: Any, at_most: int | None = None) -> None:
    """Raises `JsonProblemError` for nesting beyond `MAX_DEPTH`; `at_most` is a known bound."""
    if at_most is not None and at_most <= MAX_DEPTH:
        return
    level, depth = [value], 0
    while containers := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        if depth > MAX_DEPTH:
            raise JsonProblemError(f"nested deeper than {MAX_DEPTH} levels")
        level = [
            child
            for item in containers
            for child in (item.values() if isinstance(item, dict) else item)
        ]


def check_surrogates(value: Any) -> None:
    """Raises `JsonProblemError` for text that cannot be written as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise JsonProblemError("half of a surrogate pair: not Unicode text") from None


def _describe(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "more text after the first JSON value"
    return f"{error.msg} (line {error.lineno}, column {error.colno})"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonProblemError(f"duplicate key {key!r}")
            seen.add(key)
    return value


def _constant(name: str) -> NoReturn:
    raise JsonProblemError(f"non-finite number {name}")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonProblemError(f"number out of range {text[:40]}")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
