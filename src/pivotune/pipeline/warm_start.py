"""The warm start: imitation of a held-apart part of the traces, for a model that cannot act yet.

What comes out is the run's base. The stage writes an ordinary model folder, `warm/final`, so
that no other stage knows whether there was one.
"""

from pivotune.core.errors import DataError
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, Trajectory
from pivotune.models.policy import Policy, load_policy
from pivotune.pipeline.run import Run
from pivotune.pipeline.traces import part_of
from pivotune.train.objective import Materials
from pivotune.train.objectives.sft import Sft, SftConfig
from pivotune.train.trainer import Metrics, TrainConfig, train

TOKEN_BUDGET = 2048
"""A micro-batch in tokens: a model of 135M parameters then stays within a few gigabytes."""


def warm_start(run: Run) -> None:
    """Train `warm/final` from the recipe's model; goes on where it stopped."""
    recipe, config = run.recipe, run.recipe.warm_start
    if not config.steps:
        return
    settings = (run.folder.settings("import"), recipe.model, config, recipe.candidates)
    if not run.folder.begin("warm", (*settings, recipe.thinking, recipe.seed)):
        return
    experts = warm_trajectories(run)
    if not experts:
        raise DataError(
            "no expert trajectory is left for the warm start",
            where=str(run.folder.path),
            fix="bring more traces, or raise warm_start.share",
        )
    policy = load_policy(recipe.model_path, thinking=recipe.thinking)
    if config.adapter_rank:
        policy.add_adapter(config.adapter_rank, derive_seed(recipe.seed, "warm adapter"))
    with run.watch.progress("warm start", config.steps, "steps") as advance:

        def on_step(metrics: Metrics) -> None:
            advance(1)

        result = train(
            policy,
            _imitation(run, policy, experts),
            TrainConfig(
                steps=config.steps,
                seed=recipe.seed,
                learning_rate=config.learning_rate,
                token_budget=TOKEN_BUDGET,
                precision=config.precision,
            ),
            run.folder.warm_start,
            on_step=on_step,
        )
    run.watch.say(f"warm start: {config.steps} steps on {len(experts)} trajectories")
    run.folder.finish("warm", sum(result.costs.values(), Cost()))


def warm_trajectories(run: Run) -> list[Trajectory]:
    """The expert trajectories that are used for the warm start and for nothing else."""
    return [each for each in run.trajectories() if part_of(each, run.recipe) == "warm start"]


def _imitation(run: Run, policy: Policy, experts: list[Trajectory]) -> Sft:
    materials = Materials(
        seed=derive_seed(run.recipe.seed, "warm start"), chat=policy.chat, trajectories=experts
    )
    limit = min(SftConfig().max_tokens, policy.context_limit)
    return Sft(materials, SftConfig(batch=run.recipe.warm_start.batch, max_tokens=limit))
