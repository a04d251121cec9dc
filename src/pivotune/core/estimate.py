"""One figure with its uncertainty, as evaluation states it and the report shows it."""

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
