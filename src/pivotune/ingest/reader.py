"""Traces in: files of any known dialect to trajectories, one at a time."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.types import Source, ToolSpec, Trajectory
from pivotune.ingest.detect import detect_dialect, find_dialect
from pivotune.ingest.files import BadRow, Row, find_files, read_rows
from pivotune.ingest.merge import merge_roles
from pivotune.ingest.messages import Draft, RefusalError
from pivotune.ingest.report import FileReport, ImportReport
from pivotune.ingest.split import count_turns
from pivotune.ingest.tools import infer_tools, load_tools

PathLike = str | Path


class TraceReader:
    """Iterates over the trajectories of files; `report` is complete when the iteration ends.

    Each iteration reads from the start, with a new report. An id that was used before gets a
    suffix, so that ids of trajectories and turns are unique in one import.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        dialect: str | None,
        tools: tuple[ToolSpec, ...] | None,
        domain: str,
        strict: bool,
        merge: bool = False,
    ) -> None:
        self._files, self._skipped = find_files(paths)
        if not self._files:
            where = ", ".join(map(str, paths))
            raise DataError("no file with traces in it", where=where, fix="name a file of traces")
        self._dialect = dialect
        self._convert = None if dialect is None else find_dialect(dialect).convert
        self._tools = tools
        self._domain = domain
        self._strict = strict
        self._merge = merge
        self._seen: dict[bytes, int] = {}
        self.report = ImportReport()

    def __iter__(self) -> Iterator[Trajectory]:
        self.report = ImportReport(skipped_files=[str(path) for path in self._skipped])
        self._seen = {}
        for path in self._files:
            self.report.files.append(FileReport(str(path)))
            for row in read_rows(path):
                yield from self._read_row(path, row)

    def _read_row(self, path: Path, row: Row | BadRow) -> Iterator[Trajectory]:
        file = self.report.files[-1]
        file.rows += 1
        where = f"{path}:{row.line}"
        if isinstance(row, BadRow):
            self._refuse(row.reason, where, row.detail)
            return
        draft = Draft(f"{_stem(path)}-{row.number}", self._domain, self._tools)
        try:
            name, trajectories = self._convert_row(row.value, draft, file)
        except RefusalError as error:
            self._refuse(error.reason, where, error.detail)
            return
        for reason, (count, detail) in draft.notes.items():
            self.report.note(reason, where, detail, count)
        self.report.ignore_keys(draft.ignored)
        source = Source(str(path), row.number, name)
        for trajectory in trajectories:
            yield self._admit(self._merged(trajectory, where), source, where)

    def _convert_row(
        self, value: Any, draft: Draft, file: FileReport
    ) -> tuple[str, list[Trajectory]]:
        if self._convert is None or self._dialect is None:
            name, why = detect_dialect(value)
            convert = find_dialect(name).convert
        else:
            name, why, convert = self._dialect, "named by the user", self._convert
        if not file.dialect:
            file.dialect, file.why = name, why
        try:
            return name, convert(value, draft)
        except (
            ArithmeticError, LookupError, TypeError, AttributeError, ValueError, RecursionError
        ) as error:  # fmt: skip
            # A field of a type that no such row has; the converters check the usual ones.
            raise RefusalError(f"row that is not {name}", f"{type(error).__name__}: {error}") from (
                error
            )

    def _merged(self, trajectory: Trajectory, where: str) -> Trajectory:
        if not self._merge:
            return trajectory
        merged, count = merge_roles(trajectory)
        if count:
            note = "message merged with the one before, of the same role"
            self.report.note(note, where, trajectory.id, count)
        return merged

    def _admit(self, trajectory: Trajectory, source: Source, where: str) -> Trajectory:
        report, file = self.report, self.report.files[-1]
        key = hashlib.blake2b(trajectory.id.encode(), digest_size=8).digest()
        times = self._seen[key] = self._seen.get(key, 0) + 1
        name = trajectory.id
        if times > 1:
            report.note("id used before, suffix added", where, name)
            name = f"{name}~{times}"
        turns = count_turns(trajectory)
        reward = trajectory.reward
        for counts in (report, file):
            counts.trajectories += 1
            counts.turns += turns
            counts.unknown += reward is None
            counts.succeeded += reward is not None and reward >= 1
            counts.failed += reward is not None and reward < 1
        return msgspec.structs.replace(trajectory, id=name, source=source)

    def _refuse(self, reason: str, where: str, detail: str) -> None:
        if self._strict:
            raise DataError(reason, where=where, got=detail or None, fix="correct or remove it")
        self.report.refuse(reason, where, detail)


def read_trajectories(
    paths: PathLike | Iterable[PathLike],
    *,
    dialect: str | None = None,
    tools: Sequence[ToolSpec] | PathLike | None = None,
    domain: str = "",
    strict: bool = False,
    merge: bool = False,
) -> TraceReader:
    """Trajectories of files or folders, streamed, with a report.

    `dialect` overrides detection. `tools` replaces the tools of every row: specs, a JSON file of
    them, or "infer" for minimal schemas from the calls (reads the input twice). `strict` turns
    the first refused row into a `DataError`. `merge` makes one message of several of one role in a
    row, counted, for templates that demand alternating roles. Raises `DataError` for a path that
    is not there.
    """
    chosen = [paths] if isinstance(paths, (str, Path)) else list(paths)
    files = [Path(path) for path in chosen]
    specs: tuple[ToolSpec, ...] | None
    if tools is None:
        specs = None
    elif tools == "infer":
        specs = infer_tools(
            TraceReader(files, dialect=dialect, tools=None, domain=domain, strict=False)
        )
    elif isinstance(tools, (str, Path)):
        specs = load_tools(Path(tools))
    else:
        specs = tuple(tools)
    return TraceReader(
        files, dialect=dialect, tools=specs, domain=domain, strict=strict, merge=merge
    )


def _stem(path: Path) -> str:
    return path.name.split(".", 1)[0] or path.name
