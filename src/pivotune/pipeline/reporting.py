"""Last stage: the summary and the page."""

from pivotune.pipeline.run import Run
from pivotune.pipeline.summary import summarise


def report(run: Run) -> None:
    """Write `summary.json`."""
    summarise(run)
