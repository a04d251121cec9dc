"""Which dialect a row is of: asked by shape, in order, the most telling shapes first."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pivotune.core.errors import DataError
from pivotune.core.types import Trajectory
from pivotune.ingest import household_expert, openai_chat
from pivotune.ingest.messages import Draft, RefusalError


class Dialect(NamedTuple):
    """`recognise` says why a row is of the dialect, or nothing; `convert` may refuse the row."""

    recognise: Callable[[Any], str]
    convert: Callable[[Any, Draft], list[Trajectory]]


DIALECTS: dict[str, Dialect] = {
    "household_expert": Dialect(household_expert.recognise, household_expert.convert),
    "openai_chat": Dialect(openai_chat.recognise, openai_chat.convert),
}


def detect_dialect(row: Any) -> tuple[str, str]:
    """Name of the dialect and why. Raises `RefusalError` when no dialect knows the shape."""
    for name, dialect in DIALECTS.items():
        if why := dialect.recognise(row):
            return name, why
    if isinstance(row, dict):
        shape = f"an object with the keys {', '.join(sorted(map(str, row))[:12]) or '(none)'}"
    else:
        shape = f"a {type(row).__name__}, not an object"
    raise RefusalError("shape of no known dialect", shape)


def find_dialect(name: str) -> Dialect:
    """Raises `DataError` for a name that is not in `DIALECTS`."""
    if name not in DIALECTS:
        raise DataError("unknown dialect", got=name, expected=f"one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
