"""TOML and `key=value` overrides into a frozen struct; an unknown key names the nearest one."""

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pivotune.core.errors import RecipeError

T = TypeVar("T", bound=msgspec.Struct)


def load_config(kind: type[T], path: Path | None, overrides: Sequence[str] = ()) -> T:
    """Read `path` (or start from the defaults), apply `a.b=value` overrides, check, freeze.

    Raises `RecipeError` naming the file and the key.
    """
    where = str(path) if path else "the command line"
    data = _read_toml(path) if path else {}
    for override in overrides:
        _apply(data, override)
    check_keys(kind, data, where)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise RecipeError(str(error), where=where, fix="see the recipe page of the docs") from error


def encode_config(config: msgspec.Struct) -> bytes:
    """TOML that `load_config` reads back; a key without a value (None) is left out."""
    return msgspec.toml.encode(_valued(msgspec.to_builtins(config)))


def _valued(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _valued(each) for key, each in value.items() if each is not None}
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError("recipe not found", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"not a TOML file: {error}", where=str(path)) from error
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _apply(data: dict[str, Any], override: str) -> None:
    key, found, text = override.partition("=")
    if not found or not key.strip():
        raise RecipeError("not an override", got=override, expected="key=value or table.key=value")
    *tables, last = key.strip().split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise RecipeError(f"{table} is a value, not a table", got=override)
    data[last] = _parse_value(text.strip())


def _parse_value(text: str) -> Any:
    """A TOML value where it parses as one, else the bare text (`model=lab` needs no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def check_keys(kind: type[msgspec.Struct], data: dict[str, Any], where: str) -> None:
    """Raise `RecipeError` for the first key that `kind` does not have, naming the nearest."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in data.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)
            raise RecipeError(
                f"unknown key {key!r}",
                where=where,
                expected=f"one of {', '.join(fields)}",
                fix=f"did you mean {near[0]!r}?" if near else None,
            )
        inner = fields[key]
        if (
            isinstance(value, dict)
            and isinstance(inner, type)
            and issubclass(inner, msgspec.Struct)
        ):
            check_keys(inner, value, f"{where} [{key}]")
