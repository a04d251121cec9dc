"""A run folder: where each stage's files lie, and which stages are finished.

    recipe.toml        the recipe as it was used, defaults written out
    stages.json        stage -> the settings it ran under, and whether it is finished
    trajectories.jsonl import.json
    plan.json          pilot/
    warm/              the warm start's training and, in warm/final, the base that came out
    profiles/VERIFIER.jsonl      pivots/VERIFIER-RULE.json
    checkpoints/METHOD/          metrics/METHOD.jsonl
    evaluations/POLICY/SUITE.jsonl
    tallies/POLICY/SUITE.jsonl   many rollouts of each task, where the recipe asks for a tax
    recovery/                    states after mistakes, replays of them, where it is asked for
    costs.json summary.json report.html

A stage that is finished under the same settings is skipped. A stage found under other settings
is an error, never silently mixed or redone. Several processes may work on one folder, each on
policies of its own.
"""

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.config import encode_config
from pivotune.core.errors import RecipeError, StoreError
from pivotune.core.store import locked, read_json, write_atomic, write_json
from pivotune.core.types import Cost, content_hash
from pivotune.pipeline.recipe import Recipe

STAGES = (
    "import",
    "warm",
    "plan",
    "profile",
    "select",
    "train",
    "evaluate",
    "tax",
    "recovery",
    "report",
)
_OUTPUTS = {
    "import": ("trajectories.jsonl", "import.json"),
    "warm": ("warm",),
    "plan": ("plan.json", "pilot"),
    "profile": ("profiles",),
    "select": ("pivots",),
    "train": ("checkpoints", "metrics"),
    "evaluate": ("evaluations",),
    "tax": ("tallies",),
    "recovery": ("recovery",),
    "report": ("report.html", "summary.json", "costs.json"),
}


class StageMark(msgspec.Struct, frozen=True):
    """Under which settings a stage (or a part of one) was started, and whether it finished."""

    settings: str
    done: bool
    cost: Cost = Cost()


class RunFolder:
    """Opens or creates the folder; stage marks are written through at once."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        self.recipe = recipe
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot be created: {error.strerror}", where=str(path)) from error
        self._marks_path = path / "stages.json"
        self.marks = self._read_marks()
        written, text = path / "recipe.toml", encode_config(recipe)
        if not written.exists() or written.read_bytes() != text:
            write_atomic(written, text)

    def begin(self, stage: str, settings: Any, *, cheap: bool = False) -> bool:
        """Whether the stage (or `stage/part`) still has work to do under these settings.

        A `cheap` stage, on which no other is built, is simply done again under new settings.
        """
        key = content_hash(settings)
        mark = self.marks.get(stage)
        if mark is None or (cheap and mark.settings != key):
            spent = mark.cost if mark is not None else Cost()
            self._mark(stage, StageMark(key, done=False, cost=spent))
            return True
        if mark.settings != key:
            root = stage.partition("/")[0]
            raise RecipeError(
                f"the stage {stage!r} of this run was made under other settings",
                where=str(self.path),
                fix=f"use another run folder, or add --redo {root} to drop it and what follows",
            )
        return not mark.done

    def finish(self, stage: str, cost: Cost = Cost()) -> None:  # noqa: B008  (frozen)
        """Mark as done, with what it cost besides what earlier times of a cheap stage did."""
        mark = self.marks[stage]
        self._mark(stage, StageMark(mark.settings, done=True, cost=mark.cost + cost))

    def settings(self, stage: str) -> str:
        """The hash under which a stage ran, to be part of the settings of the next."""
        if stage not in self.marks:
            raise StoreError(
                f"the stage {stage!r} has not run", where=str(self.path), fix=f"run {stage} first"
            )
        return self.marks[stage].settings

    def redo(self, stage: str) -> None:
        """Drop a stage's output and everything after it."""
        if stage not in STAGES:
            raise RecipeError("no such stage", got=stage, expected=", ".join(STAGES))
        for later in STAGES[STAGES.index(stage) :]:
            for name in _OUTPUTS[later]:
                target = self.path / name
                if target.is_dir():
                    shutil.rmtree(target)
                else:
                    target.unlink(missing_ok=True)
            for key in [k for k in self.marks if k.partition("/")[0] == later]:
                del self.marks[key]
        with self._lock():
            write_json(self._marks_path, self.marks)

    def _mark(self, stage: str, mark: StageMark) -> None:
        with self._lock():
            self.marks = self._read_marks() | {stage: mark}
            write_json(self._marks_path, self.marks)

    def _read_marks(self) -> dict[str, StageMark]:
        if not self._marks_path.exists():
            return {}
        return read_json(self._marks_path, dict[str, StageMark])

    def _lock(self) -> AbstractContextManager[int]:
        return locked(self.path / ".stages.lock")

    @property
    def trajectories(self) -> Path:
        return self.path / "trajectories.jsonl"

    @property
    def warm_start(self) -> Path:
        return self.path / "warm"

    @property
    def pilot(self) -> Path:
        """The samples of the preflight under its present settings."""
        return self.path / "pilot" / f"{self.settings('plan')}.jsonl"

    @property
    def recovery(self) -> Path:
        return self.path / "recovery"

    def profiles(self, verifier: str) -> Path:
        return self.path / "profiles" / f"{verifier}.jsonl"

    def pivots(self, verifier: str, rule: str) -> Path:
        return self.path / "pivots" / f"{verifier}-{rule}.json"

    def checkpoints(self, method: str) -> Path:
        return self.path / "checkpoints" / method

    def tallies(self, policy: str, suite: str) -> Path:
        return self.path / "tallies" / policy / f"{suite.replace(':', '-')}.jsonl"

    def outcomes(self, policy: str, suite: str) -> Path:
        return self.path / "evaluations" / policy / f"{suite.replace(':', '-')}.jsonl"
