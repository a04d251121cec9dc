"""`pivotune`: one command a stage, and `run` for all of them.

Stages import torch only when they run: `--help` and the light commands stay quick.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pivotune import __version__
from pivotune.cli.lab import app as lab_app
from pivotune.cli.screen import Screen
from pivotune.cli.tax import tax
from pivotune.core.errors import PivotuneError, RecipeError
from pivotune.models.threads import limit_threads
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder

app = typer.Typer(
    name="pivotune",
    help="Find the turns of agent traces that matter, train only there, measure what it cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(lab_app, name="lab")
app.command()(tax)

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [KEY=VALUE]...",
        help="A recipe (TOML) and overrides. Without a recipe: the embedded default.",
    ),
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", "-r", help="The run folder. Default: runs/NAME-OF-THE-RECIPE."),
]
Redo = Annotated[
    str, typer.Option(help="Drop this stage's output and what follows, then go on from there.")
]


def _open(arguments: list[str] | None, run: Path | None, redo: str) -> Run:
    """The run folder under a recipe; a folder that holds one needs no recipe to go on."""
    given = arguments or []
    overrides = [each for each in given if "=" in each]
    recipes = [Path(each) for each in given if "=" not in each]
    if len(recipes) > 1:
        raise RecipeError("more than one recipe", got=" ".join(map(str, recipes)))
    recipe = recipes[0] if recipes else None
    if recipe is None and run is not None and (run / "recipe.toml").exists():
        recipe = run / "recipe.toml"
    name = recipe.stem if recipe is not None else "default"
    folder = RunFolder(run or Path("runs") / name, load_recipe(recipe, overrides))
    if redo:
        folder.redo(redo)
    return Run(folder, Screen(Console()))


def _run_to(run: Run, last: str) -> None:
    limit_threads()
    from pivotune.pipeline.flow import run_stages

    run_stages(run, last)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


@app.command(name="run")
def run_command(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """The whole flow: traces in, report out. Goes on where it stopped."""
    opened = _open(arguments, run, redo)
    _run_to(opened, "report")
    _say_results(opened)


@app.command(name="import")
def import_command(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """Read (or make) the traces; every row left out has a counted reason."""
    _run_to(_open(arguments, run, redo), "import")


@app.command()
def plan(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """What the run will cost and whether it can learn, before anything is spent."""
    _run_to(_open(arguments, run, redo), "plan")


@app.command()
def profile(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """Sample every candidate turn under the frozen policy and judge the samples."""
    _run_to(_open(arguments, run, redo), "profile")


@app.command()
def select(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """Choose the pivots; without sampling again when only the rule changed."""
    _run_to(_open(arguments, run, redo), "select")


@app.command()
def train(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """Train every method of the recipe from the same base."""
    _run_to(_open(arguments, run, redo), "train")


@app.command()
def evaluate(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """Base and trained policies, in-domain and out-of-domain."""
    _run_to(_open(arguments, run, redo), "evaluate")


@app.command()
def report(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """The page and the summary of a finished run."""
    opened = _open(arguments, run, redo)
    _run_to(opened, "report")
    _say_results(opened)


def _say_results(run: Run) -> None:
    from pivotune.pipeline.reporting import headline

    for line in headline(run):
        run.watch.say(line)
    run.watch.say(f"report: {run.folder.path / 'report.html'}")


def main() -> None:
    """Entry point: errors that a user can mend are printed without a traceback."""
    try:
        app()
    except PivotuneError as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; run the same command again to go on")
        sys.exit(130)


if __name__ == "__main__":
    main()
