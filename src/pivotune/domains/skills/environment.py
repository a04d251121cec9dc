"""A skill item as an environment of one turn: the answer ends it, and is right or wrong."""

from typing import Self

from pivotune.core.errors import ReplayMismatch
from pivotune.core.protocols import OracleView, StepResult
from pivotune.core.types import Message, Task, ToolSpec, Turn
from pivotune.domains.skills.item import SkillItem
from pivotune.domains.skills.suite import check, task_item


class SkillEnvironment:
    """Plays one item at a time; `reward` is 0 until the right answer has been given."""

    def __init__(self) -> None:
        self._item: SkillItem | None = None
        self._answer: Message | None = None

    @property
    def item(self) -> SkillItem:
        """The item being played."""
        assert self._item is not None, "reset or restore first"
        return self._item

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return self.item.tools

    def reset(self, task: Task) -> tuple[Message, ...]:
        self._item, self._answer = task_item(task), None
        return self.item.messages

    def step(self, action: Message) -> StepResult:
        assert self._answer is None, "the item has been answered"
        self._answer = action
        return StepResult((), done=True)

    def clone(self) -> Self:
        twin = type(self)()
        twin._item, twin._answer = self._item, self._answer
        return twin

    def reward(self) -> float:
        return float(self._answer is not None and check(self.item, self._answer))

    def restore(self, turn: Turn) -> None:
        opening = self.reset(turn.task)
        if turn.state != opening:
            raise ReplayMismatch("the recorded question differs", where=turn.id, got=turn.state)

    def oracle(self) -> OracleView:
        done = self.reward() == 1.0
        if self._answer is not None:
            return OracleView(0 if done else None, None, ())
        return OracleView(1, self.item.answer, ())
