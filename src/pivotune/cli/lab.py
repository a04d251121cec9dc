"""`pivotune lab`: build the embedded base model, run a study over rates and seeds."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pivotune.cli.screen import Screen
from pivotune.models.threads import limit_threads
from pivotune.pipeline.recipe import load_recipe, model_path

app = typer.Typer(help="The controlled study: base models and comparisons.", no_args_is_help=True)


@app.command()
def base(
    out: Annotated[Path, typer.Argument(help="Folder for the tokenizer, the run and the model.")],
    seed: Annotated[int, typer.Option(help="One seed gives one model on one kind of CPU.")] = 0,
) -> None:
    """Build the base model from nothing (half an hour on one core); resumes."""
    limit_threads()
    from pivotune.lab.base_model import BaseConfig, build_base
    from pivotune.lab.measure import MeasureConfig

    config = BaseConfig()
    screen = Screen(Console())
    with screen.progress("training the base", config.steps, "steps") as advance:
        card = build_base(
            out, config, seed=seed, measure=MeasureConfig(), on_step=lambda metrics: advance(1)
        )
    for temperature, games in card.measured.household.items():
        screen.say(f"household at temperature {temperature}: {games.won.share:.1%}")
    screen.say(f"model and card: {out / 'model'}")


@app.command()
def teacher(
    out: Annotated[Path, typer.Argument(help="Folder for the run and the model.")],
    base: Annotated[str, typer.Option(help="The policy to train on: lab, or a folder.")] = "lab",
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 600,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Build a stronger model from the base, to be a `teacher_model`; minutes, resumes."""
    limit_threads()
    from pivotune.lab.measure import MeasureConfig
    from pivotune.lab.teacher import TeacherConfig, build_teacher
    from pivotune.models.policy import load_policy

    config = TeacherConfig(steps=steps)
    screen = Screen(Console())
    measure = MeasureConfig(items=20, temperatures=(1.0, 0.0), skill_temperatures=(1.0,))
    with screen.progress("training the teacher", config.steps, "steps") as advance:
        card = build_teacher(
            out,
            load_policy(model_path(base)),
            config,
            seed=seed,
            measure=measure,
            on_step=lambda metrics: advance(1),
        )
    for temperature, games in card.measured.household.items():
        screen.say(f"household at temperature {temperature}: {games.won.share:.1%}")
    screen.say(f"hints followed {card.measured.hints.share:.1%}")
    screen.say(f"mistakes found in transcripts {card.measured.judged_turn.share:.1%}")
    screen.say(f"model and card: {out / 'model'}")


@app.command()
def study(
    recipe: Annotated[Path, typer.Argument(help="The recipe whose methods are compared.")],
    run: Annotated[Path, typer.Option("--run", "-r", help="The study's folder.")],
    rates: Annotated[str, typer.Option(help="The grid of learning rates.")] = "1e-4,3e-4,1e-3",
    seeds: Annotated[str, typer.Option(help="Seeds of the final runs.")] = "1,2,3",
    share_rates: Annotated[
        bool,
        typer.Option(
            "--share-rates",
            help="Tune the first method of each objective; the others take its rate.",
        ),
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes at once; each works on one method of one seed.")
    ] = 1,
) -> None:
    """Every method at the best rate of one grid, then several seeds; resumes."""
    limit_threads()
    from pivotune.lab.study import StudyConfig, run_study

    config = StudyConfig(
        grid=tuple(float(each) for each in rates.split(",")),
        seeds=tuple(int(each) for each in seeds.split(",")),
        share_rates=share_rates,
        jobs=jobs,
    )
    screen = Screen(Console())
    result = run_study(run, load_recipe(recipe), config, screen)
    for name in result.in_domain:
        screen.say(
            f"{name:>14}: in-domain {result.in_domain[name].mean:6.1%} "
            f"(gain {result.gain[name].mean:+.1%}), out-of-domain "
            f"{result.out_of_domain[name].mean:6.1%} (change {result.retention[name].mean:+.1%})"
        )
    screen.say(f"figures: {run / 'study.json'}; tables: {run / 'study.md'}")
