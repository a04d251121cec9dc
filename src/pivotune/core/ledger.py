"""What a run has cost, by phase. Every phase is charged, profiling and detection included."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pivotune.core.types import Cost


class Ledger:
    """Running totals by phase; a stage saves `costs` at the points from which it can resume."""

    def __init__(self, costs: dict[str, Cost] | None = None) -> None:
        self.costs: dict[str, Cost] = dict(costs or {})

    def charge(self, phase: str, cost: Cost) -> None:
        self.costs[phase] = self.costs.get(phase, Cost()) + cost

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Charge the wall seconds of the block, also when it raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.charge(phase, Cost(seconds=time.perf_counter() - start))

    def total(self) -> Cost:
        return sum(self.costs.values(), Cost())
