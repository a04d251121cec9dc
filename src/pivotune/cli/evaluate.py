"""`pivotune evaluate` without a recipe: any models by themselves, on any suite."""

from pathlib import Path

from rich.console import Console

from pivotune.cli.screen import Screen
from pivotune.models.threads import limit_threads


def evaluate_named(
    models: list[str],
    suite: str,
    tasks: int | None,
    rollouts: int | None,
    temperature: float | None,
    seed: int | None,
    out: Path,
) -> None:
    """Play what is not played yet and show the table."""
    limit_threads()
    from pivotune.pipeline.counting import Wanted, evaluate_models
    from pivotune.report.tax.tables import evaluated_table

    screen = Screen(Console())
    wanted = Wanted(suite or None, tasks, 1 if rollouts is None else rollouts, temperature, seed)
    found = evaluate_models(models, wanted, out, screen)
    screen.table("Scores", evaluated_table(found))
    for name, each in found.items():
        screen.say(f"{name}: {each.source}")
    screen.say(f"tallies: {out / 'tallies'}   figures: {out / 'evaluate.json'}")
