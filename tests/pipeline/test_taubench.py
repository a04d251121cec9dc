"""The recipe for tau-bench runs, cut down: failed runs, inferred tools, a warm start, a report."""

import json
from contextlib import contextmanager
from pathlib import Path

from pivotune.core.store import read_json
from pivotune.pipeline.flow import run_stages
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.summary import Summary

RECIPE = Path(__file__).parents[2] / "recipes" / "taubench.toml"
CUT = ["model=lab", "warm_start.steps=1", "warm_start.adapter_rank=0", "select.rule=random"]


class Heard:
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    @contextmanager
    def progress(self, title, total, unit):
        yield lambda n: None


def airline_row(task: int) -> dict[str, object]:
    arguments = json.dumps({"user_id": f"u{task}", "nights": task})
    call = {"type": "function", "id": "c", "function": {"name": "find", "arguments": arguments}}
    traj = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"I am u{task}."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Error: no user"},
        {"role": "assistant", "content": "Done."},
    ]
    return {"task_id": task, "reward": float(task == 3), "info": {}, "traj": traj, "trial": 0}


def test_it_profiles_one_half_of_the_tasks_and_ends_in_a_report(tmp_path):
    traces = tmp_path / "airline.jsonl"
    traces.write_text("".join(json.dumps(airline_row(task)) + "\n" for task in range(8)))
    recipe = load_recipe(RECIPE, [*CUT, f"traces.path={json.dumps(str(traces))}"])
    heard = Heard()
    run = Run(RunFolder(tmp_path / "run", recipe), heard)
    run_stages(run)
    assert "outcomes: 1 succeeded, 7 failed, 0 not recorded" in heard.said
    assert {spec.name for each in run.trajectories() for spec in each.tools} == {"find"}
    plan = read_json(tmp_path / "run" / "plan.json", dict)
    warm, kept = plan["dropped"]["trajectory of the warm start"], plan["candidates"]
    # Two turns a trajectory: a call, which fails, and "Done.", each time behind another call.
    assert 0 < warm < 8
    assert plan["dropped"]["the call ended in a tool error"] == kept == 8 - warm
    summary = read_json(tmp_path / "run" / "summary.json", Summary)
    assert summary.turns.turns == kept
    assert sum(summary.outcomes.values()) == 4 * kept
    assert (tmp_path / "run" / "report.html").exists()
