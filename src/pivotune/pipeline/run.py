"""What every stage is handed: the folder, the recipe, something that shows progress."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pivotune.core.store import read_records
from pivotune.core.types import Trajectory, Turn
from pivotune.ingest import split_turns
from pivotune.pipeline.recipe import Method, Recipe
from pivotune.pipeline.run_folder import RunFolder

BASE = "base"
"""The name of the policy that everything starts from."""

Advance = Callable[[int], None]


class Watch(Protocol):
    """Shows what is going on."""

    def say(self, text: str) -> None:
        """One line about what was found or decided."""
        ...

    def progress(self, title: str, total: int, unit: str) -> AbstractContextManager[Advance]:
        """A bar for `total` units; call the result with the number of units just done."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """One run while a stage works on it.

    `only`: the policies (methods, or the base) that this process works on; None: all of them.
    """

    folder: RunFolder
    watch: Watch
    only: frozenset[str] | None = None

    @property
    def recipe(self) -> Recipe:
        return self.folder.recipe

    def works_on(self, policy: str) -> bool:
        return self.only is None or policy in self.only

    @property
    def methods(self) -> dict[str, Method]:
        """The recipe's methods that this process works on."""
        return {name: each for name, each in self.recipe.methods.items() if self.works_on(name)}

    def trajectories(self) -> list[Trajectory]:
        """All imported trajectories; raises `StoreError` before the import stage."""
        return list(read_records(self.folder.trajectories, Trajectory))

    def turns(self, turn_ids: Iterable[str]) -> list[Turn]:
        """The turns with these ids, in the order of the traces."""
        wanted = set(turn_ids)
        owners = {turn_id.rpartition("#")[0] for turn_id in wanted}
        return [
            turn
            for trajectory in self.trajectories()
            if trajectory.id in owners
            for turn in split_turns(trajectory)
            if turn.id in wanted
        ]
