"""`pivotune tax`: what training did to the headroom, from tallies or by playing a suite."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pivotune.cli.screen import Screen
from pivotune.models.threads import limit_threads


def tax(
    base: Annotated[
        str,
        typer.Argument(
            help="The base: a file of tallies (CSV or JSON Lines: task, c, n), a run folder, a "
            "model folder or name, `lab`, or an endpoint (http://host/v1#model)."
        ),
    ],
    posts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[POST]...",
            help="What is compared with it, named the same way. A run folder stands for all its "
            "methods; a run folder as base needs no other.",
        ),
    ] = None,
    suite: Annotated[str | None, typer.Option(help="`domain:split` to play.")] = None,
    tasks: Annotated[int | None, typer.Option(help="How many tasks of it. Default 100.")] = None,
    rollouts: Annotated[int | None, typer.Option(help="Times each task. Default 64.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling. Default 1.0.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draws tasks and random streams.")] = None,
    k: Annotated[int, typer.Option(help="Largest budget of tries; 0: half the rollouts.")] = 0,
    base_transcript: Annotated[
        bool,
        typer.Option("--base-transcript", help="Prompt the base by the base-model harness."),
    ] = False,
    join: Annotated[
        bool,
        typer.Option(
            "--join",
            help="All arguments are finished runs of one recipe that differ in their seed (or "
            "folders of results): one table over seeds. Nothing is played.",
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("tax"),
) -> None:
    """pass@k, headroom and Sharpening Tax of models against a base. Goes on where it stopped."""
    limit_threads()
    from pivotune.pipeline.compare import compare
    from pivotune.pipeline.counting import Wanted
    from pivotune.pipeline.joined import join_runs
    from pivotune.report.tax.section import tax_section
    from pivotune.report.tax.seeds import over_seeds_tables
    from pivotune.report.tax.sentences import forecast_sentence

    screen = Screen(Console())
    if join:
        joined = join_runs([base, *(posts or [])], out, screen)
        for title, shown in over_seeds_tables(joined):
            screen.table(title, shown)
        screen.say(forecast_sentence(joined.forecast))
        screen.say(f"tables: {out / 'seeds.md'}   figures: {out / 'seeds.json'}")
        return
    wanted = Wanted(
        suite,
        tasks,
        rollouts,
        temperature,
        seed,
        k,
        "transcript" if base_transcript else "template",
    )
    found = compare(base, posts or [], wanted, out, screen)
    first = found.findings.comparisons[0]
    section = tax_section(found.findings, first.name, [])
    assert section is not None
    for title, table in (
        ("Scores", section.scores),
        ("Classes, by number of tasks", section.classes),
        ("Which model to ask", section.router),
        *((("At equal first tries", section.matched),) if section.matched else ()),
        ("When every try has to succeed", section.reliability),
        (f"Tasks that moved under {first.name}", section.moves),
    ):
        screen.table(title, table)
    for line in (*section.says, section.forecast, f"{found.convention}."):
        screen.say(line)
    screen.say(f"page: {out / 'tax.html'}   tables: {out / 'tax.md'}   figures: {out / 'tax.json'}")
