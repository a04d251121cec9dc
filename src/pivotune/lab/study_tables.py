"""A study's figures as tables over seeds: `study.md`, to be quoted."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pivotune.evaluate.levels import Reached
from pivotune.evaluate.recovery import RecoveryScore, TeacherScore
from pivotune.pipeline.summary import Score, Summary
from pivotune.report.data import Series
from pivotune.report.tables import Table, markdown, table
from pivotune.report.text import percent, points

_NEVER = "–"


def study_markdown(summaries: Sequence[Summary]) -> str:
    """Every table that the runs have figures for; a value a seed behind each mean."""
    shown = {
        "Success and retention": _scores(summaries),
        "Validation by step": _curves(summaries),
        "Recovery after the base's mistakes": _recovery(summaries),
        "What was lost where": _diagnosis(summaries),
        "Teachers beside the oracle": _teachers(summaries),
        "Cost until the level": _levels(summaries),
    }
    parts = [f"## {title}\n\n{markdown(each)}" for title, each in shown.items() if each.rows]
    return "\n".join(parts)


def _scores(summaries: Sequence[Summary]) -> Table:
    """In-domain success, its change, the change elsewhere, and rollout turns of training."""
    return table(
        ("policy", "in-domain", "change", "by seed", "elsewhere", "change", "by seed", "turns"),
        (
            (
                name,
                *_scored([each.in_domain[name] for each in summaries]),
                *_scored([each.out_of_domain[name] for each in summaries if each.out_of_domain]),
                _turns(name, summaries),
            )
            for name in summaries[0].in_domain
        ),
        "Changes are in points, from the base of the same seed. Turns are those that training "
        "sampled, validation included, profiling not: the mean over seeds.",
    )


def _scored(scores: Sequence[Score]) -> tuple[str, str, str]:
    if not scores:
        return _NEVER, _NEVER, _NEVER
    changes = [each.change for each in scores]
    return (
        percent(float(np.mean([each.success for each in scores]))),
        points(float(np.mean(changes))),
        " ".join(map(points, changes)),
    )


def _turns(name: str, summaries: Sequence[Summary]) -> str:
    spent = [each.cost[f"train/{name}"] for each in summaries if f"train/{name}" in each.cost]
    return f"{np.mean([each.rollout_turns for each in spent]):,.0f}" if spent else _NEVER


def _curves(summaries: Sequence[Summary]) -> Table:
    """Mean validation success over seeds; shorter curves end earlier."""
    curves = {
        name: found
        for name in summaries[0].in_domain
        if (found := [curve for each in summaries if (curve := _validation(each, name))])
    }
    steps = sorted({step for found in curves.values() for each in found for step in each.steps})
    return table(
        ("after step", *map(str, steps)),
        ((name, *(_mean_at(found, step) for step in steps)) for name, found in curves.items()),
        "Means over seeds; after step 0 it is the base.",
    )


def _validation(summary: Summary, name: str) -> Series | None:
    found = (each.series.get("validation") for each in summary.curves if each.method == name)
    return next(found, None)


def _mean_at(curves: Sequence[Series], step: int) -> str:
    values = [each.values[each.steps.index(step)] for each in curves if step in each.steps]
    return percent(float(np.mean(values)), 0) if values else ""


def _recovery(summaries: Sequence[Summary]) -> Table:
    return _recovered(
        [each.recovery.scores for each in summaries if each.recovery],
        [each.recovery.gold for each in summaries if each.recovery],
    )


def _diagnosis(summaries: Sequence[Summary]) -> Table:
    """The base from before its mistakes, and with help."""
    return _recovered([each.recovery.diagnosis for each in summaries if each.recovery], [])


def _recovered(
    scores: Sequence[Mapping[str, RecoveryScore]],
    gold: Sequence[Mapping[str, float | None]],
) -> Table:
    names = list(scores[0]) if scores else []
    return table(
        ("policy", "rate", "by seed", "turns, won", "optimum there", "right action", "replays"),
        (
            (
                name,
                _mean([each[name].rate.value for each in scores]),
                " ".join(percent(each[name].rate.value) for each in scores),
                _mean([each[name].turns for each in scores], "{:.1f}".format),
                _mean([each[name].optimum for each in scores], "{:.1f}".format),
                _mean([each[name] for each in gold if name in each]),
                f"{sum(each[name].replays for each in scores):,}",
            )
            for name in names
        ),
        "Right action: the mean probability of the oracle's action where the mistake was made.",
    )


def _teachers(summaries: Sequence[Summary]) -> Table:
    """Counted over all seeds: a ratio of few marks has no mean."""
    found: dict[str, list[TeacherScore]] = {}
    for summary in summaries:
        for name, score in (summary.recovery.teachers if summary.recovery else {}).items():
            found.setdefault(name, []).append(score)
    return table(
        ("teacher of", "episodes", "marks", "oracle's", "precision", "recall", "within one turn"),
        (
            (
                name,
                f"{sum(each.episodes for each in scores):,}",
                f"{sum(each.marks for each in scores):,}",
                f"{sum(each.oracle_marks for each in scores):,}",
                *(
                    " ".join(percent(getattr(each, part)) for each in scores)
                    for part in ("precision", "recall", "within_one")
                ),
            )
            for name, scores in found.items()
        ),
        "A value a seed; sums over seeds of what was counted.",
    )


def _levels(summaries: Sequence[Summary]) -> Table:
    """Means over the seeds that reached the level; profiling counted where it was needed."""
    levels = [each.level for each in summaries if each.level]
    names = list(levels[0].reached) if levels else []
    rows = []
    for name in names:
        reached = [found for each in levels if (found := each.reached[name])]
        rows.append(
            (
                name,
                f"{len(reached)} of {len(levels)}",
                _reached(reached, lambda each: each.step),
                _reached(reached, lambda each: each.cost.rollout_turns),
                _reached(reached, lambda each: each.cost.sampled_tokens),
                _reached(reached, lambda each: each.cost.seconds),
            )
        )
    return table(
        ("method", "seeds that reached it", "step", "rollout turns", "sampled tokens", "seconds"),
        rows,
        f"The level is {percent(levels[0].level, 0)} of validation games; means over the seeds "
        "that reached it, profiling counted."
        if levels
        else "",
    )


def _reached(reached: Sequence[Reached], value: Callable[[Reached], float]) -> str:
    return f"{np.mean([value(each) for each in reached]):,.0f}" if reached else "never"


def _mean(values: Sequence[float | None], shown: Callable[[float], str] = percent) -> str:
    """The mean, where every seed has a value."""
    known = [each for each in values if each is not None]
    return shown(float(np.mean(known))) if known and len(known) == len(values) else _NEVER
