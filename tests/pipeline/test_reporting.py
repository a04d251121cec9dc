"""The report stage over run folders written by hand: no model, all numbers known."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from pivotune.core.errors import StoreError
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
from pivotune.pipeline.compare import compare
from pivotune.pipeline.costs import count_costs
from pivotune.pipeline.counting import Wanted
from pivotune.pipeline.evaluation import suites
from pivotune.pipeline.profiled_turns import (
    DETAILED_OTHERS,
    DETAILED_PIVOTS,
    read_profiled_turns,
)
from pivotune.pipeline.profiling import FreshEstimate, SelectReport
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.reporting import headline, report
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.tax import tax_settings, tax_suite
from pivotune.pipeline.training import Training
from pivotune.turns.pivots import SelectConfig, select_pivots

RECIPE = """
verifier = "progress"
[evaluate]
episodes = 4
items = 16
[methods.pivotrl]
objective = "local_grpo"
learning_rate = 1e-3
"""
COMMANDS = ("go to desk 1", "take mug 1 from desk 1", "look")


class Quiet:
    def say(self, text):
        pass

    @contextmanager
    def progress(self, title, total, unit):
        yield lambda n: None


def open_run(folder, more=""):
    folder.mkdir()
    (folder / "in.toml").write_text(f"{more}\n{RECIPE}")
    return Run(RunFolder(folder, load_recipe(folder / "in.toml")), Quiet())


def call(command):
    arguments = {"command": command}
    return Message("assistant", tool_calls=(ToolCall("act", arguments, json.dumps(arguments)),))


def trajectory(number, length=10):
    messages = [Message("user", f"task {number}: put a mug on the desk")]
    for i in range(length):
        messages += [call(COMMANDS[i % 3]), Message("tool", f"you see a mug {i}")]
    task = Task(f"t{number}", "household")
    return Trajectory(f"t{number}", "household", task, (), tuple(messages), reward=1.0)


def profile(turn_id, successes, expert=1.0):
    """Eight samples, the first `successes` of which are accepted."""
    samples = tuple(
        Sample(
            token_ids=(1, 2, 3, 4, 5, 6, 7, 8),
            logprobs=(-0.123456789,) * 8,
            message=call(COMMANDS[i % 3]),
            outcome=ParseOutcome.OK if i < 7 else ParseOutcome.MALFORMED,
            finish="stop",
            verdict=Verdict(float(i < successes), f"optimal remaining steps 6 -> {i % 3 + 4}"),
            text='<tool_call>act{"command": "go to desk 1"}</tool_call>',
        )
        for i in range(8)
    )
    return Profile(
        turn_id, "p", "policy-hash", "progress", "1", 1.0, 0, 48, 99, Verdict(expert, ""), samples
    )


def write_profiles(run, trajectories):
    """Turn i of all has i mod 9 successes; of one turn in 50 the expert itself is rejected."""
    write_records(run.folder.trajectories, map(trajectory, range(trajectories)))
    with AppendLog(run.folder.profiles("progress")) as log:
        for number in range(trajectories):
            turns = range(10 * number, 10 * number + 10)
            log.append(
                profile(f"t{number}#{i % 10}", i % 9, expert=float(i % 50 != 0)) for i in turns
            )


def chosen_of(trajectories):
    """`adv`: between 1 and 5 of 8 succeed, and the expert is right."""
    return frozenset(
        f"t{i // 10}#{i % 10}" for i in range(10 * trajectories) if 1 <= i % 9 <= 5 and i % 50
    )


def test_points_outcomes_and_details_are_those_of_the_profiles(tmp_path):
    run = open_run(tmp_path / "run")
    write_profiles(run, 10)
    found = read_profiled_turns(run, "progress", chosen_of(10))
    assert found.trajectories == 10
    assert len(found.points) == 98  # two of a hundred experts are wrong
    assert found.outcomes == {"malformed": 98, "ok": 7 * 98}
    by_id = {point.turn_id: point for point in found.points}
    assert by_id["t1#2"].mean == (12 % 9) / 8
    assert by_id["t1#2"].spread == pytest.approx((3 / 8 * 5 / 8) ** 0.5)
    assert (by_id["t1#2"].kind, by_id["t1#2"].depth, by_id["t1#2"].selected) == ("look", 2, True)
    assert by_id["t1#2"].domain == "household"
    assert sum(point.selected for point in found.points) == len(chosen_of(10))
    assert sum(each.selected for each in found.details) == DETAILED_PIVOTS
    assert len(found.details) == DETAILED_PIVOTS + 2 * DETAILED_OTHERS
    detail = next(each for each in found.details if each.selected)
    number, _, index = detail.turn_id.partition("#")
    assert detail.state == trajectory(int(number[1:])).messages[: 1 + 2 * int(index)]
    assert detail.expert_action == f'act(command="{COMMANDS[int(index) % 3]}")'


def write_rest(run):
    """Selection, one training log and evaluations: 1 of 4 games for the base, 3 of 4 after."""
    profiles = [profile(f"t{i // 10}#{i % 10}", i % 9) for i in range(100) if i % 50]
    selection = select_pivots(profiles, SelectConfig(), 0)
    fresh = FreshEstimate(8, 0.5, 0.75)
    write_json(
        run.folder.pivots("progress", "adv"),
        SelectReport("progress", "adv", selection, 2, 0.375, 1.0, fresh, fresh, Cost()),
    )
    write_json(run.folder.path / "profiles" / "dropped.json", {"the trajectory failed": 3})
    checkpoints = run.folder.checkpoints("pivotrl")
    write_records(
        checkpoints / "metrics.jsonl",
        [{"step": 0, "validation": 0.25}, {"step": 1, "reward_mean": 0.375, "live_share": 0.5}],
    )
    write_json(checkpoints / "result.json", Training(1, "best", 1, 0.5, {"collect": Cost(8)}))
    won = {
        "base": {"in_domain": 1, "out_of_domain": 12},
        "pivotrl": {"in_domain": 3, "out_of_domain": 11},
    }
    for suite in suites(run):
        for policy, wins in won.items():
            write_records(
                run.folder.outcomes(policy, suite.name),
                [
                    Outcome(task.id, "", 0, float(i < wins[suite.kind]), 5, "done", Cost(5))
                    for i, task in enumerate(suite.tasks)
                ],
            )
    run.folder.begin("profile", "x")
    run.folder.finish("profile", Cost(rollout_turns=800, seconds=30.0))


def test_page_and_summary_say_the_same(tmp_path):
    run = open_run(tmp_path / "run")
    write_profiles(run, 10)
    write_rest(run)
    report(run)
    summary = json.loads((run.folder.path / "summary.json").read_text())
    assert summary["in_domain"]["base"]["success"] == 0.25
    assert summary["in_domain"]["pivotrl"]["success"] == 0.75
    assert summary["in_domain"]["pivotrl"]["change"] == 0.5
    assert summary["turns"]["turns"] == 98
    assert summary["turns"]["selected"] == summary["pivots"][0]["pivots"] == len(chosen_of(10))
    assert summary["outcomes"] == {"malformed": 98, "ok": 686}
    assert summary["curves"][0]["series"]["reward_mean"] == {"steps": [1], "values": [0.375]}
    costs = json.loads((run.folder.path / "costs.json").read_text())
    used = {"rollout_turns": 800, "seconds": 30.0}
    assert costs["stages"] == summary["cost"] == {"profile": used}
    assert costs["total"] == used
    assert costs["training"] == {"pivotrl": {"collect": {"rollout_turns": 8}}}
    assert costs["money"] == {}
    page = (run.folder.path / "report.html").read_text()
    said = " ".join(page.split())  # spaces that do not break count as spaces
    for text in (
        "pivotrl (practises single turns, the pivots) solves 75.0 % of household:unseen, the base "
        "25.0 %: +50.0 percentage points",
        "any action that brings the task nearer to its end (verifier progress)",
        f"{len(chosen_of(10))} of 98 turns are pivots",
        "2 turns were left out under progress",
        "the trajectory failed: 3",
        "weights policy-hash",
        "800 rollout turns",
    ):
        assert text in said
    assert any("pivotrl: in-domain  75.0%" in line for line in headline(run))
    report(run)
    assert (run.folder.path / "report.html").read_text() == page


def test_the_end_to_end_alternative_plays_an_episode_for_every_sample(tmp_path):
    run = open_run(tmp_path / "run", "prices = { sampled = 2.0, prompt = 1.0, currency = 'EUR' }")
    write_rest(run)
    write_records(
        run.folder.outcomes("base", suites(run)[0].name),
        [
            Outcome("a", "", 0, 1.0, 3, "done", Cost(3, 300, 30, 0, 3, seconds=1.0)),
            Outcome("b", "", 0, 0.0, 7, "done", Cost(7, 700, 70, 0, 7, seconds=3.0)),
        ],
    )
    found = count_costs(run)
    (alternative,) = found.alternatives
    # Eight single actions were sampled; eight episodes of five turns on average stand for them.
    assert (alternative.samples, alternative.episodes) == (8, 2)
    assert alternative.turns_an_episode == 5.0
    assert alternative.end_to_end == Cost(40, 4_000, 400, 0, 40, seconds=16.0)
    assert alternative.local == Cost(808, seconds=30.0)
    assert alternative.times_fewer_turns == pytest.approx(40 / 808)
    assert found.prices.of(alternative.end_to_end) == pytest.approx(4_800 / 1e6)
    assert found.money == {"profile": 0.0}


def test_many_rollouts_of_each_task_become_a_tax(tmp_path):
    run = open_run(tmp_path / "run", "tax = { rollouts = 4, tasks = 6 }")
    write_profiles(run, 10)
    write_rest(run)
    suite = tax_suite(tax_settings(run.recipe))
    # Successes of four: the base 2 everywhere, the method 4 on three tasks and 0 on three.
    for policy, successes in (("base", [2] * 6), ("pivotrl", [4, 4, 4, 0, 0, 0])):
        write_records(
            run.folder.tallies(policy, suite.name),
            [
                Outcome(task.id, "", i, float(i < c), 5, "done", Cost(5))
                for task, c in zip(suite.tasks, successes, strict=True)
                for i in reversed(range(4))
            ],
        )
    report(run)
    summary = json.loads((run.folder.path / "summary.json").read_text())
    (found,) = summary["tax"]["comparisons"]
    assert (found["name"], found["k"], found["tasks"]) == ("pivotrl", 2, 6)
    # Base: C(1) = 1/2, C(2) = 1 - 1/6; the method gains nothing from a second try.
    assert found["base"]["curve"]["values"] == pytest.approx([1 / 2, 5 / 6])
    assert found["tax_area"]["value"] == pytest.approx(1 / 3)
    assert found["tax_share"]["value"] == pytest.approx(2 / 3)
    assert found["moves"] == [[0, 0, 0], [3, 0, 3], [0, 0, 0]]
    page = " ".join((run.folder.path / "report.html").read_text().split())
    assert "What more tries still buy" in page
    assert "household:unseen: 6 tasks, 4 rollouts each at temperature 1" in page
    assert any("Sharpening Tax S(2) +0.667" in line for line in headline(run))
    for policy in ("base", "pivotrl"):
        run.folder.begin(f"tax/{policy}", "x")
        run.folder.finish(f"tax/{policy}")
    again = compare(str(run.folder.path), [], Wanted(), tmp_path / "out", Quiet())
    assert again.sources["pivotrl"] == (
        "counted in the run run: household:unseen: 6 tasks, 4 rollouts each at temperature 1, at "
        "most 30 turns of 48 tokens, seed 0"
    )
    compared = (tmp_path / "out" / "tax.html").read_text()
    assert "practises single turns, the pivots" in compared
    assert "How training went" not in compared
    assert msgspec.to_builtins(again.findings.comparisons[0].tax_share) == found["tax_share"]


def test_outcomes_of_other_tasks_are_refused(tmp_path):
    run = open_run(tmp_path / "run")
    write_profiles(run, 10)
    write_rest(run)
    played = run.folder.outcomes("base", suites(run)[0].name)
    write_records(played, [Outcome("another", "", 0, 1.0, 5, "done", Cost(5))])
    with pytest.raises(StoreError, match="evaluate again"):
        report(run)


SCALE = """
import resource, sys, time
from pathlib import Path
from pipeline.test_reporting import chosen_of, open_run, write_profiles
from pivotune.pipeline.profiled_turns import read_profiled_turns
run = open_run(Path(sys.argv[1]) / "run")
write_profiles(run, 10_000)
chosen = chosen_of(10_000)
start = time.process_time()
found = read_profiled_turns(run, "progress", chosen)
seconds = time.process_time() - start
megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(len(found.points), len(found.details), seconds, megabytes)
"""


@pytest.mark.slow
def test_a_hundred_thousand_profiled_turns_are_read_as_a_stream(tmp_path):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCALE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    turns, details, seconds, megabytes = map(float, done.stdout.split())
    assert turns == 98_000
    assert details == DETAILED_PIVOTS + 2 * DETAILED_OTHERS
    assert seconds < 40
    assert megabytes < 1024
