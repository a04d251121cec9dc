"""A controlled study: every method at the best rate of one grid, then several seeds.

    tuning    one run: each method at each learning rate, judged on validation games only
    seeds     one whole run a seed, each method at its chosen rate
    result    study.json: figures by seed, and their mean and range over seeds

Everything is ordinary runs in folders below the study's, so a study that was killed goes on.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from pivotune.core.errors import RecipeError
from pivotune.core.store import read_json, write_json
from pivotune.pipeline.flow import run_stages
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run import Run, Watch
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.summary import Summary
from pivotune.pipeline.training import Training


class StudyConfig(msgspec.Struct, frozen=True):
    """Learning rates tried for every method, the seed of the tuning run, and the final seeds."""

    grid: tuple[float, ...] = (1e-4, 3e-4, 1e-3)
    tuning_seed: int = 1000
    seeds: tuple[int, ...] = (1, 2, 3)


class Figure(msgspec.Struct, frozen=True):
    """One score over seeds: the mean, the extremes, and each seed's value."""

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]


class StudyResult(msgspec.Struct, frozen=True):
    """Validation scores by method and rate, the chosen rates, and scores by policy."""

    validation: dict[str, dict[str, float]]
    chosen: dict[str, float]
    in_domain: dict[str, Figure]
    out_of_domain: dict[str, Figure]
    gain: dict[str, Figure]
    retention: dict[str, Figure]


def run_study(folder: Path, recipe: Recipe, config: StudyConfig, watch: Watch) -> StudyResult:
    """Tune, run every seed, and write `study.json`."""
    validation = _tune(folder / "tuning", recipe, config, watch)
    chosen = {name: max(scores, key=scores.__getitem__) for name, scores in validation.items()}
    watch.say("chosen learning rates: " + ", ".join(f"{k} {v}" for k, v in chosen.items()))
    methods = {
        name: msgspec.structs.replace(method, learning_rate=float(chosen[name]))
        for name, method in recipe.methods.items()
    }
    summaries = []
    for seed in config.seeds:
        seeded = msgspec.structs.replace(recipe, seed=seed, methods=methods)
        path = folder / f"seed-{seed}"
        run_stages(Run(RunFolder(path, seeded), watch))
        summaries.append(read_json(path / "summary.json", Summary))
    result = _summarise(validation, {k: float(v) for k, v in chosen.items()}, summaries)
    write_json(folder / "study.json", result)
    return result


def _tune(
    folder: Path, recipe: Recipe, config: StudyConfig, watch: Watch
) -> dict[str, dict[str, float]]:
    """Best validation success of every method at every rate of the grid."""
    methods = {
        _at(name, rate): msgspec.structs.replace(method, learning_rate=rate)
        for name, method in recipe.methods.items()
        for rate in config.grid
    }
    tuned = msgspec.structs.replace(recipe, seed=config.tuning_seed, methods=methods)
    run = Run(RunFolder(folder, tuned), watch)
    run_stages(run, last="train")
    return {
        name: {
            str(rate): _best_score(run.folder.checkpoints(_at(name, rate))) for rate in config.grid
        }
        for name in recipe.methods
    }


def _at(name: str, rate: float) -> str:
    return f"{name}@{rate}"


def _best_score(checkpoints: Path) -> float:
    score = read_json(checkpoints / "result.json", Training).best_score
    if score is None:
        raise RecipeError(
            "a study chooses rates by validation games", fix="set evaluate.validation_games"
        )
    return score


def _summarise(
    validation: dict[str, dict[str, float]],
    chosen: dict[str, float],
    summaries: Sequence[Summary],
) -> StudyResult:
    names = list(summaries[0].in_domain)
    inside = {name: [each.in_domain[name].success for each in summaries] for name in names}
    outside = {name: [each.out_of_domain[name].success for each in summaries] for name in names}
    return StudyResult(
        validation=validation,
        chosen=chosen,
        in_domain={name: _figure(values) for name, values in inside.items()},
        out_of_domain={name: _figure(values) for name, values in outside.items()},
        gain={name: _figure(_minus(inside[name], inside["base"])) for name in names},
        retention={name: _figure(_minus(outside[name], outside["base"])) for name in names},
    )


def _minus(values: Sequence[float], base: Sequence[float]) -> list[float]:
    return [value - start for value, start in zip(values, base, strict=True)]


def _figure(values: Sequence[float]) -> Figure:
    return Figure(float(np.mean(values)), min(values), max(values), tuple(values))
