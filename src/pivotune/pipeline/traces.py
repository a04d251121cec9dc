"""First stage: traces in, from files of any dialect or from a domain's own expert."""

import time
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from pivotune.core.errors import RecipeError
from pivotune.core.seeds import derive_seed
from pivotune.core.store import write_json, write_records
from pivotune.core.types import Cost, Trajectory
from pivotune.domains.catalog import find_domain
from pivotune.ingest import ImportReport, TraceReader, read_trajectories
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run import Run
from pivotune.turns.candidates import is_expert

Part = Literal["failed", "validation", "warm start", "training"]


def import_traces(run: Run) -> None:
    """Write `trajectories.jsonl` and the import's report."""
    traces = run.recipe.traces
    if not run.folder.begin("import", (traces, run.recipe.seed)):
        return
    start = time.perf_counter()
    if traces.path:
        reader = read_trajectories(
            traces.path,
            dialect=traces.dialect or None,
            tools=traces.tools or None,
            merge=traces.merge_roles,
            domain=traces.domain,
        )
        write_records(run.folder.trajectories, _read(reader))
        reader.report.require_trajectories()
        report: Any = reader.report
        for line in (*reader.report.lines(), *_ways_out(reader.report, run.recipe)):
            run.watch.say(line)
    else:
        played = list(_play(run))
        write_records(run.folder.trajectories, played)
        solved = sum(trajectory.reward == 1.0 for trajectory in played)
        report = {"games": len(played), "solved": solved, "noise": traces.noise}
        run.watch.say(f"{len(played)} games played by the {traces.domain} expert, {solved} solved")
    write_json(run.folder.path / "import.json", msgspec.to_builtins(report))
    run.folder.finish("import", Cost(seconds=time.perf_counter() - start))


def _ways_out(report: ImportReport, recipe: Recipe) -> Iterator[str]:
    """Options for what an import finds missing or leaves to be decided."""
    if report.failed and not recipe.candidates.keep_failed:
        yield (
            f"{report.failed} failed trajectories are left out of everything that follows unless "
            "asked for: --failed, or candidates.keep_failed=true"
        )
    if "calls without tool schemas" in report.notes and not recipe.traces.tools:
        yield (
            "without schemas calls are compared by value and the model is told of no tools: "
            "--tools FILE or --tools infer, in a recipe traces.tools"
        )


def _read(reader: TraceReader) -> Iterator[Trajectory]:
    yield from reader


def _play(run: Run) -> Iterator[Trajectory]:
    traces = run.recipe.traces
    expert = find_domain(traces.domain).expert
    if expert is None:
        raise RecipeError(
            f"the domain {traces.domain!r} has no expert of its own",
            fix="give traces.path, a file or folder of traces",
        )
    with run.watch.progress("playing expert games", traces.games, "games") as advance:
        for trajectory in expert(traces.games, run.recipe.seed, traces.noise):
            yield trajectory
            advance(1)


def part_of(trajectory: Trajectory, recipe: Recipe) -> Part:
    """What a trajectory is used for: profiling and training, or one of the other three."""
    if not is_expert(trajectory, recipe.candidates):
        return "failed"
    if _drawn("validation", trajectory, recipe.traces.validation_share):
        return "validation"
    warm = recipe.warm_start
    if warm.steps and _drawn("warm start", trajectory, warm.share):
        return "warm start"
    return "training"


def _drawn(name: str, trajectory: Trajectory, share: float) -> bool:
    """Split by task: all trials of a task are on one side, whatever else is in the data."""
    return derive_seed(name, trajectory.task.id) % 10_000 < share * 10_000
