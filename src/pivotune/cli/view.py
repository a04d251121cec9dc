"""`pivotune view`: look through a run in a browser, turn by turn."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pivotune.cli.screen import Screen
from pivotune.core.errors import StoreError
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder


def view(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    port: Annotated[int, typer.Option(help="On 127.0.0.1; 0: any free one.")] = 8765,
) -> None:
    """A local page over a run: turns, samples, verdicts, tasks, training. Stop with Ctrl-C."""
    from pivotune.pipeline.viewing import open_server

    recipe = run / "recipe.toml"
    if not recipe.is_file():
        raise StoreError(
            "not a run folder: it holds no recipe.toml",
            where=str(run),
            fix="name the folder of a run, such as runs/demo",
        )
    screen = Screen(Console())
    opened = Run(RunFolder(run, load_recipe(recipe)), screen)
    screen.say("indexing the run…")
    with open_server(opened, port) as server:
        screen.say(f"http://127.0.0.1:{server.server_address[1]}/   (Ctrl-C stops it)")
        server.serve_forever()
