"""Problems of reasoning-gym's generators: one question, one answer, the generator's own check.

A task names its generator, the seed and the place, and is made again from these. Problems of
"train" and "eval" come from different seeds; small generators can still draw the same problem.
Some checkers give part of a point for a near miss: here an answer is right or it is not.
"""

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.protocols import OracleView, StepResult
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Message, Task, ToolSpec, Turn

DOMAIN = "reasoning"
SPLITS = ("eval", "train")
LEFT_OUT = ("composite",)
"""Generators that only combine others."""
ASK = "Put your final answer between <answer> and </answer>."
_SEED_RANGE = 2**31


def reasoning_tasks(split: str, n: int, seed: int) -> tuple[Task, ...]:
    """`n` problems, the same number of every generator (the last ones lack a remainder)."""
    names = generators()
    each = -(-n // len(names))
    tasks = [
        _task(name, split, derive_seed(seed, "reasoning", split, name) % _SEED_RANGE, i, each)
        for name in names
        for i in range(each)
    ]
    return tuple(tasks[:n])


def generators() -> tuple[str, ...]:
    """All generators by name; raises `DataError` where the package is not installed."""
    if find_spec("reasoning_gym") is None:
        raise DataError(
            "the package reasoning-gym is not installed",
            where=f"the domain {DOMAIN!r}",
            fix="pip install 'pivotune[reasoning]'",
        )
    known = import_module("reasoning_gym.factory").DATASETS
    return tuple(sorted(set(known) - set(LEFT_OUT)))


def _task(name: str, split: str, seed: int, index: int, size: int) -> Task:
    payload = {"group": name, "seed": seed, "index": index, "size": size}
    return Task(f"{name}-{seed}-{index}", DOMAIN, split, payload)


@lru_cache(256)
def _dataset(name: str, seed: int, size: int) -> Any:
    if name not in generators():
        raise DataError("no such generator of reasoning-gym", got=name)
    return import_module("reasoning_gym").create_dataset(name, seed=seed, size=size)


class ReasoningEnvironment:
    """Asks one problem; the first answer ends it."""

    tools: tuple[ToolSpec, ...] = ()

    def __init__(self) -> None:
        self._dataset: Any = None
        self._entry: Any = None
        self._answer: str | None = None

    def reset(self, task: Task) -> tuple[Message, ...]:
        where = task.payload
        try:
            self._dataset = _dataset(where["group"], where["seed"], where["size"])
            self._entry = self._dataset[where["index"]]
        except (KeyError, IndexError, TypeError) as error:
            raise DataError("not a reasoning task", where=task.id, got=where) from error
        self._answer = None
        return (Message("user", f"{self._entry['question']}\n\n{ASK}"),)

    def step(self, action: Message) -> StepResult:
        self._answer = _final(action.content)
        return StepResult((), done=True)

    def clone(self) -> Self:
        twin = type(self)()
        twin._dataset, twin._entry, twin._answer = self._dataset, self._entry, self._answer
        return twin

    def reward(self) -> float:
        if self._answer is None:
            return 0.0
        return float(self._dataset.score_answer(self._answer, self._entry) >= 1.0)

    def restore(self, turn: Turn) -> None:
        if turn.state != self.reset(turn.task):
            raise ReplayMismatch("the recorded question differs", where=turn.id, got=turn.state)

    def oracle(self) -> OracleView | None:
        return None


def _final(text: str) -> str:
    """What stands between the last answer tags; the whole reply where there are none."""
    _, opened, rest = text.rpartition("<answer>")
    return (rest.partition("</answer>")[0] if opened else text).strip()
