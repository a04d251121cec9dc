"""Which dialect a row is of: asked by shape, in order, the most telling shapes first."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pivotune.core.errors import DataError
from pivotune.core.types import Trajectory
from pivotune.ingest import (
    atif,
    hermes,
    household_expert,
    nemo_gym,
    openai_chat,
    openai_responses,
    react_text,
    sharegpt,
    swe_agent,
    tau_bench,
)
from pivotune.ingest.messages import Draft, RefusalError


class Dialect(NamedTuple):
    """`recognise` says why a row is of the dialect, or nothing; `convert` may refuse the row."""

    recognise: Callable[[Any], str]
    convert: Callable[[Any, Draft], list[Trajectory]]


DIALECTS: dict[str, Dialect] = {
    "household_expert": Dialect(household_expert.recognise, household_expert.convert),
    "nemo_gym": Dialect(nemo_gym.recognise, nemo_gym.convert),
    "openai_responses": Dialect(openai_responses.recognise, openai_responses.convert),
    "tau_bench": Dialect(tau_bench.recognise, tau_bench.convert),
    "swe_agent": Dialect(swe_agent.recognise, swe_agent.convert),
    "atif": Dialect(atif.recognise, atif.convert),
    "sharegpt": Dialect(sharegpt.recognise, sharegpt.convert),
    "hermes": Dialect(hermes.recognise, hermes.convert),
    "react_text": Dialect(react_text.recognise, react_text.convert),
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
