"""A run of 100,000 profiled turns with K = 8: the report, and every kind of page of the view.

    python benchmarks/report.py [--turns 100000] [--keep FOLDER]

Writes a run folder of that size (10,000 trajectories of ten turns), builds the report in a
process of its own, then answers pages over HTTP from another. Prints seconds, peak memory and
milliseconds a page; exits with 1 when the report takes more than a minute or 1 GB, or a page
more than 300 ms. Indexing happens once, when the view is started, and is printed too.
"""

import argparse
import http.client
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from pivotune.core.store import AppendLog, write_json, write_records
from pivotune.core.types import (
    Cost,
    Message,
    ParseOutcome,
    Profile,
    Sample,
    Task,
    ToolCall,
    Trajectory,
    Verdict,
)
from pivotune.evaluate.suites import Outcome
from pivotune.pipeline.evaluation import suites
from pivotune.pipeline.profiling import FreshEstimate, SelectReport
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.reporting import report
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.training import Training
from pivotune.pipeline.viewing import open_server
from pivotune.turns.pivots import SelectConfig, select_pivots

LENGTH = 10
COMMANDS = ("go to desk 1", "take mug 1 from desk 1", "look", "open drawer 2", "examine shelf 3")
OBSERVATION = "You are facing the desk 1. On it you see a mug 1, a pen 2 and a book 3. " * 4
PAGES = (
    "/",
    "/turns",
    "/turns?page=1000",
    "/turns?order=low&page=900",
    "/turns?shown=pivots&order=spread",
    "/turns?text=mug+task+77",
    "/turns?text=t9999%239",
    "/turns?text=nothing-has-this",
    "/turns?kind=look&shown=fail",
    "/turns?trajectory=9000",
    "/turn/1",
    "/turn/99999",
    "/turn/99999?messages=all",
    "/turn/99999/0",
    "/tasks",
    "/tasks?suite=skills-eval&page=20",
    "/training",
    "/style.css",
)
LIMIT_S, LIMIT_MB, LIMIT_MS = 60.0, 1024.0, 300.0
RECIPE = "[methods.pivotrl]\nobjective = 'local_grpo'\nlearning_rate = 1e-3\n"


class Quiet:
    def say(self, text: str) -> None:
        pass

    @contextmanager
    def progress(self, title: str, total: int, unit: str):
        yield lambda n: None


def open_run(folder: Path) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "in.toml"
    recipe.write_text(RECIPE)
    return Run(RunFolder(folder, load_recipe(recipe)), Quiet())


def action(place: int) -> Message:
    arguments = {"command": COMMANDS[place % len(COMMANDS)]}
    return Message("assistant", tool_calls=(ToolCall("act", arguments, json.dumps(arguments)),))


def trajectory(number: int) -> Trajectory:
    messages = [Message("user", f"Task {number}: put a clean mug on the desk.")]
    for i in range(LENGTH):
        messages += [action(number + i), Message("tool", OBSERVATION)]
    task = Task(f"task-{number}", "household")
    return Trajectory(f"t{number}", "household", task, (), tuple(messages), reward=1.0)


def profile(turn_id: str, successes: int) -> Profile:
    samples = tuple(
        Sample(
            token_ids=tuple(range(12)),
            logprobs=(-0.123456789,) * 12,
            message=action(i),
            outcome=ParseOutcome.OK if i < 7 else ParseOutcome.MALFORMED,
            finish="stop",
            verdict=Verdict(float(i < successes), f"optimal remaining steps 6 -> {i % 3 + 4}"),
            text='<tool_call>act{"command": "go to desk 1"}</tool_call>',
        )
        for i in range(8)
    )
    return Profile(
        turn_id, "p", "weights", "progress", "1", 1.0, 0, 48, 999, Verdict(1.0, "nearer"), samples
    )


def write_run(run: Run, turns: int) -> None:
    """All that the stages before the report leave behind."""
    trajectories = turns // LENGTH
    write_records(run.folder.trajectories, map(trajectory, range(trajectories)))
    slim = []
    with AppendLog(run.folder.profiles("progress")) as log:
        for number in range(trajectories):
            made = [profile(f"t{number}#{i}", (7 * number + i) % 9) for i in range(LENGTH)]
            log.append(made)
            slim += made
    selection = select_pivots(slim, SelectConfig(), 0)
    fresh = FreshEstimate(64, 0.5, 0.75)
    found = SelectReport("progress", "adv", selection, 0, 0.375, 1.0, fresh, fresh, Cost())
    write_json(run.folder.pivots("progress", "adv"), found)
    write_json(run.folder.path / "profiles" / "dropped.json", {})
    checkpoints = run.folder.checkpoints("pivotrl")
    steps = [{"step": i, "reward_mean": i / 200, "live_share": 0.5} for i in range(1, 201)]
    write_records(checkpoints / "metrics.jsonl", [{"step": 0, "validation": 0.25}, *steps])
    write_json(checkpoints / "result.json", Training(200, "best", 1, 0.5, {"collect": Cost(8)}))
    for suite in suites(run):
        for place, policy in enumerate(("base", "pivotrl")):
            outcomes = [
                Outcome(task.id, "", 0, float(i % (3 - place) == 0), 5, "done", Cost(5))
                for i, task in enumerate(suite.tasks)
            ]
            write_records(run.folder.outcomes(policy, suite.name), outcomes)
    run.folder.begin("profile", "x")
    run.folder.finish("profile", Cost(rollout_turns=8 * turns, seconds=3600.0))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def time_report(folder: Path) -> None:
    run = open_run(folder)
    wall, cpu = time.perf_counter(), time.process_time()
    report(run)
    print(time.perf_counter() - wall, time.process_time() - cpu, peak_mb())


def time_view(folder: Path) -> None:
    """Seconds of indexing, then the median and worst milliseconds of every page, as JSON."""
    started = time.perf_counter()
    with open_server(open_run(folder)) as server:
        indexed = time.perf_counter() - started
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
        pages = {address: [ask(client, address) for _ in range(5)] for address in PAGES}
        server.shutdown()
    print(json.dumps({"indexed": indexed, "peak_mb": peak_mb(), "pages": pages}))


def ask(client: http.client.HTTPConnection, address: str) -> float:
    start = time.perf_counter()
    client.request("GET", address)
    answer = client.getresponse()
    answer.read()
    assert answer.status == 200, (address, answer.status)
    return 1000 * (time.perf_counter() - start)


def run_self(*arguments: str) -> str:
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="write the run folder here and leave it")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--view", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_run(open_run(given.write), given.turns)
        return 0
    if given.report or given.view:
        (time_report if given.report else time_view)(given.report or given.view)
        return 0
    with tempfile.TemporaryDirectory() as spare:
        folder = given.keep or Path(spare) / "run"
        # A process of its own: a child's peak memory counts what its parent held.
        run_self("--write", str(folder), "--turns", str(given.turns))
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
        print(f"run folder: {given.turns:,} turns, K = 8, {size:,.0f} MB")
        wall, cpu, memory = map(float, run_self("--report", str(folder)).split())
        print(f"report: {wall:.1f} s wall, {cpu:.1f} s CPU, {memory:,.0f} MB at most")
        found = json.loads(run_self("--view", str(folder)))
    print(f"view: indexed in {found['indexed']:.1f} s, {found['peak_mb']:,.0f} MB at most")
    for address, times in found["pages"].items():
        print(f"  {sorted(times)[2]:6.1f} ms median, {times[0]:6.1f} ms first   {address}")
    slowest = max(max(times) for times in found["pages"].values())
    good = cpu < LIMIT_S and memory < LIMIT_MB and slowest < LIMIT_MS
    print(f"slowest page: {slowest:.0f} ms; {'within' if good else 'NOT within'} the limits")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
