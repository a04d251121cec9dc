"""Uncertainty: Wilson intervals for single trials, and one bootstrap over tasks for the rest.

Tasks with equal counts are interchangeable, so the bootstrap draws how often each distinct row
of counts appears (a multinomial) instead of drawing tasks one by one: the same distribution,
and 100,000 tasks cost no more than their distinct rows. Comparisons put both policies' counts
in one row, which keeps a task's two results together.

Shape letters: T tasks, U distinct rows of counts, R resamples, K budgets.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pivotune.core.estimate import Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RESAMPLES = 1000
BOOTSTRAP = f"95 % percentile bootstrap, {RESAMPLES:,} resamples of tasks"
WILSON = "95 % Wilson interval"
_Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Resamples:
    """Distinct rows of counts, their shares in the data, and in each resample of the tasks.

    `rows` has shape U, columns; `share` has shape U; `shares` has shape R, U.
    The mean over tasks of any per-row score is `share @ score_U`, and its resampled means are
    `shares @ score_U`.
    """

    rows: Ints
    share: Floats
    shares: Floats
    tasks: int


def resample_tasks(rows_TC: Ints, seed: int) -> Resamples:
    """Draw `RESAMPLES` times as many tasks as there are, with replacement."""
    rows_UC, counts_U = np.unique(rows_TC, axis=0, return_counts=True)
    tasks = len(rows_TC)
    share_U = counts_U / tasks
    drawn_RU = np.random.default_rng(seed).multinomial(tasks, share_U, size=RESAMPLES)
    return Resamples(rows_UC, share_U, drawn_RU / tasks, tasks)


def percentile_interval(draws: Floats) -> tuple[Floats, Floats]:
    """The 2.5 and 97.5 percentiles over the first axis, undefined draws left out."""
    low, high = np.nanpercentile(draws, (2.5, 97.5), axis=0)
    return low, high


def bootstrap_estimate(value: float, draws_R: Floats, tasks: int, left_out: int = 0) -> Estimate:
    """An estimate from its value on the data and on each resample; NaN draws are counted."""
    undefined = int(np.isnan(draws_R).sum())
    if undefined == len(draws_R):
        return Estimate(value, None, None, tasks, left_out, reason="no resample is defined")
    low, high = percentile_interval(draws_R)
    note = f"undefined in {undefined} of {len(draws_R)} resamples" if undefined else ""
    return Estimate(value, float(low), float(high), tasks, left_out, BOOTSTRAP, note)


def wilson_estimate(successes: int, n: int, left_out: int = 0) -> Estimate:
    """A share of n independent trials with Wilson's score interval."""
    if n == 0:
        return Estimate.undefined("no trials", left_out=left_out)
    share, z2 = successes / n, _Z_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 / (1 + z2 / n) * float(np.sqrt(share * (1 - share) / n + z2 / (4 * n * n)))
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == n else middle + half
    return Estimate(share, low, high, n, left_out, WILSON)
