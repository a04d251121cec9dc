"""What an import did: counts by named reason, with the first example of each."""

from collections import Counter

import msgspec

from pivotune.core.errors import DataError


class Finding(msgspec.Struct):
    """One named reason: how often, and where it was met first."""

    count: int
    where: str
    detail: str

    def add(self, count: int = 1) -> None:
        self.count += count


class FileReport(msgspec.Struct):
    """One file. `dialect` and `why` are those of its first row that was understood."""

    path: str
    dialect: str = ""
    why: str = ""
    rows: int = 0
    trajectories: int = 0
    turns: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    refused: dict[str, Finding] = msgspec.field(default_factory=dict)

    def line(self) -> str:
        """The file in one line."""
        outcome = (
            f"{self.succeeded} of {self.trajectories} succeeded"
            if self.unknown < self.trajectories
            else "outcome not recorded"
        )
        refused = sum(finding.count for finding in self.refused.values())
        return (
            f"{self.path}: {self.trajectories} trajectories, {self.turns} turns, {outcome}, "
            f"{refused} of {self.rows} rows refused [{self.dialect or 'none'}: {self.why}]"
        )


class ImportReport(msgspec.Struct):
    """Grows while the import is read; complete when the iteration has ended.

    `refused` counts rows that gave no trajectory; `notes` counts changes and doubts in rows that
    did. `succeeded` counts rewards of 1, `failed` lower ones, `unknown` those not recorded.
    """

    files: list[FileReport] = msgspec.field(default_factory=list)
    refused: dict[str, Finding] = msgspec.field(default_factory=dict)
    notes: dict[str, Finding] = msgspec.field(default_factory=dict)
    ignored_keys: dict[str, int] = msgspec.field(default_factory=dict)
    skipped_files: list[str] = msgspec.field(default_factory=list)
    trajectories: int = 0
    turns: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0

    @property
    def rows_refused(self) -> int:
        return sum(finding.count for finding in self.refused.values())

    def refuse(self, reason: str, where: str, detail: str) -> None:
        """Count a refused row, in the whole and in the file being read."""
        count_finding(self.refused, reason, where, detail)
        if self.files:
            count_finding(self.files[-1].refused, reason, where, detail)

    def note(self, reason: str, where: str, detail: str, count: int = 1) -> None:
        count_finding(self.notes, reason, where, detail, count)

    def ignore_keys(self, keys: Counter[str]) -> None:
        for key, count in keys.items():
            self.ignored_keys[key] = self.ignored_keys.get(key, 0) + count

    def require_trajectories(self) -> None:
        """Raises `DataError` when nothing could be used, naming the first refusal."""
        if self.trajectories:
            return
        if not self.refused:
            raise DataError("there is no trajectory in the input", fix="check the path")
        reason, first = next(iter(self.refused.items()))
        raise DataError(
            f"none of {self.rows_refused} rows could be used; the first: {reason}",
            where=first.where,
            got=first.detail,
            fix="name the dialect if it was guessed wrong, or correct the file",
        )

    def lines(self) -> list[str]:
        """The report in plain words, for a terminal."""
        lines = [
            f"{self.trajectories} trajectories, {self.turns} turns from {len(self.files)} files",
            f"outcomes: {self.succeeded} succeeded, {self.failed} failed, "
            f"{self.unknown} not recorded",
        ]
        lines += [file.line() for file in self.files]
        for title, findings in (("refused", self.refused), ("note", self.notes)):
            lines += [
                f"{title}: {reason}: {finding.count}, first at {finding.where}: {finding.detail}"
                for reason, finding in findings.items()
            ]
        if self.skipped_files:
            lines.append(f"files that are no traces by their name: {len(self.skipped_files)}")
        if self.ignored_keys:
            lines.append(f"keys not carried over: {', '.join(sorted(self.ignored_keys))}")
        return lines


def count_finding(
    findings: dict[str, Finding], reason: str, where: str, detail: str, count: int = 1
) -> None:
    """Add to a reason; place and detail are kept from the first time."""
    if reason in findings:
        findings[reason].add(count)
    else:
        findings[reason] = Finding(count, where, detail)
