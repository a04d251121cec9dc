"""Counts of successes and failures: integer ones for scores, discounted ones for temperatures."""

import msgspec


class Tally(msgspec.Struct, frozen=True):
    """Integer outcomes of one task or state."""

    successes: int = 0
    failures: int = 0

    @property
    def n(self) -> int:
        return self.successes + self.failures

    def add(self, success: bool) -> "Tally":
        return Tally(self.successes + success, self.failures + (not success))


class DiscountedTally(msgspec.Struct, frozen=True):
    """Outcomes that fade: each new group multiplies the old counts by `discount` (PTGS)."""

    successes: float = 0.0
    failures: float = 0.0

    def add(self, successes: int, n: int, discount: float) -> "DiscountedTally":
        return DiscountedTally(
            discount * self.successes + successes, discount * self.failures + n - successes
        )
