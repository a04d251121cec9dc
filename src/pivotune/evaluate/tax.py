"""The Sharpening Tax: what post-training took from the base model's headroom.

In: tallies of a base model and of any number of post-trained ones on the same tasks. Out: one
`TaxComparison` a model, over the tasks that both have, by paired bootstrap over tasks.

    Tax_A(K) = A_base(K) - A_post(K),  Tax_S(K) = S_base(K) - S_post(K)

Positive: headroom was lost. See `metrics` for A, S and the coverage curve C(k).

Shape letters: U distinct rows of counts, K budgets, R resamples, P pairs of models.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from pivotune.core.errors import DataError
from pivotune.core.estimate import Estimate
from pivotune.core.scores import (
    CLASS_NAMES,
    CoverageScores,
    Crossover,
    Curve,
    Forecast,
    Reliability,
    TaxComparison,
    TaxFindings,
)
from pivotune.core.tally import Tally
from pivotune.evaluate.intervals import (
    BOOTSTRAP,
    RESAMPLES,
    Floats,
    Resamples,
    bootstrap_estimate,
    percentile_interval,
    resample_tasks,
)
from pivotune.evaluate.metrics import (
    Tallies,
    class_of,
    classify,
    consistency,
    count_rows,
    crossover,
    headroom_area,
    headroom_share,
    paired_rows,
    pass_at_rows,
    reliability_curve,
    why_share_undefined,
)

_WEIGHTS = 2_000_000
"""Weights held at once while tasks are split into halves, so that 100,000 tasks fit in memory."""

CONVENTION = (
    "pass@k = 1 - C(n-c, k)/C(n, k), mean over the tasks both models have; "
    "Tax = base - post, positive = headroom lost; "
    f"paired {BOOTSTRAP}"
)


def find_tax(base: Tallies, posts: Mapping[str, Tallies], k: int, seed: int = 0) -> TaxFindings:
    """Everything that is stated of several models on the same tasks, at K = k.

    Raises `DataError` when a model has no task with k rollouts in common with the base.
    """
    cheap_k = min(k, max(2, k // 4))
    sides = {"base": base, **posts}
    return TaxFindings(
        k=k,
        comparisons=compare_tax(base, posts, k, seed),
        reliability=tuple(
            Reliability(name, reliability_curve(side, k, seed), consistency(side, seed))
            for name, side in sides.items()
        ),
        forecast=Forecast(cheap_k, k, forecast_tax(base, posts, cheap_k, k, seed)),
    )


def compare_tax(
    base: Tallies, posts: Mapping[str, Tallies], k: int, seed: int = 0
) -> tuple[TaxComparison, ...]:
    """Each post-trained model against the base, at K = k."""
    return tuple(_compare(name, base, post, k, seed) for name, post in posts.items())


def _compare(name: str, base: Tallies, post: Tallies, k: int, seed: int) -> TaxComparison:
    rows_TC, left_out = paired_rows(base, post, k)
    if not len(rows_TC):
        raise DataError(
            f"no task has {k} rollouts of both the base and {name!r}",
            got=f"{len(base)} tasks of the base, {len(post)} of {name!r}",
            fix="evaluate both on the same tasks with at least K rollouts, or choose a smaller K",
        )
    missing = set(left_out)
    used = [task for task in base if task not in missing]
    draws = resample_tasks(rows_TC, seed)
    base_UK, post_UK = (_side_curves(draws, side, k) for side in (0, 2))
    base_K, post_K = draws.share @ base_UK, draws.share @ post_UK
    base_RK, post_RK = draws.shares @ base_UK, draws.shares @ post_UK
    return TaxComparison(
        name,
        k,
        draws.tasks,
        left_out,
        _scores(base_K, base_RK, {task: base[task] for task in used}, left_out),
        _scores(post_K, post_RK, {task: post[task] for task in used}, left_out),
        _difference(headroom_area, (base_K, base_RK), (post_K, post_RK), draws.tasks),
        _difference(headroom_share, (base_K, base_RK), (post_K, post_RK), draws.tasks),
        _crossover((base_K, base_RK), (post_K, post_RK)),
        _gains(post_K - base_K, post_RK - base_RK, draws.tasks),
        class_moves([base[task] for task in used], [post[task] for task in used]),
        CONVENTION,
    )


def _side_curves(draws: Resamples, column: int, k: int) -> Floats:
    return pass_at_rows(draws.rows[:, column], draws.rows[:, column + 1], k)


def _scores(
    curve_K: Floats, curves_RK: Floats, tallies: Tallies, left_out: tuple[str, ...]
) -> CoverageScores:
    low_K, high_K = percentile_interval(curves_RK)
    tasks = len(tallies)
    curve = Curve(
        CONVENTION,
        tuple(curve_K.tolist()),
        tuple(low_K.tolist()),
        tuple(high_K.tolist()),
        tasks,
        left_out,
    )
    area = bootstrap_estimate(float(headroom_area(curve_K)), headroom_area(curves_RK), tasks)
    why = why_share_undefined(curve_K)
    share = (
        Estimate.undefined(why, tasks)
        if why
        else bootstrap_estimate(float(headroom_share(curve_K)), headroom_share(curves_RK), tasks)
    )
    return CoverageScores(curve, area, share, classify(tallies))


def _difference(
    score: Callable[[Floats], Floats],
    base: tuple[Floats, Floats],
    post: tuple[Floats, Floats],
    tasks: int,
) -> Estimate:
    """Base's score minus post's, each side given as its curve and its resampled curves."""
    value = float(score(base[0]) - score(post[0]))
    if np.isnan(value):
        why = [why_share_undefined(curve_K) for curve_K in (base[0], post[0])]
        sides = [
            f"{side}: {text}" for side, text in zip(("base", "post"), why, strict=True) if text
        ]
        return Estimate.undefined("; ".join(sides), tasks)
    return bootstrap_estimate(value, score(base[1]) - score(post[1]), tasks)


def _crossover(base: tuple[Floats, Floats], post: tuple[Floats, Floats]) -> Crossover:
    """k* and its 95 % interval; resamples in which it is not reached sort above all others."""
    found = [crossover(b_K, p_K) for b_K, p_K in zip(base[1], post[1], strict=True)]
    beyond = len(base[0]) + 1
    ordered = sorted(beyond if k is None else k for k in found)
    low, high = ordered[int(0.025 * RESAMPLES)], ordered[int(0.975 * RESAMPLES) - 1]
    return Crossover(
        crossover(base[0], post[0]),
        None if low == beyond else low,
        None if high == beyond else high,
    )


def _gains(gain_K: Floats, gain_RK: Floats, tasks: int) -> tuple[Estimate, ...]:
    low_K, high_K = percentile_interval(gain_RK)
    rows = zip(gain_K.tolist(), low_K.tolist(), high_K.tolist(), strict=True)
    return tuple(Estimate(value, low, high, tasks, method=BOOTSTRAP) for value, low, high in rows)


def class_moves(base: Sequence[Tally], post: Sequence[Tally]) -> tuple[tuple[int, int, int], ...]:
    """How many tasks went from each class (row) to each class (column)."""
    pairs = Counter(
        (class_of(before), class_of(after)) for before, after in zip(base, post, strict=True)
    )
    always, some, never = CLASS_NAMES
    return tuple(
        (pairs[name, always], pairs[name, some], pairs[name, never]) for name in CLASS_NAMES
    )


def forecast_tax(
    base: Tallies,
    posts: Mapping[str, Tallies],
    cheap_k: int = 8,
    full_k: int = 32,
    seed: int = 0,
) -> Estimate:
    """Does a cheap Tax_S rank models as the full one does? Spearman's rank correlation.

    Tax_S(cheap_k) of each model on one half of the tasks against Tax_S(full_k) on the other
    half. The value is the mean over random halves; the interval takes in the halves and a
    resample of the tasks in each half, for this set of models. At least three models are needed.
    """
    return forecast_tax_over([(base, posts)], cheap_k, full_k, seed)


def forecast_tax_over(
    runs: Sequence[tuple[Tallies, Mapping[str, Tallies]]],
    cheap_k: int = 8,
    full_k: int = 32,
    seed: int = 0,
) -> Estimate:
    """The same for the models of several runs together, each taxed against its own run's base.

    Every run's tasks are halved by themselves.
    """
    models = sum(len(posts) for _, posts in runs)
    if models < 3:
        return Estimate.undefined(f"a rank correlation needs three models, got {models}")
    curves = [_run_curves(base, posts, full_k) for base, posts in runs]
    tasks = sum(each.shape[1] for each in curves)
    left_out = sum(len(base) for base, _ in runs) - tasks
    if any(each.shape[1] < 2 for each in curves):
        return Estimate.undefined(
            f"no two tasks have {full_k} rollouts everywhere", left_out=left_out
        )
    rng, parts = np.random.default_rng(seed), []
    portion = max(1, _WEIGHTS // tasks)
    for start in range(0, RESAMPLES, portion):
        splits = min(portion, RESAMPLES - start)
        parts.append(_half_against_half(curves, cheap_k, splits, rng))
    halves_R, resampled_R = (np.concatenate(each) for each in zip(*parts, strict=True))
    if np.isnan(halves_R).all():
        return Estimate.undefined("the models' taxes do not differ", tasks, left_out)
    return bootstrap_estimate(float(np.nanmean(halves_R)), resampled_R, tasks, left_out)


def _run_curves(base: Tallies, posts: Mapping[str, Tallies], k: int) -> Floats:
    """The coverage curves of a run's policies, the base first (shape P + 1, T, K)."""
    sides = (base, *posts.values())
    tasks = [task for task in base if all(task in side and side[task].n >= k for side in sides)]
    return np.stack([_task_curves([side[task] for task in tasks], k) for side in sides])


def _task_curves(tallies: Sequence[Tally], k: int) -> Floats:
    rows_TC = count_rows(tallies)
    return pass_at_rows(rows_TC[:, 0], rows_TC[:, 1], k)


def _random_halves(
    tasks: int, splits: int, rng: np.random.Generator
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Weights of the tasks in both halves of every split (shape R, T): as split, and redrawn."""
    plain = np.zeros((splits, tasks)), np.zeros((splits, tasks))
    drawn = np.zeros((splits, tasks)), np.zeros((splits, tasks))
    for r in range(splits):
        for side, half in enumerate(np.array_split(rng.permutation(tasks), 2)):
            plain[side][r, half] = 1 / len(half)
            again = rng.choice(half, len(half))
            drawn[side][r] = np.bincount(again, minlength=tasks) / len(half)
    return plain, drawn


def _half_against_half(
    curves: Sequence[Floats], cheap_k: int, splits: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The rank correlation over all runs' models of each split, as split and redrawn (shape R)."""
    cheap: tuple[list[Floats], list[Floats]] = ([], [])
    full: tuple[list[Floats], list[Floats]] = ([], [])
    for curves_PTK in curves:
        halves = _random_halves(curves_PTK.shape[1], splits, rng)
        for way, (cheap_RT, full_RT) in enumerate(halves):
            cheap[way].append(_share_taxes(curves_PTK[..., :cheap_k], cheap_RT))
            full[way].append(_share_taxes(curves_PTK, full_RT))
    plain, drawn = (rank_correlation(np.hstack(cheap[way]), np.hstack(full[way])) for way in (0, 1))
    return plain, drawn


def _share_taxes(curves_PTK: Floats, weights_RT: Floats) -> Floats:
    """Tax_S of every model but the first, which is the base (shape R, P - 1)."""
    share_RP = headroom_share(np.tensordot(weights_RT, curves_PTK, axes=(1, 1)))
    return share_RP[:, :1] - share_RP[:, 1:]


def rank_correlation(x: Floats, y: Floats) -> Floats:
    """Spearman's coefficient over the last axis, ties at their mean rank.

    NaN where either side is constant or has an undefined value.
    """
    centred_x, centred_y = (rankdata(side, axis=-1) for side in (x, y))
    centred_x -= centred_x.mean(axis=-1, keepdims=True)
    centred_y -= centred_y.mean(axis=-1, keepdims=True)
    norm = np.sqrt((centred_x**2).sum(axis=-1) * (centred_y**2).sum(axis=-1))
    found: Floats = np.full(norm.shape, np.nan)
    np.divide((centred_x * centred_y).sum(axis=-1), norm, out=found, where=norm > 0)
    return found
