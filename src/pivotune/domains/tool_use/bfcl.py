"""BFCL v4's multi-turn tasks as data: questions, tools, services, the ground truth's calls.

Everything comes from the package `bfcl-eval`, which is installed without its dependencies. Its
own runner evaluates strings and keeps services in module globals; here a call is a name and
arguments, the name is one of the tools' own, and every episode has services of its own.

    pip install --no-deps bfcl-eval && pip install mpmath
"""

import ast
import copy
import inspect
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.seeds import derive_seed
from pivotune.core.types import JsonObject, Message, Task, ToolCall, ToolSpec

DOMAIN = "bfcl"
SPLITS = ("base", "train", "test")
"""All 200 tasks, or the halves of them that training and evaluation may use."""

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": ""}
_STATELESS = ("MathAPI",)


class Entry(msgspec.Struct, frozen=True):
    """One task as the package holds it; `truth[i]` are the calls that answer question i."""

    id: str
    question: tuple[tuple[Message, ...], ...]
    initial_config: JsonObject
    involved_classes: tuple[str, ...]
    truth: tuple[tuple[str, ...], ...] = ()
    excluded_function: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True):
    """A method by name with its arguments."""

    name: str
    arguments: JsonObject


def bfcl_tasks(split: str, n: int, seed: int) -> tuple[Task, ...]:
    """`n` different tasks of a split, or all of it where it has fewer."""
    names = [name for name in entries() if split in ("base", _half(name))]
    names.sort(key=lambda name: derive_seed(seed, "bfcl", name))
    return tuple(bfcl_task(name, split) for name in names[:n])


def bfcl_task(name: str, split: str = "base") -> Task:
    """The task of an entry; its group for tables is the services that it needs."""
    group = " and ".join(sorted(entries()[name].involved_classes))
    return Task(name, DOMAIN, split, {"group": group})


def find_entry(task: Task) -> Entry:
    """Raises `DataError` for a task that is none of the package's."""
    found = entries().get(task.id)
    if found is None:
        raise DataError("not a BFCL task", where=task.id, expected="multi_turn_base_0 to 199")
    return found


def _half(name: str) -> str:
    return "test" if derive_seed("bfcl half", name) % 2 else "train"


@cache
def entries() -> dict[str, Entry]:
    """All tasks by name; raises `DataError` where the package is not installed."""
    folder = _data()
    truth = {row["id"]: row["ground_truth"] for row in _rows(_answers(folder))}
    return {
        row["id"]: msgspec.convert({**row, "truth": truth[row["id"]]}, Entry)
        for row in _rows(folder / "BFCL_v4_multi_turn_base.json")
    }


def _answers(folder: Path) -> Path:
    return folder / "possible_answer" / "BFCL_v4_multi_turn_base.json"


def _data() -> Path:
    missing = [name for name in ("bfcl_eval", "mpmath") if find_spec(name) is None]
    if missing:
        raise DataError(
            f"the package {missing[0].replace('_', '-')} is not installed",
            where="the domain 'bfcl'",
            fix="pip install --no-deps bfcl-eval && pip install mpmath",
        )
    spec = find_spec("bfcl_eval")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


def _rows(path: Path) -> Iterator[JsonObject]:
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot be read: {error}", where=str(path), fix="install bfcl-eval again"
        ) from error


# Services


def make_services(entry: Entry) -> dict[str, Any]:
    """The entry's services in their first state, by class name."""
    places = import_module("bfcl_eval.constants.executable_backend_config").CLASS_FILE_PATH_MAPPING
    services = {}
    for name in entry.involved_classes:
        service = getattr(import_module(places[name]), name)()
        if name not in _STATELESS:
            service._load_scenario(copy.deepcopy(entry.initial_config.get(name, {})))
        services[name] = service
    return services


@cache
def tools_of(classes: tuple[str, ...], excluded: tuple[str, ...] = ()) -> tuple[ToolSpec, ...]:
    """The tools that the services offer, as JSON schemas."""
    files = import_module("bfcl_eval.constants.executable_backend_config")
    names = files.MULTI_TURN_FUNC_DOC_FILE_MAPPING
    return tuple(
        ToolSpec(row["name"], row["description"], _schema(row["parameters"]))
        for name in classes
        for row in _rows(_data() / "multi_turn_func_doc" / names[name])
        if row["name"] not in excluded
    )


def _schema(given: Any) -> Any:
    """The package's type names as those of JSON schema."""
    if isinstance(given, list):
        return [_schema(each) for each in given]
    if not isinstance(given, dict):
        return given
    found = {name: _schema(value) for name, value in given.items()}
    if isinstance(kind := given.get("type"), str):
        found["type"] = _TYPES.get(kind, kind)
        if not found["type"]:
            del found["type"]
    return found


def run_call(services: JsonObject, tools: Sequence[ToolSpec], call: Call) -> str:
    """Call one method of the service that has it; what it answers, or what went wrong, as text."""
    if call.name not in {tool.name for tool in tools}:
        return f"Error during execution: there is no tool {call.name}"
    service = next(each for each in services.values() if hasattr(each, call.name))
    try:
        found = getattr(service, call.name)(**call.arguments)
    except Exception as error:
        # Whatever a service raises at odd arguments is its answer to the agent.
        return f"Error during execution: {error}"
    if isinstance(found, str):
        return found
    if isinstance(found, dict):
        try:
            return json.dumps(found)
        except TypeError:
            return str(found)
    return str(found)


def true_calls(entry: Entry, turn: int, services: JsonObject) -> tuple[Call, ...]:
    """The ground truth's calls of a question; positions become names by the method's signature."""
    return tuple(_read_call(text, services) for text in entry.truth[turn])


def _read_call(text: str, services: JsonObject) -> Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    name = node.func.id
    service = next(each for each in services.values() if hasattr(each, name))
    order = list(inspect.signature(getattr(service, name)).parameters)
    placed = {order[i]: ast.literal_eval(value) for i, value in enumerate(node.args)}
    named = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    return Call(name, placed | named)


def call_message(calls: Sequence[Call]) -> Message:
    """An action that makes these calls."""
    return Message(
        "assistant",
        tool_calls=tuple(
            ToolCall(call.name, call.arguments, json.dumps(call.arguments)) for call in calls
        ),
    )
