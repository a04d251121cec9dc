"""What a run has cost, by phase. Every phase is charged, profiling and detection included."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

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


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a million tokens of each kind cost; all 0: no money is stated."""

    prompt: float = 0.0
    sampled: float = 0.0
    trained: float = 0.0
    currency: str = "USD"

    @property
    def known(self) -> bool:
        return bool(self.prompt or self.sampled or self.trained)

    def of(self, cost: Cost) -> float:
        """The price of a piece of work, in `currency`."""
        return (
            self.prompt * cost.prompt_tokens
            + self.sampled * cost.sampled_tokens
            + self.trained * cost.trained_tokens
        ) / 1e6


class Alternative(msgspec.Struct, frozen=True):
    """What a local method sampled, against the same samples played to the end of the episode.

    `local` holds its own sampling and the profiling and selection that it needs;
    `end_to_end` is an estimate: `samples` episodes, each as long and as dear as the base's mean
    episode (of `episodes` played). Training is in neither.
    """

    method: str
    samples: int
    episodes: int
    turns_an_episode: float
    local: Cost
    end_to_end: Cost

    @property
    def times_fewer_turns(self) -> float:
        """Rollout turns of the alternative for each one of the local method's."""
        return self.end_to_end.rollout_turns / max(1, self.local.rollout_turns)
