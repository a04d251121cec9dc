"""An index over a run's turns and tasks, so that any page of them is a few reads of small rows.

In: the run folder. Out: `view.sqlite` beside it, one row a turn (where its profile and its
trajectory begin, and the figures that lists are made of), one row a played task and policy.
Texts stay in the run folder's own files. The index is made again when those have changed.

    turns(row, id, trajectory, depth, kind, action, task, searched, n, mean, spread, results, pivot,
          profile_at, trace_at)
    tasks(suite, policy, task, c, n)
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from pivotune.core.errors import StoreError
from pivotune.core.store import read_records
from pivotune.core.types import Profile, Trajectory, Turn
from pivotune.evaluate.suites import Outcome
from pivotune.ingest import split_turns
from pivotune.pipeline.profiling import read_selection, wanted_selections
from pivotune.pipeline.run import Run
from pivotune.report.actions import action_kind, action_text
from pivotune.report.text import show_line
from pivotune.turns.pivots import reward_stats

T = TypeVar("T")

VERSION = 2
SEARCHED = 300
"""Characters at either end of a task's opening message that a search looks at."""

Class = Literal["all", "pivots", "mixed", "fail", "pass", "unprofiled"]
CLASSES: dict[Class, str] = {
    "all": "1",
    "pivots": "pivot = 1",
    "mixed": "results = 'mixed'",
    "fail": "results = 'fail'",
    "pass": "results = 'pass'",
    "unprofiled": "results = ''",
}
Order = Literal["trace", "low", "high", "spread", "depth"]
ORDERS: dict[Order, str] = {
    "trace": "row",
    "low": "mean IS NULL, mean, row",
    "high": "mean DESC, row",
    "spread": "spread DESC, row",
    "depth": "depth, row",
}

_TABLES = """
CREATE TABLE about (key TEXT);
CREATE TABLE turns (
    row INTEGER PRIMARY KEY, id TEXT UNIQUE, trajectory INTEGER, depth INTEGER, kind TEXT,
    action TEXT, task TEXT, searched TEXT, n INTEGER, mean REAL, spread REAL,
    results TEXT DEFAULT '', pivot INTEGER DEFAULT 0, profile_at INTEGER, trace_at INTEGER
);
CREATE TABLE tasks (suite TEXT, policy TEXT, task TEXT, c INTEGER, n INTEGER);
"""
_INDEXES = """
CREATE INDEX by_trajectory ON turns (trajectory, depth);
CREATE INDEX by_low ON turns (mean IS NULL, mean, row, pivot, results);
CREATE INDEX by_high ON turns (mean DESC, row, pivot, results);
CREATE INDEX by_spread ON turns (spread DESC, row, pivot, results);
CREATE INDEX by_depth ON turns (depth, row, pivot, results);
CREATE INDEX by_task ON tasks (suite, task);
"""


class TurnRow(msgspec.Struct, frozen=True):
    """A turn as lists show it; `mean` is None where it was not profiled."""

    row: int
    id: str
    trajectory: int
    depth: int
    kind: str
    action: str
    task: str
    n: int | None
    mean: float | None
    results: str
    pivot: int


class TurnQuery(msgspec.Struct, frozen=True):
    """Which turns, in which order. Every word of `text` has to be in the turn's id, its action
    or the opening message of its task; `trajectory` counts from 1, 0 is any."""

    text: str = ""
    shown: Class = "all"
    order: Order = "trace"
    kind: str = ""
    trajectory: int = 0


class TaskRow(msgspec.Struct, frozen=True):
    """A task of a suite with (successes, rollouts) by policy."""

    task: str
    counts: dict[str, tuple[int, int]]


class Slice(msgspec.Struct, frozen=True):
    """Turns that have a kind of action or a depth in common."""

    name: str
    turns: int
    mixed: int
    pivots: int


class _Rewarded(msgspec.Struct, frozen=True, gc=False):
    reward: float | None


class _Judged(msgspec.Struct, frozen=True, gc=False):
    verdict: _Rewarded


class _Head(msgspec.Struct, frozen=True, gc=False):
    turn_id: str
    samples: tuple[_Judged, ...]


class TurnIndex:
    """Reads pages of turns and tasks; opened once, used by one thread at a time."""

    def __init__(self, run: Run, path: Path) -> None:
        self._run = run
        self._verifier = wanted_selections(run)[0][0]
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute("PRAGMA query_only = 1")
        self._found: dict[TurnQuery, list[int]] = {}

    def close(self) -> None:
        self._database.close()

    def find(self, query: TurnQuery, first: int, count: int) -> tuple[list[TurnRow], int]:
        """One page of the turns that a query finds, and how many there are in all."""
        rows = self._rows(query)
        wanted = rows[first : first + count]
        marks = ",".join("?" * len(wanted))
        found = {
            each[0]: TurnRow(*each)
            for each in self._database.execute(
                "SELECT row, id, trajectory, depth, kind, action, task, n, mean, results, pivot "
                f"FROM turns WHERE row IN ({marks})",
                wanted,
            )
        }
        return [found[row] for row in wanted], len(rows)

    def _rows(self, query: TurnQuery) -> list[int]:
        """Row numbers of all turns that are found: kept for the last few queries."""
        if query not in self._found:
            conditions: list[str] = [CLASSES[query.shown]]
            values: list[str | int] = []
            for column in ("kind", "trajectory"):
                if value := getattr(query, column):
                    conditions.append(f"{column} = ?")
                    values.append(value)
            for word in query.text.casefold().split():
                conditions.append("instr(searched, ?) > 0")
                values.append(word)
            statement = (
                f"SELECT row FROM turns WHERE {' AND '.join(conditions)} "
                f"ORDER BY {ORDERS[query.order]}"
            )
            while len(self._found) >= 8:
                self._found.pop(next(iter(self._found)))
            self._found[query] = [row for (row,) in self._database.execute(statement, values)]
        return self._found[query]

    def read_turn(self, row: int) -> tuple[Turn, Profile | None, bool] | None:
        """A turn, its profile where there is one, and whether it is a pivot; None if no turn."""
        found = self._database.execute(
            "SELECT id, trace_at, profile_at, pivot FROM turns WHERE row = ?", (row,)
        ).fetchone()
        if found is None:
            return None
        turn_id, trace_at, profile_at, pivot = found
        trajectory = _read_at(self._run.folder.trajectories, trace_at, Trajectory)
        turn = next((each for each in split_turns(trajectory) if each.id == turn_id), None)
        if turn is None:
            raise _changed(self._run.folder.trajectories)
        if profile_at is None:
            return turn, None, bool(pivot)
        path = self._run.folder.profiles(self._verifier)
        return turn, _read_at(path, profile_at, Profile), bool(pivot)

    def trajectory_of(self, row: int) -> int:
        """The number of a turn's trajectory."""
        found = self._database.execute("SELECT trajectory FROM turns WHERE row = ?", (row,))
        return int(found.fetchone()[0])

    def neighbours(self, row: int) -> tuple[int | None, int | None]:
        """The rows of the turn before and of the one behind, of the same trajectory."""
        near = self._database.execute(
            "SELECT max(CASE WHEN row < ?1 THEN row END), min(CASE WHEN row > ?1 THEN row END) "
            "FROM turns WHERE trajectory = (SELECT trajectory FROM turns WHERE row = ?1)",
            (row,),
        ).fetchone()
        return near[0], near[1]

    def count_classes(self) -> dict[Class, int]:
        """How many turns are in each class."""
        sums = ", ".join(f"coalesce(sum({condition}), 0)" for condition in CLASSES.values())
        counts = self._database.execute(f"SELECT {sums} FROM turns").fetchone()
        return dict(zip(CLASSES, counts, strict=True))

    def slices(self, column: Literal["kind", "depth"], most: int) -> list[Slice]:
        """Profiled turns by kind of action (the largest groups) or by depth (the first ones)."""
        order = "count(*) DESC, kind" if column == "kind" else "depth"
        rows = self._database.execute(
            f"SELECT {column}, count(*), sum(results = 'mixed'), sum(pivot) FROM turns "
            f"WHERE results != '' GROUP BY {column} ORDER BY {order} LIMIT ?",
            (most,),
        )
        return [Slice(str(name), *counts) for name, *counts in rows]

    def suites(self) -> list[str]:
        """The suites that were played."""
        rows = self._database.execute("SELECT DISTINCT suite FROM tasks ORDER BY suite")
        return [name for (name,) in rows]

    def policies(self, suite: str) -> list[str]:
        """The policies that played a suite, in the order of the run."""
        rows = self._database.execute(
            "SELECT policy FROM tasks WHERE suite = ? GROUP BY policy ORDER BY min(rowid)",
            (suite,),
        )
        return [name for (name,) in rows]

    def tasks(self, suite: str, text: str, first: int, count: int) -> tuple[list[TaskRow], int]:
        """One page of a suite's tasks, those that changed most from the base first."""
        policies = self.policies(suite)
        rows = self._database.execute(
            "SELECT task, max(1.0 * c / n) - min(1.0 * c / n) AS moved, count(*) OVER () "
            "FROM tasks WHERE suite = ? AND instr(lower(task), ?) > 0 AND n > 0 "
            "GROUP BY task ORDER BY moved DESC, task LIMIT ? OFFSET ?",
            (suite, text.casefold(), count, first),
        ).fetchall()
        found = [TaskRow(task, self._counts(suite, task, policies)) for task, _, _ in rows]
        return found, rows[0][2] if rows else 0

    def _counts(self, suite: str, task: str, policies: list[str]) -> dict[str, tuple[int, int]]:
        rows = self._database.execute(
            "SELECT policy, c, n FROM tasks WHERE suite = ? AND task = ?", (suite, task)
        )
        known = {policy: (c, n) for policy, c, n in rows}
        return {policy: known[policy] for policy in policies if policy in known}


def open_index(run: Run, spare: Path) -> TurnIndex:
    """The index of a run, made now where there is none for the files as they are.

    It lies in the run folder, or in the folder `spare` where that cannot be written.
    """
    place = run.folder.path if os.access(run.folder.path, os.W_OK) else spare
    path, key = place / "view.sqlite", _key(run)
    if not _is_current(path, key):
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        with closing(sqlite3.connect(part)) as database:
            _build(run, database, key)
        part.replace(path)
    return TurnIndex(run, path)


def _key(run: Run) -> str:
    """Changes with every file that the index is made of."""
    folder = run.folder.path
    files = [run.folder.trajectories, folder / "recipe.toml"]
    for name in ("profiles", "pivots", "evaluations", "tallies"):
        files += sorted((folder / name).rglob("*.json*"))
    stats = [(str(path), path.stat()) for path in files if path.exists()]
    told = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return f"{VERSION} {told!r}"


def _is_current(path: Path, key: str) -> bool:
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(path)) as database:
            return bool(database.execute("SELECT key FROM about").fetchone()[0] == key)
    except (sqlite3.Error, TypeError):
        return False


def _build(run: Run, database: sqlite3.Connection, key: str) -> None:
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
    database.executemany(
        "INSERT OR IGNORE INTO turns "
        "(id, trajectory, depth, kind, action, task, searched, trace_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        _trace_rows(run),
    )
    verifier, rule = wanted_selections(run)[0]
    if run.folder.profiles(verifier).exists():
        database.executemany(
            "UPDATE turns SET n = ?, mean = ?, spread = ?, results = ?, profile_at = ? "
            "WHERE id = ?",
            _profile_rows(run.folder.profiles(verifier)),
        )
    if run.folder.pivots(verifier, rule).exists():
        chosen = read_selection(run, verifier, rule).selection.turn_ids
        database.executemany("UPDATE turns SET pivot = 1 WHERE id = ?", ((i,) for i in chosen))
    database.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?, ?)", _task_rows(run))
    database.executescript(_INDEXES)
    database.execute("INSERT INTO about VALUES (?)", (key,))
    database.commit()


def _trace_rows(run: Run) -> Iterator[tuple[str, int, int, str, str, str, str, int]]:
    traces = _read_with_places(run.folder.trajectories, Trajectory)
    for ordinal, (at, trajectory) in enumerate(traces, 1):
        asked = next((each.content for each in trajectory.messages if each.role == "user"), "")
        opening = asked if len(asked) <= 2 * SEARCHED else asked[:SEARCHED] + asked[-SEARCHED:]
        # What is wanted stands at the end as a rule, behind what is always said.
        wanted = next((each for each in reversed(opening.splitlines()) if each.strip()), "")
        for turn in split_turns(trajectory):
            action = show_line(action_text(turn.expert), 160)
            searched = f"{turn.id} {trajectory.task.id} {action} {opening}".casefold()
            yield (
                turn.id,
                ordinal,
                turn.index,
                show_line(action_kind(turn.expert), 60),
                action,
                show_line(wanted, 160),
                searched,
                at,
            )


def _profile_rows(path: Path) -> Iterator[tuple[int, float | None, float | None, str, int, str]]:
    for at, head in _read_with_places(path, _Head):
        rewards = [each.verdict.reward for each in head.samples if each.verdict.reward is not None]
        stats = reward_stats(rewards)
        if stats is None:
            yield 0, None, None, "", at, head.turn_id
            continue
        results = "mixed" if stats.mixed else "pass" if stats.mean >= 0.5 else "fail"
        yield len(rewards), stats.mean, stats.variance**0.5, results, at, head.turn_id


def _task_rows(run: Run) -> Iterator[tuple[str, str, str, int, int]]:
    """Tallies of every suite; many rollouts of each task count as a suite of their own."""
    names = ["base", *run.recipe.methods]
    for folder, suffix in (("tallies", " (many tries)"), ("evaluations", "")):
        for name in names:
            for path in sorted((run.folder.path / folder / name).glob("*.jsonl")):
                counts: dict[str, list[int]] = {}
                for outcome in read_records(path, Outcome):
                    if outcome.reward is not None:
                        count = counts.setdefault(outcome.task_id, [0, 0])
                        count[0] += outcome.reward >= 0.5
                        count[1] += 1
                for task, (c, n) in counts.items():
                    yield path.stem + suffix, name, task, c, n


def _read_with_places(path: Path, kind: type[T]) -> Iterator[tuple[int, T]]:
    """Complete records with the byte at which each begins."""
    decoder = msgspec.json.Decoder(kind)
    at = 0
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                yield at, decoder.decode(line)
                at += len(line)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(
            f"cannot be read: {error}", where=f"{path}, byte {at}", fix="run the stage again"
        ) from error


def _read_at(path: Path, at: int, kind: type[T]) -> T:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return msgspec.json.decode(file.readline(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise _changed(path) from error


def _changed(path: Path) -> StoreError:
    return StoreError(
        "the file has changed since it was indexed",
        where=str(path),
        fix="stop `pivotune view` and start it again",
    )
