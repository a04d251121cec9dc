"""One figure with its uncertainty, as evaluation states it and the report shows it."""

from collections.abc import Iterable

import msgspec


class Estimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value with a 95 % interval.

    `value` is None when the figure is undefined; `reason` then says why. `tasks` counts what
    the figure was computed from, `left_out` what could not be used, and `method` names how the
    interval was made.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    tasks: int = 0
    left_out: int = 0
    method: str = ""
    reason: str = ""

    @classmethod
    def undefined(cls, reason: str, tasks: int = 0, left_out: int = 0) -> "Estimate":
        """A figure that has no value, with the reason."""
        return cls(None, tasks=tasks, left_out=left_out, reason=reason)


class OverSeeds(msgspec.Struct, frozen=True):
    """One figure over seeds: mean, lowest and highest of the seeds in which it has a value.

    `seeds` holds every seed's value, None where it is undefined.
    """

    mean: float | None
    low: float | None
    high: float | None
    seeds: tuple[float | None, ...]


def over_seeds(values: Iterable[float | None]) -> OverSeeds:
    """Join one value a seed; undefined where no seed has one."""
    seeds = tuple(values)
    known = [each for each in seeds if each is not None]
    if not known:
        return OverSeeds(None, None, None, seeds)
    return OverSeeds(sum(known) / len(known), min(known), max(known), seeds)
