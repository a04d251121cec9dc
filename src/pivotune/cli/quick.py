"""Traces without a recipe: what the command line makes of a folder and a few options."""

import json
from pathlib import Path

import msgspec

from pivotune.cli.screen import Screen
from pivotune.core.errors import RecipeError
from pivotune.pipeline.run import Run

LOOK = 64
"""Turns that are profiled where no limit is named: enough to see where pivots are."""

BASICS = (
    'traces.domain=""',
    "traces.validation_share=0.0",
    'verifier="tool_call"',
    "profile.max_tokens=256",
    "profile.portion=8",
    "methods={}",
    "evaluate.episodes=0",
    "evaluate.items=0",
)
"""Nothing is trained, so nothing is kept apart; an action is as long as a tool call may be; a
portion is small, so that a slow model is seen to move and loses little when it is stopped; an
endpoint gets more at once."""


class Options(msgspec.Struct, frozen=True):
    """What a person says besides the traces. Empty strings and None: not said."""

    model: str = ""
    server: str = ""
    tools: str = ""
    dialect: str = ""
    failed: bool = False
    limit: int | None = None
    samples: int | None = None

    @property
    def given(self) -> bool:
        return self != Options()

    def overrides(self) -> list[str]:
        """As overrides of a recipe."""
        said = {
            "model": self.model,
            "sampler": "server" if self.server else "",
            "server.url": self.server,
            "traces.tools": self.tools,
            "traces.dialect": self.dialect,
            "candidates.keep_failed": self.failed,
            "profile.turns": self.limit,
            "profile.portion": 32 if self.server else None,
            "profile.samples": self.samples,
        }
        if self.server and not self.model:
            said["server.chat"] = True
        return [
            f"{key}={_toml(value)}"
            for key, value in said.items()
            if value is not None and value != "" and value is not False
        ]


def is_traces(argument: str) -> bool:
    """Whether a bare argument names traces rather than a recipe."""
    return not argument.endswith(".toml")


def trace_overrides(traces: list[str], options: Options, *, profiles: bool) -> list[str]:
    """The recipe of a look at some traces; raises `RecipeError` without a model to profile."""
    for trace in traces:
        if not Path(trace).exists():
            raise RecipeError("no such file or folder", where=trace, fix="check the path")
    if profiles and not (options.model or options.server):
        raise RecipeError(
            "which model is to be profiled?",
            where="pivotune profile",
            expected="--model with a folder, a hub name or smollm2, or --server with the address "
            "of an endpoint (…/v1)",
        )
    paths = [str(Path(trace)) for trace in traces]
    look = [f"profile.turns={LOOK}"] if options.limit is None else []
    return [f"traces.path={_toml(paths)}", *BASICS, *look, *options.overrides()]


def run_name(traces: list[str]) -> str:
    """The run folder's name for traces: that of the first file or folder."""
    return Path(traces[0]).resolve().name.split(".")[0] or "traces"


def say_pivots(run: Run, screen: Screen) -> None:
    """The table of pivots, or why there are none, and what the samples were."""
    from pivotune.pipeline.profiled_turns import read_profiled_turns
    from pivotune.pipeline.profiling import read_selection
    from pivotune.report.tables import pivot_table
    from pivotune.report.turns import advise, count_turns, say_no_pivots, say_outcomes

    recipe = run.recipe
    selection = read_selection(run, recipe.verifier, recipe.select.rule).selection
    turns = read_profiled_turns(run, recipe.verifier, frozenset(selection.turn_ids))
    figures = count_turns(turns.points)
    if not figures.selected:
        for line in say_no_pivots(figures, turns.outcomes):
            screen.say(line)
        return
    screen.table(f"{figures.selected} pivots of {figures.turns} turns", pivot_table(turns.points))
    screen.say(f"the samples: {say_outcomes(turns.outcomes)}")
    for line in advise(figures, turns.outcomes):
        screen.say(line)


def _toml(value: object) -> str:
    """JSON of strings, numbers, Booleans and lists of them is TOML too."""
    return json.dumps(value, ensure_ascii=False)
