"""Many rollouts of each task by the base and every method, and the Sharpening Tax from them.

In: trained policies of a run. Out: `tallies/POLICY/SUITE.jsonl`, one record an episode, from
which the report makes tallies. Nothing is played where the recipe does not ask for it.

With `tax.checkpoints` the policies that training validated are played too, a few times each
(`tallies/METHOD@STEP`). For every pair of methods the checkpoint at which the better one's first
try is as good as the other's is then played on, K times a task: the tax at equal first tries.
"""

from pathlib import Path

import msgspec

from pivotune.core.errors import StoreError
from pivotune.core.scores import Matched, TaxFindings
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_records
from pivotune.core.tally import Tally
from pivotune.domains.catalog import suite_tasks
from pivotune.evaluate.matched import Place, compare_matched, pair_places
from pivotune.evaluate.suites import Outcome, Suite, suite_cost, tallies
from pivotune.evaluate.tax import find_tax
from pivotune.pipeline.evaluation import play_suite, policies
from pivotune.pipeline.policies import base_settings, open_policy, open_sampler
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run import BASE, Run
from pivotune.pipeline.training import read_training
from pivotune.train.trainer import VALIDATED
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
    """Play every task many times with every policy; what has been played is kept.

    Checkpoints at equal first tries can only be chosen by the process that works on all methods.
    """
    recipe = run.recipe
    if not (recipe.tax.rollouts and recipe.evaluate.in_domain):
        return
    settings = tax_settings(recipe)
    for name, checkpoint in _taxed(run).items():
        _play(run, f"tax/{name}", Place(name), checkpoint, settings)
    if not recipe.tax.checkpoints:
        return
    few = msgspec.structs.replace(settings, rollouts=recipe.tax.checkpoints)
    for method in run.methods:
        if method not in recipe.taxed_methods:
            continue
        for place, checkpoint in _kept_policies(run, method).items():
            _play(run, f"tax/{place.name}", place, checkpoint, few)
    if run.only is None:
        _play_matched(run, settings)


def _play(
    run: Run,
    stage: str,
    place: Place,
    checkpoint: Path | None,
    settings: TaxSettings,
    known: int = 0,
) -> None:
    """One policy's rollouts; those below `known` were charged by another stage."""
    upstream = () if checkpoint is None else run.folder.settings(f"train/{place.method}")
    if not run.folder.begin(stage, (upstream, base_settings(run), settings)):
        return
    suite = tax_suite(settings)
    sampler = open_sampler(open_policy(run, checkpoint))
    title = f"{place.name}: {suite.rollouts} tries of {suite.name}"
    path, seed = run.folder.tallies(place.name, suite.name), derive_seed(settings.seed, "tax")
    outcomes = play_suite(run.watch, title, sampler, suite, seed, path)
    run.folder.finish(stage, suite_cost([each for each in outcomes if each.repeat >= known]))


def _kept_policies(run: Run, method: str) -> dict[Place, Path]:
    """The policies that a method's training kept, but the one that it ends with."""
    folder = run.folder.checkpoints(method) / VALIDATED
    kept = sorted(int(each.name) for each in folder.glob("[0-9]*"))
    if not kept:
        raise StoreError(
            "the policies that training validated were not kept",
            where=str(folder),
            fix="set tax.checkpoints before training (--redo train), or to 0",
        )
    best = read_training(run, method).best_step
    return {Place(method, step): folder / str(step) for step in kept if step != best}


def _play_matched(run: Run, settings: TaxSettings) -> None:
    """Play the checkpoints that pairs are compared at K times a task."""
    budget = _budget(run.recipe)
    few = run.recipe.tax.checkpoints
    enough = msgspec.structs.replace(settings, rollouts=max(budget, few))
    wanted = {place for pair in _pairs(run) for place in pair if place.step is not None}
    for place in sorted(wanted, key=lambda each: each.name):
        checkpoint = run.folder.checkpoints(place.method) / VALIDATED / str(place.step)
        _play(run, f"tax/{place.name} matched", place, checkpoint, enough, known=few)


def _pairs(run: Run) -> tuple[tuple[Place, Place], ...]:
    """Where every two methods are compared, by the first rollouts of all checkpoints."""
    settings = tax_settings(run.recipe)
    suite = tax_suite(settings)
    first = tax_suite(msgspec.structs.replace(settings, rollouts=run.recipe.tax.checkpoints))
    methods = run.recipe.taxed_methods
    finals = {method: suite_tallies(run, method, suite) for method in methods}
    curves = {
        method: {
            place.step: suite_tallies(run, place.name, first)
            for place in _kept_policies(run, method)
            if place.step is not None
        }
        for method in methods
    }
    return pair_places(finals, curves)


def _budget(recipe: Recipe) -> int:
    return tax_budget(recipe.tax.rollouts, recipe.tax.k)


def read_tax(run: Run) -> TaxFindings | None:
    """The findings of a run whose recipe asks for them; raises `StoreError` before the stage."""
    known = read_run_tallies(run)
    if known is None or len(known) < 2:
        return None
    base = known.pop(BASE)
    found = find_tax(base, known, _budget(run.recipe))
    return msgspec.structs.replace(found, matched=read_matched(run))


def read_matched(run: Run) -> tuple[Matched, ...]:
    """Pairs of methods at equal first tries; none where the recipe does not ask for it."""
    if not run.recipe.tax.checkpoints:
        return ()
    suite = tax_suite(tax_settings(run.recipe))
    return compare_matched(
        _pairs(run), lambda place: suite_tallies(run, place.name, suite), _budget(run.recipe)
    )


def read_run_tallies(run: Run) -> dict[str, dict[str, Tally]] | None:
    """Tallies of every policy, the base first; None where the recipe asks for none."""
    if not (run.recipe.tax.rollouts and run.recipe.evaluate.in_domain):
        return None
    suite = tax_suite(tax_settings(run.recipe))
    return {name: suite_tallies(run, name, suite) for name in _taxed(run)}


def _taxed(run: Run) -> dict[str, Path | None]:
    """The policies whose tax is counted: the base, and the methods that the recipe names."""
    named = (BASE, *run.recipe.taxed_methods)
    return {name: path for name, path in policies(run).items() if name in named}


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
