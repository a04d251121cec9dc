"""Base and trained policies on the same tasks, with the same random streams."""

from pathlib import Path

from pivotune.core.protocols import Sampler
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_records
from pivotune.core.types import Cost
from pivotune.domains.catalog import make_environment, suite_tasks
from pivotune.evaluate.suites import Kind, Outcome, Suite, evaluate_suite, suite_cost
from pivotune.pipeline.policies import base_settings, open_policy, open_sampler
from pivotune.pipeline.run import BASE, Run, Watch
from pivotune.pipeline.training import trained_policy
from pivotune.turns.rollout import EpisodeLimits


def suites(run: Run) -> list[Suite]:
    """The in-domain and the out-of-domain suite; one without items is left out."""
    settings = run.recipe.evaluate
    wanted: list[tuple[str, Kind, int]] = [
        (settings.in_domain, "in_domain", settings.episodes),
        (settings.out_of_domain, "out_of_domain", settings.items),
    ]
    return [
        Suite(
            name=name,
            kind=kind,
            tasks=suite_tasks(name, n, derive_seed(run.recipe.seed, "evaluation")),
            temperature=settings.temperature,
            limits=EpisodeLimits(settings.max_turns, run.recipe.profile.max_tokens),
        )
        for name, kind, n in wanted
        if name and n
    ]


def policies(run: Run) -> dict[str, Path | None]:
    """Every policy that the run works on, by name; None is the base."""
    trained = {name: trained_policy(run, name) for name in run.methods}
    return {BASE: None, **trained} if run.works_on(BASE) else {**trained}


def evaluate(run: Run) -> None:
    """Play every suite with every policy; what has been played is kept."""
    recipe, wanted = run.recipe, suites(run)
    if not wanted:
        return
    for name, checkpoint in policies(run).items():
        stage = f"evaluate/{name}"
        upstream = () if checkpoint is None else run.folder.settings(f"train/{name}")
        settings = (upstream, base_settings(run), recipe.evaluate, recipe.profile.max_tokens)
        if not run.folder.begin(stage, (*settings, recipe.seed)):
            continue
        sampler = open_sampler(open_policy(run, checkpoint))
        cost = Cost()
        for suite in wanted:
            title = f"{name} on {suite.name}"
            seed = derive_seed(recipe.seed, "evaluation")
            path = run.folder.outcomes(name, suite.name)
            cost += suite_cost(play_suite(run.watch, title, sampler, suite, seed, path))
        run.folder.finish(stage, cost)


def play_suite(
    watch: Watch, title: str, sampler: Sampler, suite: Suite, seed: int, path: Path
) -> list[Outcome]:
    """Play what the log at `path` lacks, under a bar; all outcomes in suite order."""
    total = len(suite.tasks) * suite.rollouts
    with watch.progress(title, total, "episodes") as advance:
        return evaluate_suite(
            sampler, suite, make_environment, seed=seed, path=path, on_progress=advance
        )


def read_outcomes(run: Run, policy: str, suite: Suite) -> list[Outcome]:
    """All outcomes of a policy on a suite, in the order in which they ended."""
    return list(read_records(run.folder.outcomes(policy, suite.name), Outcome))
