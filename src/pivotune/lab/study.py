"""A controlled study: every method at the best rate of one grid, then several seeds.

    tuning    one run: each method at each learning rate, judged on validation games only
    seeds     one whole run a seed, each method at its chosen rate
    result    study.json: figures by seed, and their mean and range over seeds; study.md: tables

Everything is ordinary runs in folders below the study's, worked off in parts (`parts.py`), so a
study that was killed goes on, and several processes share the work.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from pivotune.core.errors import RecipeError
from pivotune.core.store import read_json, write_atomic, write_json
from pivotune.lab.parts import Part, run_parts
from pivotune.lab.study_tables import study_markdown
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run import BASE, Watch
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.summary import Summary
from pivotune.pipeline.training import Training


class StudyConfig(msgspec.Struct, frozen=True):
    """Learning rates tried for every method, the seed of the tuning run, and the final seeds.

    A grid of one rate needs no tuning. share_rates: only the first method of each objective is
    tuned, and all of them take its rate, so that ablations differ in nothing else. jobs: processes
    at once.
    """

    grid: tuple[float, ...] = (1e-4, 3e-4, 1e-3)
    tuning_seed: int = 1000
    seeds: tuple[int, ...] = (1, 2, 3)
    share_rates: bool = False
    jobs: int = 1


class Figure(msgspec.Struct, frozen=True):
    """One score over seeds: the mean, the extremes, and each seed's value."""

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]


class StudyResult(msgspec.Struct, frozen=True):
    """Validation scores by method and rate, the chosen rates, and scores by policy.

    `turns` are the rollout turns that training sampled, validation included; `recovery` is empty
    where it was not measured.
    """

    validation: dict[str, dict[str, float]]
    chosen: dict[str, float]
    in_domain: dict[str, Figure]
    out_of_domain: dict[str, Figure]
    gain: dict[str, Figure]
    retention: dict[str, Figure]
    recovery: dict[str, Figure] = {}
    turns: dict[str, Figure] = {}


def run_study(folder: Path, recipe: Recipe, config: StudyConfig, watch: Watch) -> StudyResult:
    """Tune, run every seed, and write `study.json` and `study.md`."""
    validation = {}
    chosen = dict.fromkeys(recipe.methods, config.grid[0])
    if len(config.grid) > 1:
        validation = _tune(folder / "tuning", recipe, config, watch)
        chosen = _choose(recipe, validation)
    watch.say("chosen learning rates: " + ", ".join(f"{k} {v:g}" for k, v in chosen.items()))
    methods = {
        name: msgspec.structs.replace(method, learning_rate=chosen[name])
        for name, method in recipe.methods.items()
    }
    parts: list[Part] = []
    for seed in config.seeds:
        seeded = msgspec.structs.replace(recipe, seed=seed, methods=methods)
        path = folder / f"seed-{seed}"
        mine = _split(path, seeded, "run")
        parts += [*mine, Part(path, seeded, "run", after=tuple(each.name for each in mine))]
    run_parts(parts, config.jobs, watch)
    summaries = [
        read_json(folder / f"seed-{seed}" / "summary.json", Summary) for seed in config.seeds
    ]
    result = _summarise(validation, chosen, summaries)
    write_json(folder / "study.json", result)
    write_atomic(folder / "study.md", study_markdown(summaries).encode())
    return result


def _split(folder: Path, recipe: Recipe, command: str) -> list[Part]:
    """The base's part of a run, and one for each method behind it."""
    base = Part(folder, recipe, command, BASE)
    return [
        base,
        *(Part(folder, recipe, command, name, (base.name,)) for name in recipe.methods),
    ]


def _tune(
    folder: Path, recipe: Recipe, config: StudyConfig, watch: Watch
) -> dict[str, dict[str, float]]:
    """Best validation success at every rate of the grid, of every method that is tuned."""
    names = _tuned_names(recipe) if config.share_rates else list(recipe.methods)
    methods = {
        _at(name, rate): msgspec.structs.replace(recipe.methods[name], learning_rate=rate)
        for name in names
        for rate in config.grid
    }
    tuned = msgspec.structs.replace(recipe, seed=config.tuning_seed, methods=methods)
    run_parts(_split(folder, tuned, "train"), config.jobs, watch)
    opened = RunFolder(folder, tuned)
    return {
        name: {str(rate): _best_score(opened.checkpoints(_at(name, rate))) for rate in config.grid}
        for name in names
    }


def _tuned_names(recipe: Recipe) -> list[str]:
    """The first method of each objective."""
    first: dict[str, str] = {}
    for name, method in recipe.methods.items():
        first.setdefault(method.objective, name)
    return list(first.values())


def _choose(recipe: Recipe, validation: dict[str, dict[str, float]]) -> dict[str, float]:
    """The best rate of every method, or of the tuned method of its objective."""
    best = {name: float(max(each, key=each.__getitem__)) for name, each in validation.items()}
    shared = {recipe.methods[name].objective: rate for name, rate in reversed(best.items())}
    return {
        name: best.get(name, shared.get(method.objective, method.learning_rate))
        for name, method in recipe.methods.items()
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
        recovery=_recovery(summaries),
        turns={
            name: _figure([each.cost[f"train/{name}"].rollout_turns for each in summaries])
            for name in names
            if f"train/{name}" in summaries[0].cost
        },
    )


def _recovery(summaries: Sequence[Summary]) -> dict[str, Figure]:
    found = [each.recovery.scores for each in summaries if each.recovery is not None]
    rates = {
        name: [each[name].rate.value for each in found] for name in (found[0] if found else ())
    }
    return {
        name: _figure([value for value in values if value is not None])
        for name, values in rates.items()
        if None not in values
    }


def _minus(values: Sequence[float], base: Sequence[float]) -> list[float]:
    return [value - start for value, start in zip(values, base, strict=True)]


def _figure(values: Sequence[float]) -> Figure:
    return Figure(float(np.mean(values)), min(values), max(values), tuple(values))
