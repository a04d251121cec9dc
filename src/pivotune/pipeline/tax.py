"""Many rollouts of each task by the base and every method, and the Sharpening Tax from them.

In: trained policies of a run. Out: `tallies/POLICY/SUITE.jsonl`, one record an episode, from
which the report makes tallies. Nothing is played where the recipe does not ask for it.
"""

import msgspec

from pivotune.core.scores import TaxFindings
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_records
from pivotune.core.tally import Tally
from pivotune.domains.catalog import suite_tasks
from pivotune.evaluate.suites import Outcome, Suite, suite_cost, tallies
from pivotune.evaluate.tax import find_tax
from pivotune.pipeline.evaluation import play_suite, policies
from pivotune.pipeline.policies import base_settings, open_policy, open_sampler
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run import BASE, Run
from pivotune.turns.rollout import EpisodeLimits

PUBLISHED_ROLLOUTS = 64
"""Rollouts a task where nobody says how many; half of it is the published K of 32."""


class TaxSettings(msgspec.Struct, frozen=True):
    """What is played and how: equal settings and equal weights give equal tallies.

    `seed` draws the tasks and every episode's random stream.
    """

    suite: str = "household:unseen"
    tasks: int = 100
    rollouts: int = PUBLISHED_ROLLOUTS
    temperature: float = 1.0
    max_turns: int = 30
    max_tokens: int = 48
    seed: int = 0

    def describe(self) -> str:
        """One line for the page."""
        return (
            f"{self.suite}: {self.tasks:,} tasks, {self.rollouts} rollouts each at temperature "
            f"{self.temperature:g}, at most {self.max_turns} turns of {self.max_tokens} tokens, "
            f"seed {self.seed}"
        )


def tax_settings(recipe: Recipe) -> TaxSettings:
    """The settings of a recipe; 64 rollouts where it asks for none."""
    return TaxSettings(
        suite=recipe.evaluate.in_domain,
        tasks=recipe.tax.tasks,
        rollouts=recipe.tax.rollouts or PUBLISHED_ROLLOUTS,
        temperature=recipe.evaluate.temperature,
        max_turns=recipe.evaluate.max_turns,
        max_tokens=recipe.profile.max_tokens,
        seed=recipe.seed,
    )


def tax_suite(settings: TaxSettings) -> Suite:
    """The suite to play; its tasks are not those of the success score."""
    return Suite(
        name=settings.suite,
        kind="in_domain",
        tasks=suite_tasks(settings.suite, settings.tasks, derive_seed(settings.seed, "tax")),
        rollouts=settings.rollouts,
        temperature=settings.temperature,
        limits=EpisodeLimits(settings.max_turns, settings.max_tokens),
    )


def tax_budget(rollouts: int, k: int = 0) -> int:
    """K: the given one, else half the rollouts (and at least 2)."""
    return k or max(2, rollouts // 2)


def measure_tax(run: Run) -> None:
    """Play every task many times with every policy; what has been played is kept."""
    recipe = run.recipe
    if not (recipe.tax.rollouts and recipe.evaluate.in_domain):
        return
    settings = tax_settings(recipe)
    suite = tax_suite(settings)
    for name, checkpoint in policies(run).items():
        stage = f"tax/{name}"
        upstream = () if checkpoint is None else run.folder.settings(f"train/{name}")
        if not run.folder.begin(stage, (upstream, base_settings(run), settings)):
            continue
        sampler = open_sampler(open_policy(run, checkpoint))
        path = run.folder.tallies(name, suite.name)
        title = f"{name}: {suite.rollouts} tries of {suite.name}"
        seed = derive_seed(settings.seed, "tax")
        run.folder.finish(
            stage, suite_cost(play_suite(run.watch, title, sampler, suite, seed, path))
        )


def read_tax(run: Run) -> TaxFindings | None:
    """The findings of a run whose recipe asks for them; raises `StoreError` before the stage."""
    known = read_run_tallies(run)
    if known is None or len(known) < 2:
        return None
    base = known.pop(BASE)
    return find_tax(base, known, tax_budget(run.recipe.tax.rollouts, run.recipe.tax.k))


def read_run_tallies(run: Run) -> dict[str, dict[str, Tally]] | None:
    """Tallies of every policy, the base first; None where the recipe asks for none."""
    if not (run.recipe.tax.rollouts and run.recipe.evaluate.in_domain):
        return None
    suite = tax_suite(tax_settings(run.recipe))
    return {name: suite_tallies(run, name, suite) for name in policies(run)}


def suite_tallies(run: Run, policy: str, suite: Suite) -> dict[str, Tally]:
    """A policy's tallies in suite order, whatever the order in which episodes ended."""
    outcomes = read_records(run.folder.tallies(policy, suite.name), Outcome)
    return tally_suite(list(outcomes), suite)


def tally_suite(outcomes: list[Outcome], suite: Suite) -> dict[str, Tally]:
    """Tallies of the suite's own tasks and rollouts, in suite order."""
    wanted = {task.id for task in suite.tasks}
    used = [each for each in outcomes if each.task_id in wanted and each.repeat < suite.rollouts]
    counts = tallies(used, success_at=suite.success_at)
    return {task.id: counts[task.id] for task in suite.tasks if task.id in counts}
