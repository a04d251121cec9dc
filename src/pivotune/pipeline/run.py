"""What every stage is handed: the folder, the recipe, something that shows progress."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pivotune.core.store import read_records
from pivotune.core.types import Trajectory, Turn
from pivotune.ingest import split_turns
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run_folder import RunFolder

Advance = Callable[[int], None]


class Watch(Protocol):
    """Shows what is going on; `Silent` shows nothing."""

    def say(self, text: str) -> None:
        """One line about what was found or decided."""
        ...

    def progress(self, title: str, total: int, unit: str) -> AbstractContextManager[Advance]:
        """A bar for `total` units; call the result with the number of units just done."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """One run while a stage works on it."""

    folder: RunFolder
    watch: Watch

    @property
    def recipe(self) -> Recipe:
        return self.folder.recipe

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
