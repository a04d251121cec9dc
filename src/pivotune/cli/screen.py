"""What a person sees while a run works: lines and progress bars with rates and time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from pivotune.pipeline.run import Advance
from pivotune.report.tables import Table


class _Rate(ProgressColumn):
    """Units a second since the bar began."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.1f}/s" if speed else "")


class Screen:
    """A `Watch` on a terminal. Without one (a file, CI) a bar is a line at its start and end."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(escape(text), highlight=False, soft_wrap=True)

    def table(self, title: str, shown: Table) -> None:
        """A table as aligned lines, as wide as it needs to be."""
        rows = [shown.head, *shown.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self.say(f"\n{title}")
        for row in rows:
            cells = [
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self.say("  " + "  ".join(cells))
        if shown.note:
            self.say(f"  {shown.note}")

    @contextmanager
    def progress(self, title: str, total: int, unit: str) -> Iterator[Advance]:
        if not self._console.is_terminal:
            self.say(f"{title}: {total:,} {unit}")
            yield lambda n: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console) as bars:
            task = bars.add_task(escape(title), total=total)
            yield lambda n: bars.advance(task, n)
