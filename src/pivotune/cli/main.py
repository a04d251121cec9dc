"""`pivotune`: one command a stage, and `run` for all of them.

Stages import torch only when they run: `--help` and the light commands stay quick.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pivotune import __version__
from pivotune.cli.evaluate import evaluate_named
from pivotune.cli.lab import app as lab_app
from pivotune.cli.quick import Options, is_traces, run_name, say_pivots, trace_overrides
from pivotune.cli.screen import Screen
from pivotune.cli.tax import tax
from pivotune.cli.verify import app as verify_app
from pivotune.cli.view import view
from pivotune.core.errors import NoPivots, PivotuneError, RecipeError
from pivotune.models.threads import limit_threads
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import BASE, Run
from pivotune.pipeline.run_folder import RunFolder

app = typer.Typer(
    name="pivotune",
    help="Find the turns of agent traces that matter, train only there, measure what it cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(lab_app, name="lab")
app.add_typer(verify_app, name="verify")
app.command()(tax)
app.command()(view)

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


Only = Annotated[
    str,
    typer.Option(
        metavar="POLICIES",
        help="Work on these methods (or `base`: what they share) only, and write no report. "
        "Several processes may do so in one folder, after one with `--only base`.",
    ),
]

TraceArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TRACES]...|[RECIPE] [KEY=VALUE]...",
        help="Files or folders of traces; or a recipe (TOML). Overrides after either.",
    ),
]
ToolsOption = Annotated[
    str,
    typer.Option(help="Tool schemas: a JSON file, or `infer` for minimal ones from the calls."),
]
DialectOption = Annotated[str, typer.Option(help="Name the dialect instead of detecting it.")]


def _open_look(
    arguments: list[str] | None, run: Path | None, redo: str, options: Options, *, profiles: bool
) -> tuple[Run, bool]:
    """The run folder of traces without a recipe (True), or of a recipe (False)."""
    given = arguments or []
    traces = [each for each in given if _is_path(each) and is_traces(each)]
    if not traces:
        return _open([*given, *options.overrides()], run, redo), False
    if len(traces) < sum(map(_is_path, given)):
        raise RecipeError("traces and a recipe", fix="name the traces in it: traces.path=…")
    more = [each for each in given if not _is_path(each)]
    overrides = [*trace_overrides(traces, options, profiles=profiles), *more]
    return _open(overrides, run or Path("runs") / run_name(traces), redo), True


def _is_path(argument: str) -> bool:
    """An override has an equals sign in it, and so may the name of a file."""
    return "=" not in argument or Path(argument).exists()


def _open(arguments: list[str] | None, run: Path | None, redo: str) -> Run:
    """The run folder under a recipe; a folder that holds one needs no recipe to go on."""
    given = arguments or []
    overrides = [each for each in given if not _is_path(each)]
    recipes = [Path(each) for each in given if _is_path(each)]
    if len(recipes) > 1:
        raise RecipeError("more than one recipe", got=" ".join(map(str, recipes)))
    recipe = recipes[0] if recipes else None
    looked = any(each.startswith("traces.path=") for each in overrides)
    if recipe is None and not looked and run is not None and (run / "recipe.toml").exists():
        recipe = run / "recipe.toml"
    name = recipe.stem if recipe is not None else "default"
    folder = RunFolder(run or Path("runs") / name, load_recipe(recipe, overrides))
    if redo:
        folder.redo(redo)
    return Run(folder, Screen(Console()))


def _narrow(run: Run, only: str) -> Run:
    """The run with only these policies to work on."""
    names = [each.strip() for each in only.split(",")] if only else []
    known = [BASE, *run.recipe.methods]
    for name in names:
        if name not in known:
            raise RecipeError("--only: no such policy", got=name, expected=", ".join(known))
    return Run(run.folder, run.watch, frozenset(names) or None)


def _run_to(run: Run, last: str, *, skip: tuple[str, ...] = ()) -> None:
    limit_threads()
    from pivotune.pipeline.flow import run_stages

    run_stages(run, last, skip=skip)


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
    arguments: Arguments = None, run: RunOption = None, only: Only = "", redo: Redo = ""
) -> None:
    """The whole flow: traces in, report out. Goes on where it stopped."""
    opened = _narrow(_open(arguments, run, redo), only)
    _run_to(opened, "report" if opened.only is None else "recovery")
    if opened.only is None:
        _say_results(opened)


@app.command(name="import")
def import_command(
    arguments: TraceArguments = None,
    tools: ToolsOption = "",
    dialect: DialectOption = "",
    run: RunOption = None,
    redo: Redo = "",
) -> None:
    """Read (or make) the traces; every row left out has a counted reason."""
    options = Options(tools=tools, dialect=dialect)
    opened, _ = _open_look(arguments, run, redo, options, profiles=False)
    _run_to(opened, "import")


@app.command()
def plan(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """What the run will cost and whether it can learn, before anything is spent."""
    _run_to(_open(arguments, run, redo), "plan")


@app.command()
def profile(
    arguments: TraceArguments = None,
    model: Annotated[
        str,
        typer.Option(help="A model folder, a hub name, or smollm2; its tokenizer with --server."),
    ] = "",
    server: Annotated[
        str, typer.Option(help="An OpenAI-compatible endpoint that serves the model: …/v1.")
    ] = "",
    limit: Annotated[
        int | None, typer.Option(help="Profile at most so many turns, drawn by the seed; 0: all.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples a turn (K).")] = None,
    tools: ToolsOption = "",
    dialect: DialectOption = "",
    failed: Annotated[
        bool, typer.Option("--failed", help="Profile turns of failed trajectories too.")
    ] = False,
    run: RunOption = None,
    redo: Redo = "",
) -> None:
    """Sample every candidate turn under the frozen policy and judge the samples.

    With traces in place of a recipe: ends in a table of pivots and a report.
    """
    options = Options(model, server, tools, dialect, failed, limit, samples)
    opened, is_look = _open_look(arguments, run, redo, options, profiles=True)
    if not is_look:
        _run_to(opened, "profile")
        return
    try:
        _run_to(opened, "report", skip=("plan",))
    except NoPivots:
        _say_look(opened)
        raise
    _say_look(opened)


def _say_look(run: Run) -> None:
    assert isinstance(run.watch, Screen)
    say_pivots(run, run.watch)
    run.watch.say(f"report: {run.folder.path / 'report.html'}")


@app.command()
def select(arguments: Arguments = None, run: RunOption = None, redo: Redo = "") -> None:
    """Choose the pivots; without sampling again when only the rule changed."""
    _run_to(_open(arguments, run, redo), "select")


@app.command()
def train(
    arguments: Arguments = None, run: RunOption = None, only: Only = "", redo: Redo = ""
) -> None:
    """Train every method of the recipe from the same base."""
    _run_to(_narrow(_open(arguments, run, redo), only), "train")


@app.command()
def evaluate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...|[RECIPE] [KEY=VALUE]...",
            help="Models, named as for `pivotune tax`, are played by themselves. A recipe and "
            "overrides, or --run: this stage of that run.",
        ),
    ] = None,
    run: RunOption = None,
    redo: Redo = "",
    suite: Annotated[str, typer.Option(help="`domain:split` to play.")] = "",
    tasks: Annotated[int | None, typer.Option(help="How many tasks of it. Default 100.")] = None,
    rollouts: Annotated[int | None, typer.Option(help="Times each task. Default 1.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling. Default 1.0.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draws tasks and random streams.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the models' results.")] = Path("evaluation"),
) -> None:
    """Success, pass@k and pass^k of models on a suite, or all suites of a run. Goes on."""
    given = arguments or []
    named = [each for each in given if _is_path(each) and not each.endswith(".toml")]
    if not named:
        if any(each is not None for each in (tasks, rollouts, temperature, seed)) or suite:
            raise RecipeError(
                "--suite, --tasks, --rollouts, --temperature and --seed are for named models",
                fix="name models, or say it in the recipe: evaluate.in_domain, evaluate.episodes",
            )
        _run_to(_open(arguments, run, redo), "evaluate")
        return
    if len(named) < len(given) or run is not None or redo:
        raise RecipeError("models and a recipe or a run", got=" ".join(given), fix="name either")
    evaluate_named(named, suite, tasks, rollouts, temperature, seed, out)


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
