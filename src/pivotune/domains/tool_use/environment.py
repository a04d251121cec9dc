"""A BFCL multi-turn task being played: a person asks, the agent calls tools, then answers.

    question 1 -> calls, results, calls, … -> an answer in words -> question 2 -> …

An answer without a call ends the agent's turn. Then the services must stand as the ground
truth's stand after its own calls, and everything that those calls returned must have been
returned to the agent, now or before (BFCL's state and response checks). The outcome is 1 when
all turns pass, else 0.
"""

import copy
from typing import Any, Self

from pivotune.core.errors import ReplayMismatch
from pivotune.core.protocols import OracleView, StepResult
from pivotune.core.types import JsonObject, Message, Task, ToolSpec, Trajectory, Turn
from pivotune.domains.tool_use.bfcl import (
    Call,
    Entry,
    bfcl_tasks,
    call_message,
    find_entry,
    make_services,
    run_call,
    tools_of,
    true_calls,
)

DONE = "Done."
"""What the expert says when it has made its calls."""


class BfclEnvironment:
    """Plays one task at a time; a turn that fails leaves the outcome 0 whatever follows."""

    def __init__(self) -> None:
        self._entry: Entry | None = None
        self._services: JsonObject = {}
        self._truth: JsonObject = {}
        self._answers: list[str] = []
        self._turn = 0
        self._called = False
        self._failed = False

    @property
    def entry(self) -> Entry:
        """The task being played."""
        assert self._entry is not None, "reset or restore first"
        return self._entry

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tools_of(self.entry.involved_classes, self.entry.excluded_function)

    def reset(self, task: Task) -> tuple[Message, ...]:
        self._entry = find_entry(task)
        self._services, self._truth = make_services(self._entry), make_services(self._entry)
        self._answers, self._turn, self._called, self._failed = [], 0, False, False
        return self._entry.question[0]

    def step(self, action: Message) -> StepResult:
        if action.tool_calls:
            return StepResult(tuple(self._call(action)), done=False)
        self._check_turn()
        self._turn += 1
        self._called = False
        done = self._turn == len(self.entry.question)
        return StepResult(() if done else self.entry.question[self._turn], done=done)

    def _call(self, action: Message) -> list[Message]:
        replies = []
        for each in action.tool_calls:
            answer = (
                "Error during execution: the arguments are not a JSON object"
                if each.arguments is None
                else run_call(self._services, self.tools, Call(each.name, each.arguments))
            )
            self._answers.append(answer)
            self._called = True
            replies.append(Message("tool", answer, tool_call_id=each.id, name=each.name))
        return replies

    def _check_turn(self) -> None:
        """BFCL's checks after a question, against services that the ground truth drives."""
        calls = true_calls(self.entry, self._turn, self._truth)
        every_tool = tools_of(self.entry.involved_classes)
        wanted = [run_call(self._truth, every_tool, call) for call in calls]
        if not calls:
            return
        left = list(self._answers)
        for answer in wanted:
            if answer not in left:
                self._failed = True
                return
            left.remove(answer)
        if not self._called or not _same_state(self._services, self._truth):
            self._failed = True

    def clone(self) -> Self:
        twin = type(self)()
        twin._entry = self._entry
        twin._services, twin._truth = copy.deepcopy((self._services, self._truth))
        twin._answers = list(self._answers)
        twin._turn, twin._called, twin._failed = self._turn, self._called, self._failed
        return twin

    def reward(self) -> float:
        return float(self._turn == len(self.entry.question) and not self._failed)

    def restore(self, turn: Turn) -> None:
        history = list(self.reset(turn.task))
        if tuple(history) != turn.state[: len(history)]:
            raise ReplayMismatch("the recorded question differs", where=turn.id)
        while len(history) < len(turn.state):
            action = turn.state[len(history)]
            history += [action, *self.step(action).replies]
            given, wanted = _texts(history), _texts(turn.state[: len(history)])
            if given != wanted:
                raise ReplayMismatch(
                    "a replayed answer differs", where=turn.id, got=str(given[-1:]), expected=""
                )

    def oracle(self) -> OracleView | None:
        return None

    def snapshot(self) -> JsonObject:
        """The state of every service, and how far the conversation is."""
        state = {name: _plain(vars(service)) for name, service in self._services.items()}
        return {"services": state, "turn": self._turn, "failed": self._failed}


def _texts(messages: Any) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


def _same_state(ours: JsonObject, theirs: JsonObject) -> bool:
    return all(
        getattr(ours[name], key) == value
        for name, service in theirs.items()
        for key, value in vars(service).items()
        if not key.startswith("_")
    )


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A service's attributes as plain values; links back to what contains them are left out."""
    if id(value) in above:
        return "…"
    inner = (*above, id(value))
    if isinstance(value, dict):
        return {str(key): _plain(each, inner) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(each, inner) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if hasattr(value, "__dict__"):
        shown = {key: each for key, each in vars(value).items() if key != "parent"}
        return _plain(shown, inner)
    return str(value)


def record_truth(task: Task) -> Trajectory:
    """The ground truth played as an expert: its calls, their results, then a word."""
    environment = BfclEnvironment()
    messages = list(environment.reset(task))
    done = False
    while not done:
        # The truth's own services are not driven yet, and signatures do not change.
        calls = true_calls(environment.entry, environment._turn, environment._services)
        actions = [call_message([call]) for call in calls] + [Message("assistant", DONE)]
        for action in actions:
            result = environment.step(action)
            messages += [action, *result.replies]
            done = result.done
    return Trajectory(
        task.id, task.domain, task, environment.tools, tuple(messages), environment.reward()
    )


def truth_trajectories(n: int, seed: int) -> list[Trajectory]:
    """Expert traces of the training half."""
    return [record_truth(task) for task in bfcl_tasks("train", n, seed)]
