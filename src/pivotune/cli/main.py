"""`pivotune`: one command a stage, and `run` for all of them.

Stages import torch only when they run: `--help` and the light commands stay quick.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pivotune import __version__
from pivotune.cli.screen import Screen
from pivotune.core.errors import PivotuneError
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

RecipeArgument = Annotated[
    Path | None, typer.Argument(help="The recipe (TOML). Without one: the embedded default.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="Override a key: -s profile.samples=16. Repeatable."),
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", "-r", help="The run folder. Default: runs/NAME-OF-THE-RECIPE."),
]
Redo = Annotated[
    str, typer.Option(help="Drop this stage's output and what follows, then go on from there.")
]


def _open(recipe: Path | None, run: Path | None, overrides: list[str] | None, redo: str) -> Run:
    """The run folder under a recipe; a folder that holds one needs no recipe to go on."""
    if recipe is None and run is not None and (run / "recipe.toml").exists():
        recipe = run / "recipe.toml"
    name = recipe.stem if recipe is not None else "default"
    folder = RunFolder(run or Path("runs") / name, load_recipe(recipe, overrides or ()))
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
def run_command(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """The whole flow: traces in, report out. Goes on where it stopped."""
    opened = _open(recipe, run, overrides, redo)
    _run_to(opened, "report")
    _say_results(opened)


@app.command(name="import")
def import_command(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """Read (or make) the traces; every row left out has a counted reason."""
    _run_to(_open(recipe, run, overrides, redo), "import")


@app.command()
def plan(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """What the run will cost and whether it can learn, before anything is spent."""
    _run_to(_open(recipe, run, overrides, redo), "plan")


@app.command()
def profile(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """Sample every candidate turn under the frozen policy and judge the samples."""
    _run_to(_open(recipe, run, overrides, redo), "profile")


@app.command()
def select(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """Choose the pivots; without sampling again when only the rule changed."""
    _run_to(_open(recipe, run, overrides, redo), "select")


@app.command()
def train(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """Train every method of the recipe from the same base."""
    _run_to(_open(recipe, run, overrides, redo), "train")


@app.command()
def evaluate(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """Base and trained policies, in-domain and out-of-domain."""
    _run_to(_open(recipe, run, overrides, redo), "evaluate")


@app.command()
def report(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    overrides: Overrides = None,
    redo: Redo = "",
) -> None:
    """The page and the summary of a finished run."""
    opened = _open(recipe, run, overrides, redo)
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
