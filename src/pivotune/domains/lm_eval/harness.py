"""One question, one answer, scored by an lm-eval task's own filters and metric.

A suite is `lm_eval:TASK`. Tasks are answered in words (`generate_until`) or by the likeliest of
given answers (`multiple_choice`, by its accuracy). Questions are asked without examples
(zero-shot) through the model's own prompts; a choice is what the assistant would say, without
the delimiter that a text model needs. A task's data come from where lm-eval gets
them, as a rule the Hugging Face hub; `PIVOTUNE_LM_EVAL_TASKS` names a folder of task files of
one's own.
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.protocols import OracleView, StepResult
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Message, Task, ToolSpec, Turn

DOMAIN = "lm_eval"
FOLDER_VARIABLE = "PIVOTUNE_LM_EVAL_TASKS"
METRICS = ("exact_match", "acc", "f1", "em")
"""What counts as the outcome, the first that a task has; else its first number."""
CHOICE_METRICS = ("acc", "acc_norm", "acc_bytes")
"""The same for multiple choice: by log-probability, or by that of a character or byte."""
WORDS, CHOICE = "generate_until", "multiple_choice"


def lm_eval_tasks(split: str, n: int, seed: int) -> tuple[Task, ...]:
    """`n` different questions of the task named `split`, or all where it has fewer."""
    count = len(_documents(split))
    kind = {"kind": CHOICE} if _load(split).OUTPUT_TYPE == CHOICE else {}
    places = sorted(range(count), key=lambda i: derive_seed(seed, DOMAIN, split, i))[:n]
    return tuple(
        Task(f"{split}-{i}", DOMAIN, split, {"group": split, "index": i, **kind}) for i in places
    )


def lm_eval_environment(task: Task) -> "LmEvalEnvironment":
    """The environment that fits how a task is answered."""
    return LmEvalChoices() if task.payload.get("kind") == CHOICE else LmEvalEnvironment()


@lru_cache(8)
def _load(name: str) -> Any:
    """The task object; raises `DataError` for what cannot be had or played."""
    if find_spec("lm_eval") is None:
        raise DataError(
            "the package lm-eval is not installed",
            where=f"the suite {DOMAIN}:{name}",
            fix="pip install 'pivotune[lm-eval]'",
        )
    tasks = import_module("lm_eval.tasks")
    manager = tasks.TaskManager(include_path=os.environ.get(FOLDER_VARIABLE))
    if name not in manager.all_tasks:
        raise DataError("no such task of lm-eval", got=name, fix="`lm-eval ls tasks` names them")
    try:
        found = manager.load([name])["tasks"].get(name)
    except Exception as error:
        # Loaders of data sets raise whatever their own libraries raise.
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"the task's data cannot be had: {first}",
            where=f"{DOMAIN}:{name}",
            fix="download them once where there is a network (HF_HOME keeps them)",
        ) from error
    kind = getattr(found, "OUTPUT_TYPE", "a group of tasks")
    if kind not in (WORDS, CHOICE):
        raise DataError(
            "this task is answered neither in words nor by choice",
            where=f"{DOMAIN}:{name}",
            got=str(kind),
            expected=f"{WORDS} or {CHOICE}",
        )
    if kind == CHOICE:
        _check_choices(name, found)
    return found


def _check_choices(name: str, found: Any) -> None:
    """Only choices that are answers to one question, scored by what they cost alone."""
    metrics = list(found._metric_fn_list)
    if found.multiple_input or "acc_mutual_info" in metrics:
        raise DataError(
            "this task's choices cannot be asked in a conversation",
            where=f"{DOMAIN}:{name}",
            got="several questions for one answer" if found.multiple_input else "acc_mutual_info",
            expected="one question and several answers",
        )
    if not set(metrics) & set(CHOICE_METRICS):
        raise DataError(
            "this task has no accuracy among its metrics",
            where=f"{DOMAIN}:{name}",
            got=", ".join(metrics),
            expected=f"one of {', '.join(CHOICE_METRICS)}",
        )


@lru_cache(8)
def _documents(name: str) -> list[Any]:
    return list(_load(name).eval_docs)


class LmEvalEnvironment:
    """Asks one question; the first answer ends it."""

    tools: tuple[ToolSpec, ...] = ()

    def __init__(self) -> None:
        self._task: Any = None
        self._document: Any = None
        self._answer: str | None = None

    def reset(self, task: Task) -> tuple[Message, ...]:
        name, index = task.payload.get("group"), task.payload.get("index")
        if not isinstance(name, str) or not isinstance(index, int):
            raise DataError("not an lm-eval question", where=task.id, got=task.payload)
        documents = _documents(name)
        if not 0 <= index < len(documents):
            raise DataError("no such question", where=task.id, got=index)
        self._task, self._document, self._answer = _load(name), documents[index], None
        said = self._task.config.description or ""
        return (Message("user", f"{said}{self._task.doc_to_text(self._document)}"),)

    def step(self, action: Message) -> StepResult:
        self._answer = action.content
        return StepResult((), done=True)

    def clone(self) -> Self:
        twin = type(self)()
        twin._task, twin._document, twin._answer = self._task, self._document, self._answer
        return twin

    def reward(self) -> float:
        return 0.0 if self._answer is None else _score(self._task, self._document, self._answer)

    def restore(self, turn: Turn) -> None:
        if turn.state != self.reset(turn.task):
            raise ReplayMismatch("the recorded question differs", where=turn.id, got=turn.state)

    def oracle(self) -> OracleView | None:
        return None


class LmEvalChoices(LmEvalEnvironment):
    """Asks one question; the likeliest of its answers ends it."""

    def __init__(self) -> None:
        super().__init__()
        self._outcome = 0.0

    def choices(self) -> tuple[Message, ...]:
        texts = self._task.doc_to_choice(self._document)
        return tuple(Message("assistant", text) for text in texts)

    def choose(self, logprobs: Sequence[float]) -> None:
        # Whether a choice is also the greedy answer is not asked for.
        pairs = [(each, False) for each in logprobs]
        found = self._task.process_results(self._document, pairs)
        self._outcome = next(float(found[name]) for name in CHOICE_METRICS if name in found)

    def step(self, action: Message) -> StepResult:
        raise DataError("this question is answered by log-probabilities", got=action.content)

    def clone(self) -> Self:
        twin = super().clone()
        twin._outcome = self._outcome
        return twin

    def reward(self) -> float:
        return self._outcome


def _score(task: Any, document: Any, answer: str) -> float:
    """The task's metric in [0, 1] after its own stops and its first filter."""
    for stop in task.config.generation_kwargs.get("until", []):
        answer = answer.partition(stop)[0] if stop else answer
    instance = import_module("lm_eval.api.instance").Instance(
        request_type="generate_until", doc=document, arguments=("", {}), idx=0
    )
    instance.resps = [answer]
    for each in task._filters:
        each.apply([instance])
    filtered = next(iter(instance.filtered_resps.values()), answer)
    found = task.process_results(document, [filtered])
    numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
    for name in METRICS:
        if name in numbers:
            return float(numbers[name])
    return float(next(iter(numbers.values()), 0.0))
