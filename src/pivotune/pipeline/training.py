"""Every method of the recipe, trained from the same base on the same traces."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.config import check_keys
from pivotune.core.errors import RecipeError
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_json, write_json
from pivotune.core.types import Cost, Trajectory
from pivotune.domains.catalog import DOMAINS, make_environment, suite_tasks
from pivotune.evaluate.suites import Suite, score_suite
from pivotune.models.policy import Policy
from pivotune.models.sampler import TorchSampler
from pivotune.pipeline.policies import (
    open_base,
    open_sampler,
    open_teacher_model,
)
from pivotune.pipeline.profiling import read_selection, usable_profiles
from pivotune.pipeline.recipe import Method, Recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.sinks import open_sinks
from pivotune.pipeline.traces import part_of
from pivotune.pipeline.verifiers import open_environments, open_verifier
from pivotune.train.losses import LossConfig
from pivotune.train.objective import Materials, Objective
from pivotune.train.objectives import load_objective
from pivotune.train.trainer import Metrics, TrainConfig, Validation, train
from pivotune.turns.pivots import solved_turns
from pivotune.turns.rollout import EpisodeLimits

REPLAY_ITEMS = 2000
"""Items to replay from: enough that a run of the default length repeats few."""


class Training(msgspec.Struct, frozen=True):
    """A trained method: the folder of its policy, the best validation, and costs by phase."""

    steps: int
    policy: str
    best_step: int | None
    best_score: float | None
    costs: dict[str, Cost]


def train_methods(run: Run) -> None:
    """Train what is not trained yet; each method resumes from its own last checkpoint."""
    for name, method in run.methods.items():
        train_method(run, name, method)


def train_method(run: Run, name: str, method: Method) -> None:
    """One method, into `checkpoints/NAME`."""
    recipe = run.recipe
    stage = f"train/{name}"
    settings = (run.folder.settings("select"), method, recipe.evaluate, recipe.seed)
    if not run.folder.begin(stage, settings):
        return
    policy = open_base(run)
    if method.adapter_rank:
        policy.add_adapter(method.adapter_rank, derive_seed(recipe.seed, "adapter"))
    sampler = open_sampler(policy)
    folder = run.folder.checkpoints(name)
    with (
        run.watch.progress(f"training {name}", method.steps, "steps") as advance,
        open_sinks(
            recipe.track,
            folder=folder,
            run=run.folder.path.resolve().name,
            method=name,
            config=msgspec.to_builtins(method),
        ) as track,
    ):

        def on_step(metrics: Metrics) -> None:
            advance(1)
            track(metrics)

        result = train(
            policy,
            _objective(run, method, policy, sampler),
            _train_config(recipe, method),
            folder,
            on_step=on_step,
            evaluate=partial(validate, run, sampler),
            keep_validated=bool(recipe.tax.checkpoints),
        )
    # Run folders can be moved: the policy's place is kept relative to the method's folder.
    policy_folder = str(result.policy.relative_to(folder))
    write_json(
        folder / "result.json",
        Training(result.steps, policy_folder, result.best_step, result.best_score, result.costs),
    )
    best = "" if result.best_score is None else f", best validation {result.best_score:.1%}"
    run.watch.say(f"{name}: {result.steps} steps{best} (after step {result.best_step})")
    run.folder.finish(stage, sum(result.costs.values(), Cost()))


def read_training(run: Run, name: str) -> Training:
    """What became of a method; raises `StoreError` before it is trained."""
    return read_json(run.folder.checkpoints(name) / "result.json", Training)


def trained_policy(run: Run, name: str) -> Path:
    """The folder of a method's policy."""
    return run.folder.checkpoints(name) / read_training(run, name).policy


def _train_config(recipe: Recipe, method: Method) -> TrainConfig:
    return TrainConfig(
        steps=method.steps,
        seed=recipe.seed,
        learning_rate=method.learning_rate,
        schedule="cosine",
        evaluate_every=recipe.evaluate.every,
        checkpoint_every=min(10, recipe.evaluate.every) or 10,
        recompute=method.recompute,
        loss=loss_config(method),
    )


def loss_config(method: Method) -> LossConfig:
    """The method's loss; raises `RecipeError` for what cannot be meant."""
    where = f"loss of {method.objective}"
    if "beta" in method.loss:
        raise RecipeError("the weight of the KL is said once", where=where, fix="use the key kl")
    check_keys(LossConfig, method.loss, where)
    try:
        config = msgspec.convert({**method.loss, "beta": method.kl}, LossConfig)
    except msgspec.ValidationError as error:
        raise RecipeError(f"{where}: {error}") from error
    cap = 1.0 if config.importance_cap is None else config.importance_cap
    if min(config.clip_low, config.clip_high) < 0 or min(config.constant, cap) <= 0:
        raise RecipeError(
            "a loss with such limits has no meaning",
            where=where,
            got=", ".join(f"{key} {value}" for key, value in method.loss.items()),
            expected="clips of at least 0, a constant and an importance_cap above 0",
        )
    return config


def _objective(run: Run, method: Method, policy: Policy, sampler: TorchSampler) -> Objective:
    kind = load_objective(method.objective)
    return kind(_materials(run, method, policy, sampler), objective_config(method))


def objective_config(method: Method) -> msgspec.Struct:
    """The objective's own settings; raises `RecipeError` for what cannot be meant."""
    kind = load_objective(method.objective).Config
    batch = {"batch": method.batch} if "batch" in kind.__struct_fields__ else {}
    settings = {**batch, **method.settings}
    check_keys(kind, settings, f"settings of {method.objective}")
    try:
        return msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        raise RecipeError(f"settings of {method.objective}: {error}") from error


def _materials(run: Run, method: Method, policy: Policy, sampler: TorchSampler) -> Materials:
    recipe = run.recipe
    name = recipe.verifier_of(method)
    verifier = open_verifier(recipe, name)
    pivots = read_selection(run, name, recipe.rule_of(method)).selection.turn_ids
    experts = [
        trajectory for trajectory in run.trajectories() if part_of(trajectory, recipe) == "training"
    ]
    profiles, _ = usable_profiles(run, name)
    teacher, teacher_chat = (
        open_teacher_model(recipe, method.teacher_model) if method.teacher_model else (None, None)
    )
    return Materials(
        seed=derive_seed(recipe.seed, "train"),
        chat=policy.chat,
        sampler=sampler,
        turns=run.turns(pivots),
        solved=(
            run.turns(solved_turns(profiles, recipe.select))
            if is_set("guard", method.settings)
            else ()
        ),
        candidates=(
            run.turns(each.turn_id for each in profiles)
            if is_set("refresh", method.settings)
            else ()
        ),
        trajectories=experts,
        replay=_replay(recipe),
        profiles=profiles,
        verifier=verifier,
        environments=open_environments(verifier),
        tasks=list({each.task.id: each.task for each in experts}.values()),
        make_environment=make_environment,
        teacher=teacher,
        teacher_chat=teacher_chat,
        steps=method.steps,
        load=load_objective,
    )


def is_set(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a method, or one that it mixes, has this setting."""
    sources = settings.get("sources", {}).values()
    return key in settings or any(is_set(key, each.get("settings", {})) for each in sources)


def _replay(recipe: Recipe) -> list[Trajectory]:
    """Training items of the out-of-domain suite with their answers, where it has any."""
    name = recipe.evaluate.out_of_domain.partition(":")[0]
    expert = DOMAINS[name].expert if name in DOMAINS else None
    seed = derive_seed(recipe.seed, "replay")
    return [] if expert is None else list(expert(REPLAY_ITEMS, seed, 0.0))


def validate(run: Run, sampler: TorchSampler, step: int) -> Validation:
    """Success on the validation games, the same ones every time."""
    settings = run.recipe.evaluate
    suite = Suite(
        name=settings.validation,
        kind="in_domain",
        tasks=suite_tasks(
            settings.validation,
            settings.validation_games,
            derive_seed(run.recipe.seed, "validation games"),
        ),
        temperature=settings.temperature,
        limits=EpisodeLimits(settings.max_turns, run.recipe.profile.max_tokens),
    )
    success, cost = score_suite(sampler, suite, make_environment, seed=run.recipe.seed)
    return Validation(success, cost)
