"""Tallies from people's own results: CSV or JSON Lines with the columns task, c and n.

`c` is the number of successful rollouts of `n`. Every row is used or the file is refused with
the line that is wrong: a score must never rest on part of what was handed in.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pivotune.core.errors import DataError
from pivotune.core.tally import Tally

COLUMNS = ("task", "c", "n")


def read_tallies(path: Path) -> dict[str, Tally]:
    """One tally a task, in file order; `.csv` needs a header, anything else is JSON Lines."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from error
    rows = _csv_rows(path, text) if path.suffix.lower() == ".csv" else _json_rows(path, text)
    tallies: dict[str, Tally] = {}
    for line, row in rows:
        task, tally = _read_row(f"{path}:{line}", row)
        if task in tallies:
            raise DataError(
                f"task {task!r} appears twice",
                where=f"{path}:{line}",
                fix="give one row a task, with the counts of all its rollouts added up",
            )
        tallies[task] = tally
    if not tallies:
        raise DataError("no rows", where=str(path), expected="a row a task: task, c, n")
    return tallies


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise DataError(
            f"no column {', '.join(missing)}",
            where=f"{path}:1",
            got=", ".join(reader.fieldnames or ()),
            expected="a header line with task, c and n",
        )
    for row in reader:
        yield reader.line_num, row


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"not JSON: {error}", where=f"{path}:{number}", got=line) from error
        if not isinstance(row, dict) or any(name not in row for name in COLUMNS):
            raise DataError(
                "not a tally",
                where=f"{path}:{number}",
                got=line,
                expected='{"task": "…", "c": 3, "n": 8}',
            )
        yield number, row


def _read_row(where: str, row: dict[str, Any]) -> tuple[str, Tally]:
    task = row["task"]
    if not isinstance(task, str | int) or task == "":
        raise DataError("a task needs a name", where=where, got=task)
    c, n = _whole_number(where, "c", row["c"]), _whole_number(where, "n", row["n"])
    if not 0 <= c <= n or n == 0:
        raise DataError(
            "impossible counts",
            where=where,
            got=f"c = {c}, n = {n}",
            expected="0 <= c <= n, n >= 1",
        )
    return str(task), Tally(c, n - c)


def _whole_number(where: str, name: str, value: object) -> int:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise DataError(f"{name} is not a number", where=where, got=value)
    try:
        number = float(text)
    except ValueError as error:
        raise DataError(f"{name} is not a number", where=where, got=value) from error
    if not number.is_integer():
        raise DataError(f"{name} is not a whole number", where=where, got=value)
    return int(number)
