"""Rows written to files and read back, for the tests of ingest."""

import json
from pathlib import Path
from typing import Any

from pivotune.core.types import Trajectory
from pivotune.ingest import ImportReport, read_trajectories

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_all(path: Path, **options: Any) -> tuple[list[Trajectory], ImportReport]:
    reader = read_trajectories(path, **options)
    trajectories = list(reader)
    return trajectories, reader.report


def read_rows_of(
    tmp_path: Path, *rows: Any, **options: Any
) -> tuple[list[Trajectory], ImportReport]:
    return read_all(write_jsonl(tmp_path / "rows.jsonl", list(rows)), **options)
