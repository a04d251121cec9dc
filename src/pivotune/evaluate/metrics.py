"""Scores as pure functions of integer tallies, with their uncertainty.

In: a mapping from task id to `Tally` (c successes of n rollouts). Out: `Estimate`, `Curve`,
`Classes` and `LiveGroups`, which name the convention they follow. Formulas and symbols:

    pass@k = 1 - C(n-c, k) / C(n, k)      at least one of k rollouts solves the task
    pass^k = C(c, k) / C(n, k)            all k rollouts solve the task
    C(k)   = mean over tasks of pass@k    the coverage curve
    A(K)   = sum_{k=1..K-1} C(K) - C(k)   what more rollouts still add: the headroom area
    S(K)   = A(K) / ((K-1)(1 - C(1)))     the same, as a share of what was left to gain
    J_n(q) = 1 - q^n - (1-q)^n            a group of n at success rate q is mixed, so it trains
    I_n(q) = 1 - (1-q)^n                  a group of n holds a success

Both binomial ratios are running products of k factors, so that n = 10,000 is as exact as n = 4.
Intervals resample tasks, never rollouts. A task with fewer than k rollouts has no pass@k: it is
left out of the whole curve and named, and asking for it alone is an error.

Shape letters: T tasks, U distinct rows of counts, K budgets, R resamples.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln

from pivotune.core.errors import DataError
from pivotune.core.estimate import Estimate
from pivotune.core.scores import CLASS_NAMES, Classes, Curve
from pivotune.core.tally import Tally
from pivotune.evaluate.intervals import (
    BOOTSTRAP,
    Floats,
    Ints,
    bootstrap_estimate,
    percentile_interval,
    resample_tasks,
    wilson_estimate,
)

Tallies = Mapping[str, Tally]
RowCurves = Callable[[Ints, Ints, int], Floats]

# Two sums of the same terms in another order differ by rounding only.
_ROUNDING = 1e-12


class BetaPrior(msgspec.Struct, frozen=True):
    """How success rates are spread over turns, before a turn's own samples are seen."""

    a: float
    b: float


class LiveGroups(msgspec.Struct, frozen=True):
    """The expected share of groups that train, and what the mean rate alone would promise."""

    share: Estimate
    of_mean_rate: float
    prior: BetaPrior


# pass@k, pass^k and their curves


def pass_at_k(tally: Tally, k: int) -> float:
    """The chance that k of the n rollouts, drawn without replacement, hold a success."""
    _check_k(tally, k)
    return float(pass_at_rows(np.array([tally.successes]), np.array([tally.n]), k)[0, -1])


def pass_hat_k(tally: Tally, k: int) -> float:
    """The chance that k of the n rollouts, drawn without replacement, are all successes."""
    _check_k(tally, k)
    return float(pass_hat_rows(np.array([tally.successes]), np.array([tally.n]), k)[0, -1])


def _check_k(tally: Tally, k: int) -> None:
    if not 1 <= k <= tally.n:
        raise DataError(
            f"k = {k} is undefined for {tally.n} rollouts",
            expected=f"1 <= k <= {tally.n}",
            fix="sample more rollouts, or ask for a smaller k",
        )


def pass_at_rows(successes_U: Ints, n_U: Ints, k_max: int) -> Floats:
    """pass@k of each row for k = 1..k_max (shape U, K); every n is at least k_max."""
    return 1.0 - _binomial_ratios(n_U - successes_U, n_U, k_max)


def pass_hat_rows(successes_U: Ints, n_U: Ints, k_max: int) -> Floats:
    """pass^k of each row for k = 1..k_max (shape U, K); every n is at least k_max."""
    return _binomial_ratios(successes_U, n_U, k_max)


def _binomial_ratios(part_U: Ints, n_U: Ints, k_max: int) -> Floats:
    """C(part, k) / C(n, k) for k = 1..k_max: running products of (part - i) / (n - i)."""
    i_K = np.arange(k_max, dtype=np.float64)
    factors_UK = (part_U[:, None] - i_K) / (n_U[:, None] - i_K)
    ratios_UK: Floats = np.cumprod(np.maximum(factors_UK, 0.0), axis=1, dtype=np.float64)
    return ratios_UK


def coverage_curve(tallies: Tallies, k_max: int, seed: int = 0) -> Curve:
    """C(1..K): the mean of pass@k over the tasks that have at least K rollouts."""
    return _mean_curve(tallies, k_max, seed, pass_at_rows, "pass@k = 1 - C(n-c, k)/C(n, k)")


def reliability_curve(tallies: Tallies, k_max: int, seed: int = 0) -> Curve:
    """The mean of pass^k over the tasks that have at least K rollouts (as tau-bench has it)."""
    return _mean_curve(tallies, k_max, seed, pass_hat_rows, "pass^k = C(c, k)/C(n, k)")


def _mean_curve(tallies: Tallies, k_max: int, seed: int, rows: RowCurves, convention: str) -> Curve:
    usable, left_out = split_by_rollouts(tallies, k_max)
    draws = resample_tasks(count_rows(usable.values()), seed)
    curves_UK = rows(draws.rows[:, 0], draws.rows[:, 1], k_max)
    low_K, high_K = percentile_interval(draws.shares @ curves_UK)
    return Curve(
        f"{convention}, mean over tasks; {BOOTSTRAP}",
        tuple((draws.share @ curves_UK).tolist()),
        tuple(low_K.tolist()),
        tuple(high_K.tolist()),
        draws.tasks,
        left_out,
    )


def split_by_rollouts(tallies: Tallies, k: int) -> tuple[dict[str, Tally], tuple[str, ...]]:
    """The tasks with at least k rollouts, and the names of the others.

    Raises `DataError` when no task has k rollouts: there is no curve then, not one of zeros.
    """
    if k < 1:
        raise DataError(f"k = {k} is undefined", expected="k >= 1")
    usable = {task: tally for task, tally in tallies.items() if tally.n >= k}
    if not usable:
        most = max((tally.n for tally in tallies.values()), default=0)
        raise DataError(
            f"no task has {k} rollouts, so pass@{k} is undefined",
            got=f"{len(tallies)} tasks with at most {most} rollouts",
            fix="sample more rollouts, or ask for a smaller k",
        )
    return usable, tuple(task for task in tallies if task not in usable)


def count_rows(tallies: Iterable[Tally]) -> Ints:
    """Successes and rollouts, one row a task (shape T, 2)."""
    rows = [(tally.successes, tally.n) for tally in tallies]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


# Headroom


def headroom_area(curve_K: Floats) -> Floats:
    """A(K) of a coverage curve C(1..K), over the last axis; 0 for K = 1."""
    area: Floats = np.sum(curve_K[..., -1:] - curve_K[..., :-1], axis=-1)
    return area


def headroom_share(curve_K: Floats) -> Floats:
    """S(K) of a coverage curve C(1..K), over the last axis; NaN when C(1) = 1 or K = 1."""
    room = (curve_K.shape[-1] - 1) * (1.0 - curve_K[..., 0])
    share: Floats = np.full(np.shape(room), np.nan)
    np.divide(headroom_area(curve_K), room, out=share, where=room > _ROUNDING)
    return share


def why_share_undefined(curve_K: Floats) -> str:
    """The reason why S(K) of one curve has no value; empty where it has one."""
    if curve_K.shape[-1] == 1:
        return "S(1) is undefined: a single rollout has no headroom"
    if 1.0 - curve_K[0] <= _ROUNDING:
        return "S(K) is undefined: every task is already solved at the first try, C(1) = 1"
    return ""


def crossover(base_K: Floats, post_K: Floats) -> int | None:
    """k*: the smallest k at which the base's coverage reaches the post-trained one's.

    None when it does not within K. 1 means that the base is as good from the first try.
    """
    reached = np.flatnonzero(base_K >= post_K - _ROUNDING)
    return int(reached[0]) + 1 if len(reached) else None


# Classes and consistency


def classify(tallies: Tallies) -> Classes:
    """Count the three classes; tasks without a rollout are an error of the caller."""
    names = [class_of(tally) for tally in tallies.values()]
    always, some, never = (names.count(name) for name in CLASS_NAMES)
    return Classes(
        always,
        some,
        never,
        tuple(sorted({tally.n for tally in tallies.values()})),
    )


def class_of(tally: Tally) -> str:
    """always (c = n), given compute (0 < c < n) or never (c = 0), at n rollouts."""
    assert tally.n > 0
    if tally.failures == 0:
        return "always"
    return "given compute" if tally.successes else "never"


def consistency(tallies: Tallies, seed: int = 0) -> Estimate:
    """The chance that two different rollouts of one task end alike, mean over tasks.

    (c(c-1) + (n-c)(n-c-1)) / (n(n-1)); tasks with one rollout have none and are counted.
    """
    usable = [tally for tally in tallies.values() if tally.n >= 2]
    left_out = len(tallies) - len(usable)
    if not usable:
        return Estimate.undefined("needs two rollouts of a task", left_out=left_out)
    draws = resample_tasks(count_rows(usable), seed)
    c_U, n_U = draws.rows.T
    agree_U = (c_U * (c_U - 1) + (n_U - c_U) * (n_U - c_U - 1)) / (n_U * (n_U - 1))
    value = float(draws.share @ agree_U)
    return bootstrap_estimate(value, draws.shares @ agree_U, draws.tasks, left_out)


# Success and differences


def success_rate(tallies: Tallies, seed: int = 0) -> Estimate:
    """Mean over tasks of c/n. Wilson for one rollout a task, else a bootstrap over tasks.

    Tasks without a rollout are left out and counted. When every task has the same rate the
    bootstrap would claim certainty; Wilson's interval over the tasks is given instead.
    """
    usable = [tally for tally in tallies.values() if tally.n]
    left_out = len(tallies) - len(usable)
    if not usable:
        return Estimate.undefined("no task has a rollout", left_out=left_out)
    rows_TC = count_rows(usable)
    rates_T = rows_TC[:, 0] / rows_TC[:, 1]
    if np.all(rows_TC[:, 1] == 1) or np.all(rates_T == 0) or np.all(rates_T == 1):
        return wilson_estimate(int(rates_T.sum()), len(usable), left_out)
    draws = resample_tasks(rows_TC, seed)
    rates_U = draws.rows[:, 0] / draws.rows[:, 1]
    value = float(rates_T.mean())
    return bootstrap_estimate(value, draws.shares @ rates_U, draws.tasks, left_out)


def success_difference(base: Tallies, post: Tallies, seed: int = 0) -> Estimate:
    """Mean over the tasks that both have of post's rate minus base's, by paired bootstrap."""
    return mean_difference({"": base}, {"": post}, seed)


def mean_success(suites: Mapping[str, Tallies], seed: int = 0) -> Estimate:
    """The mean over suites of each suite's success, each suite weighing the same.

    One suite alone is a `success_rate`, which has Wilson's interval where a bootstrap of equal
    tasks would claim certainty.
    """
    if len(suites) == 1:
        return success_rate(next(iter(suites.values())), seed)
    rows = {
        name: count_rows(t for t in tallies.values() if t.n) for name, tallies in suites.items()
    }
    left_out = sum(len(tallies) for tallies in suites.values()) - sum(map(len, rows.values()))
    return _mean_over_suites(rows, lambda rows_UC: rows_UC[:, 0] / rows_UC[:, 1], left_out, seed)


def mean_difference(
    base: Mapping[str, Tallies], post: Mapping[str, Tallies], seed: int = 0
) -> Estimate:
    """The mean over suites of post's success minus base's; tasks are paired within a suite.

    Suites weigh the same whatever their size, and each is resampled by itself. Tasks that one
    side lacks are left out and counted; a suite that one side lacks is an error.
    """
    if base.keys() != post.keys():
        raise DataError(
            "two evaluations of different suites cannot be compared",
            got=f"{sorted(base)} against {sorted(post)}",
            fix="evaluate both on the same suites",
        )
    rows, left_out = {}, 0
    for name in base:
        rows[name], missing = paired_rows(base[name], post[name])
        left_out += len(missing)
    return _mean_over_suites(
        rows,
        lambda rows_UC: rows_UC[:, 2] / rows_UC[:, 3] - rows_UC[:, 0] / rows_UC[:, 1],
        left_out,
        seed,
    )


def paired_rows(base: Tallies, post: Tallies, k: int = 1) -> tuple[Ints, tuple[str, ...]]:
    """Base's successes and rollouts beside post's, one row a common task (shape T, 4).

    Also the names of the tasks left out: on one side only, or with fewer than k rollouts.
    """
    both = [task for task in base if task in post and base[task].n >= k and post[task].n >= k]
    rows_TC = np.hstack([count_rows(side[task] for task in both) for side in (base, post)])
    used = set(both)
    return rows_TC, tuple(task for task in {**base, **post} if task not in used)


def _mean_over_suites(
    rows: Mapping[str, Ints], score: Callable[[Ints], Floats], left_out: int, seed: int
) -> Estimate:
    empty = [name for name, rows_TC in rows.items() if not len(rows_TC)]
    if empty or not rows:
        names = ", ".join(name for name in empty if name)
        return Estimate.undefined(f"no usable task {names}".strip(), left_out=left_out)
    values, draws_SR, tasks = [], [], 0
    for index, rows_TC in enumerate(rows.values()):
        draws = resample_tasks(rows_TC, seed + index)
        score_U = score(draws.rows)
        values.append(float(draws.share @ score_U))
        draws_SR.append(draws.shares @ score_U)
        tasks += draws.tasks
    return bootstrap_estimate(float(np.mean(values)), np.mean(draws_SR, axis=0), tasks, left_out)


def miss_rate(strict: Sequence[bool], functional: Sequence[bool]) -> Estimate:
    """P(strict rejects | functional accepts) over the same actions; undefined if none is."""
    rejected = [not by_strict for by_strict, ok in zip(strict, functional, strict=True) if ok]
    if not rejected:
        return Estimate.undefined("the functional verifier accepts nothing", left_out=len(strict))
    return wilson_estimate(sum(rejected), len(rejected), len(strict) - len(rejected))


# Live groups


def mixed_chance(rate: float | Floats, group: int) -> Floats:
    """J_n(q): a group of n is neither all right nor all wrong."""
    q = np.asarray(rate, dtype=np.float64)
    mixed: Floats = 1.0 - q**group - (1.0 - q) ** group
    return mixed


def success_chance(rate: float | Floats, group: int) -> Floats:
    """I_n(q): a group of n holds at least one success."""
    chance: Floats = 1.0 - (1.0 - np.asarray(rate, dtype=np.float64)) ** group
    return chance


def beta_mixed_chance(a: float | Floats, b: float | Floats, group: int) -> Floats:
    """The mean of J_n(q) for q ~ Beta(a, b), in closed form.

    E[q^n] is the product over i < n of (a + i) / (a + b + i), and b stands for 1 - q.
    """
    shape_a, shape_b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    all_right, all_wrong = np.ones_like(shape_a + shape_b), np.ones_like(shape_a + shape_b)
    for i in range(group):
        all_right = all_right * (shape_a + i) / (shape_a + shape_b + i)
        all_wrong = all_wrong * (shape_b + i) / (shape_a + shape_b + i)
    mixed: Floats = 1.0 - all_right - all_wrong
    return mixed


def fit_beta_prior(tallies: Iterable[Tally]) -> BetaPrior:
    """The Beta that makes the counts most likely (beta-binomial, maximum likelihood).

    Most turns are all right or all wrong, so the fit is U-shaped; a flat prior would pull the
    dead turns to the middle and promise groups that never come. Both shapes stay within
    [0.001, 1000].
    """
    rows_UC, weight_U = np.unique(count_rows(tallies), axis=0, return_counts=True)
    c_U, n_U = rows_UC.T

    def loss(log_shapes: Floats) -> float:
        a, b = np.exp(log_shapes)
        return -float(weight_U @ (betaln(a + c_U, b + n_U - c_U) - betaln(a, b)))

    bound = (np.log(1e-3), np.log(1e3))
    fit = minimize(loss, np.log([0.5, 0.5]), method="L-BFGS-B", bounds=(bound, bound))
    a, b = np.exp(fit.x)
    return BetaPrior(float(a), float(b))


def expected_live_groups(
    tallies: Tallies, group: int, prior: BetaPrior | None = None, seed: int = 0
) -> LiveGroups:
    """J_n averaged over the turns' posteriors, with a bootstrap over turns at the fitted prior.

    Without `prior`, one is fitted to the same tallies (empirical Bayes).
    """
    usable = [tally for tally in tallies.values() if tally.n]
    left_out = len(tallies) - len(usable)
    if not usable:
        none = Estimate.undefined("no turn has a sample", left_out=left_out)
        return LiveGroups(none, float("nan"), prior or BetaPrior(1.0, 1.0))
    fitted = prior or fit_beta_prior(usable)
    draws = resample_tasks(count_rows(usable), seed)
    c_U, n_U = draws.rows.T
    live_U = beta_mixed_chance(fitted.a + c_U, fitted.b + n_U - c_U, group)
    value = float(draws.share @ live_U)
    share = bootstrap_estimate(value, draws.shares @ live_U, draws.tasks, left_out)
    mean_rate = float(draws.share @ (c_U / n_U))
    return LiveGroups(share, float(mixed_chance(mean_rate, group)), fitted)
