"""Models named by a person, and their tallies: read, or counted by playing a suite.

A model is named by a file of tallies (CSV or JSON Lines: task, c, n), by a run folder (its base
and every method that it trained), by what `model` in a recipe takes (a folder, a hub name,
`lab`), or by a chat endpoint (`http://host/v1#model`). What is not counted yet is played. In the
output folder

    outcomes/MODEL.jsonl   one record an episode: what was killed goes on, and so do more tasks
    tallies/MODEL.csv      task, c, n: can be read again, here or elsewhere
"""

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from pivotune.core.errors import DataError, StoreError
from pivotune.core.protocols import Sampler
from pivotune.core.scores import Evaluated
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_json, write_atomic, write_json
from pivotune.core.tally import Tally
from pivotune.core.types import content_hash
from pivotune.evaluate.metrics import (
    classify,
    coverage_curve,
    reliability_curve,
    success_rate,
)
from pivotune.evaluate.tallies import COLUMNS, read_tallies
from pivotune.models.policy import Prompts, load_policy
from pivotune.models.server import ServerConfig, ServerSampler
from pivotune.pipeline.evaluation import play_suite, policies
from pivotune.pipeline.policies import open_policy, open_sampler, prompt_findings, prompt_maker
from pivotune.pipeline.recipe import Recipe, load_recipe
from pivotune.pipeline.run import BASE, Run, Watch
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.tax import TaxSettings, suite_tallies, tally_suite, tax_settings, tax_suite

Tallies = dict[str, Tally]
TALLY_FILES = (".csv", ".json", ".jsonl", ".ndjson")
KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable that holds the key of an endpoint, where it wants one."""


class Wanted(msgspec.Struct, frozen=True):
    """What a person asks for; None is what the first run folder used, else the default."""

    suite: str | None = None
    tasks: int | None = None
    rollouts: int | None = None
    temperature: float | None = None
    seed: int | None = None
    k: int = 0
    base_prompts: Prompts = "template"


class Counted(msgspec.Struct, frozen=True):
    """One model's tallies and where they come from."""

    tallies: Tallies
    source: str


class Model(msgspec.Struct, frozen=True):
    """A model before it is counted; `count` plays what is not known yet.

    `objective` and `verifier` are those of a run's method.
    """

    name: str
    place: Path
    count: Callable[[TaxSettings], Counted]
    objective: str = ""
    verifier: str = ""


class _Mark(msgspec.Struct, frozen=True):
    """Which weights and settings a log of outcomes belongs to."""

    policy: str
    settings: str


def evaluate_models(
    given: Sequence[str], wanted: Wanted, out: Path, watch: Watch
) -> dict[str, Evaluated]:
    """Count every model that is named; writes the tallies and `evaluate.json`."""
    opened = [
        model for each in given for model in open_models(each, out, watch, wanted.base_prompts)
    ]
    models = opened if len(opened) == 1 else tell_apart(opened)
    settings = settings_of(given, wanted)
    counted = {model.name: model.count(settings) for model in models}
    tallies = {name: each.tallies for name, each in counted.items()}
    k = wanted.k or common_rollouts(tallies)
    found = {
        name: Evaluated(
            success_rate(each.tallies),
            coverage_curve(each.tallies, k),
            reliability_curve(each.tallies, k),
            classify(each.tallies),
            each.source,
        )
        for name, each in counted.items()
    }
    write_tallies(out, tallies)
    write_json(out / "evaluate.json", found)
    return found


def common_rollouts(tallies: Mapping[str, Tallies]) -> int:
    """The most rollouts that some task has of every model; 1 where no task is common."""
    first, *rest = tallies.values()
    common = [task for task in first if all(task in side for side in rest)]
    return max((min(side[task].n for side in tallies.values()) for task in common), default=1)


def write_tallies(out: Path, tallies: Mapping[str, Tallies]) -> None:
    """`tallies/MODEL.csv` of each."""
    for name, each in tallies.items():
        write_atomic(out / "tallies" / f"{_file_name(name)}.csv", _csv(each))


def settings_of(given: Sequence[str], wanted: Wanted) -> TaxSettings:
    """What is played: as asked for, else as in the first run folder, else the defaults."""
    runs = [Path(each) for each in given if is_run(Path(each))]
    found = tax_settings(run_recipe(runs[0])) if runs else TaxSettings()
    asked = {
        name: value
        for name in ("suite", "tasks", "rollouts", "temperature", "seed")
        if (value := getattr(wanted, name)) is not None
    }
    settings = msgspec.structs.replace(found, **asked)
    if settings.rollouts < 1 or settings.tasks < 1 or settings.temperature < 0:
        raise DataError(
            "these settings cannot be played",
            got=settings.describe(),
            expected="at least one task and one rollout, a temperature of at least 0",
        )
    return settings


# Models


def open_models(given: str, out: Path, watch: Watch, prompts: Prompts = "template") -> list[Model]:
    """One model, or a run's base and methods, which are prompted as in the run.

    Where the run's recipe names the methods to be counted, these.
    """
    path = Path(given)
    if path.suffix.lower() in TALLY_FILES and not _is_endpoint(given) and not path.is_dir():
        return [Model(path.stem, path, partial(_read, path))]
    if not is_run(path):
        return [Model(_model_name(given), path, partial(_play_model, given, prompts, out, watch))]
    run = Run(RunFolder(path, run_recipe(path)), watch)
    return [
        _policy(run, name, partial(_play_policy, run, name, checkpoint, out))
        for name, checkpoint in policies(run).items()
        if name in (BASE, *run.recipe.taxed_methods)
    ]


def _policy(run: Run, name: str, count: Callable[[TaxSettings], Counted]) -> Model:
    place, method = run.folder.path / name, run.recipe.methods.get(name)
    if method is None:
        return Model(name, place, count)
    return Model(name, place, count, method.objective, run.recipe.verifier_of(method))


def is_run(path: Path) -> bool:
    """Whether this is a run folder."""
    return (path / "recipe.toml").is_file()


def run_recipe(path: Path) -> Recipe:
    """The recipe that a run folder holds."""
    return load_recipe(path / "recipe.toml")


def _is_endpoint(given: str) -> bool:
    return given.startswith(("http://", "https://"))


def _model_name(given: str) -> str:
    """The folder's name, with the one above where the trainer gave it; an endpoint's model."""
    if _is_endpoint(given):
        return given.partition("#")[2] or "endpoint"
    path = Path(given)
    return "/".join(path.parts[-2:]) if path.name in {"best", "final", "model"} else path.name


def tell_apart(models: Sequence[Model]) -> list[Model]:
    """Models of one name are called by their folder too; the base keeps its name."""
    names = [model.name for model in models]
    renamed = [
        model
        if names.count(model.name) == 1 and model.name != BASE
        else msgspec.structs.replace(
            model, name=f"{model.place.resolve().parent.name}/{model.name}"
        )
        for model in models
    ]
    files = [_file_name(model.name) for model in renamed]
    if double := next((name for name in files if files.count(name) > 1), ""):
        raise DataError(
            f"two models are called {double!r}",
            got=", ".join(str(model.place) for model in models),
            fix="rename a file or folder, so that the tables can tell them apart",
        )
    return renamed


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.@-]+", "-", name)


# Counting


def _read(path: Path, settings: TaxSettings) -> Counted:
    return Counted(read_tallies(path), f"tallies read from {path.name}")


def _play_policy(
    run: Run, name: str, checkpoint: Path | None, out: Path, settings: TaxSettings
) -> Counted:
    """A policy of a run: as it was counted there, or played."""
    recorded = run.folder.marks.get(f"tax/{name}")
    if recorded and recorded.done and settings == tax_settings(run.recipe):
        tallies = suite_tallies(run, name, tax_suite(settings))
        source = f"counted in the run {run.folder.path.name}: {settings.describe()}"
        return Counted(tallies, source)
    key = f"{run.folder.path.resolve().name}-{name}"

    def sampler() -> Sampler:
        return open_sampler(open_policy(run, checkpoint))

    return _play(sampler, name, key, out, run.watch, settings)


def _play_model(
    given: str, prompts: Prompts, out: Path, watch: Watch, settings: TaxSettings
) -> Counted:
    name = _model_name(given)
    key = f"{name}-{prompts}" if prompts != "template" else name
    return _play(partial(_sampler_of, given, prompts), name, key, out, watch, settings)


def _sampler_of(given: str, prompts: Prompts) -> Sampler:
    if _is_endpoint(given):
        url, _, model = given.partition("#")
        key_env = KEY_VARIABLE if KEY_VARIABLE in os.environ else ""
        return ServerSampler(ServerConfig(url=url, model=model, chat=True, key_env=key_env), None)
    source = msgspec.structs.replace(Recipe(), model=given).model_path
    return open_sampler(load_policy(source, prompts=prompts))


def _play(
    opened: Callable[[], Sampler],
    name: str,
    key: str,
    out: Path,
    watch: Watch,
    settings: TaxSettings,
) -> Counted:
    sampler, suite = opened(), tax_suite(settings)
    log = out / "outcomes" / f"{_file_name(key)}.jsonl"
    how = msgspec.structs.replace(settings, tasks=0, rollouts=0)
    _check_mark(log.with_suffix(".mark.json"), _Mark(sampler.policy_hash, content_hash(how)))
    seed = derive_seed(settings.seed, "tax")
    title = f"{name}: {suite.rollouts} tries of {suite.name}"
    outcomes = play_suite(watch, title, sampler, suite, seed, log)
    prompts = "; ".join((f"prompts: {prompt_maker(sampler)}", *prompt_findings(sampler)))
    source = f"weights {sampler.policy_hash}; {settings.describe()}; {prompts}"
    return Counted(tally_suite(outcomes, suite), source)


def _check_mark(path: Path, mark: _Mark) -> None:
    """Outcomes of other weights or settings are never mixed with these."""
    if not path.exists():
        write_json(path, mark)
    elif (found := read_json(path, _Mark)) != mark:
        raise StoreError(
            "this model was played here with other weights or settings",
            where=str(path),
            got=f"weights {found.policy}, settings {found.settings}",
            expected=f"weights {mark.policy}, settings {mark.settings}",
            fix="use another --out folder; more tasks or rollouts alone go on in this one",
        )


def _csv(tallies: Mapping[str, Tally]) -> bytes:
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(COLUMNS)
    rows.writerows((task, each.successes, each.n) for task, each in tallies.items())
    return out.getvalue().encode()
