"""Traces in any chat dialect to trajectories and turns; every refused row has a counted reason."""

from pivotune.ingest.detect import DIALECTS, detect_dialect
from pivotune.ingest.messages import RefusalError
from pivotune.ingest.reader import TraceReader, read_trajectories
from pivotune.ingest.report import FileReport, Finding, ImportReport
from pivotune.ingest.split import split_turns
from pivotune.ingest.tools import infer_tools, load_tools

__all__ = [
    "DIALECTS",
    "FileReport",
    "Finding",
    "ImportReport",
    "RefusalError",
    "TraceReader",
    "detect_dialect",
    "infer_tools",
    "load_tools",
    "read_trajectories",
    "split_turns",
]
