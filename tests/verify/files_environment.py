"""A small environment of files, for verifiers that execute: `write`, `append`, `remove`, `list`."""

from typing import Any, Self

from pivotune.core.protocols import StepResult
from pivotune.core.types import Message, Task, ToolSpec, Turn


class FilesEnvironment:
    """Done when a file named `done` is there; the outcome is whether `a` holds "1"."""

    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, files: dict[str, str] | None = None) -> None:
        self.files = dict(files or {})

    def reset(self, task: Task) -> tuple[Message, ...]:
        self.files = {}
        return (Message("user", "Make the files."),)

    def step(self, action: Message) -> StepResult:
        replies = tuple(
            Message("tool", self._carry_out(c.name, c.arguments or {})) for c in action.tool_calls
        )
        return StepResult(replies or (Message("user", "?"),), "done" in self.files)

    def _carry_out(self, name: str, given: dict[str, Any]) -> str:
        path = given.get("path", "")
        if name == "list":
            return " ".join(sorted(self.files))
        if name == "remove":
            return "ok" if self.files.pop(path, None) is not None else "no such file"
        if name == "crash":
            raise OSError("the sandbox is gone")
        before = self.files.get(path, "") if name == "append" else ""
        self.files[path] = before + given["text"]
        return "ok"

    def clone(self) -> Self:
        return type(self)(self.files)

    def reward(self) -> float:
        return float(self.files.get("a") == "1")

    def restore(self, turn: Turn) -> None:
        self.reset(turn.task)

    def oracle(self) -> None:
        return None

    def snapshot(self) -> dict[str, Any]:
        return {"files": dict(self.files)}
