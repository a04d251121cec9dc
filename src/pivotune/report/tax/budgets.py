"""Budgets of tries, and which model to ask at each of them."""

from collections.abc import Sequence
from itertools import takewhile

from pivotune.core.scores import TaxComparison

BASE = "base"
EITHER = "either"


def budgets(k: int) -> list[int]:
    """The budgets that are shown: powers of two, and K itself."""
    powers = list(takewhile(lambda power: power < k, (2**i for i in range(64))))
    return [*powers, k]


def say_tries(k: int) -> str:
    """A number of tries in words."""
    return f"{k:,} tries" if k > 1 else "1 try"


def pick_model(comparisons: Sequence[TaxComparison], k: int) -> str:
    """The model that a router asks when every task may be tried k times."""
    gains = {each.name: each.gain[k - 1] for each in comparisons}
    better = [name for name, gain in gains.items() if gain.low is not None and gain.low > 0]
    if better:
        return max(better, key=lambda name: gains[name].value or 0.0)
    worse = [gain.high is not None and gain.high < 0 for gain in gains.values()]
    return BASE if all(worse) else EITHER
