"""Two methods of a study's finished seeds, seed by seed: LOG.md's paired differences.

    python benchmarks/paired.py STUDY LEFT RIGHT

Differences LEFT minus RIGHT, in points, with mean and standard error over seeds: success on the
games of the comparison (best checkpoints), and on the validation games after each step that both
validated. Then what training of each was: the share of live groups in the first and the last five
steps, seconds, rollout turns, prompt tokens. The last line is JSON.
"""

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from pivotune.core.store import read_json, read_records
from pivotune.core.types import JsonObject
from pivotune.pipeline.summary import Summary


def paired(name: str, left: list[float], right: list[float]) -> float:
    """Prints the differences of two lists of shares; their mean in points."""
    points = [100 * (a - b) for a, b in zip(left, right, strict=True)]
    mean = statistics.mean(points)
    error = statistics.stdev(points) / math.sqrt(len(points))
    print(f"{name:16} {mean:+6.1f} ({error:.1f})   {' '.join(f'{each:+.1f}' for each in points)}")
    return mean


def validations(metrics: list[JsonObject]) -> dict[int, float]:
    return {line["step"]: line["validation"] for line in metrics if "validation" in line}


def describe(name: str, runs: list[list[JsonObject]]) -> None:
    """What training was, in means over the seeds."""
    live = [[line["live_share"] for line in run if "live_share" in line] for run in runs]
    groups = ""
    if all(live):
        first, last = (statistics.mean(map(statistics.mean, part)) for part in _ends(live))
        groups = f"live groups {first:.0%}, at the end {last:.0%}; "
    spent = [run[-1]["spent"] for run in runs]
    counts = ", ".join(
        f"{statistics.mean(each[key] for each in spent):,.0f} {key.replace('_', ' ')}"
        for key in ("rollout_turns", "prompt_tokens", "trained_tokens")
    )
    seconds = statistics.mean(run[-1]["seconds_spent"] for run in runs)
    print(f"{name}: {groups}{seconds:.0f} seconds, {counts}")


def _ends(live: list[list[float]]) -> Any:
    return [each[:5] for each in live], [each[-5:] for each in live]


def main() -> None:
    study, names = Path(sys.argv[1]), sys.argv[2:4]
    seeds = sorted(study.glob("seed-*/summary.json"))
    summaries = [read_json(path, Summary) for path in seeds]
    scores = [[each.in_domain[name].success for each in summaries] for name in names]
    mean = paired("comparison", *scores)
    runs = [
        [
            list(read_records(path.parent / "checkpoints" / name / "metrics.jsonl", JsonObject))
            for path in seeds
        ]
        for name in names
    ]
    curves = [[validations(run) for run in method] for method in runs]
    for step in sorted(set.intersection(*(set(run) for method in curves for run in method))):
        paired(f"after step {step}", *([run[step] for run in method] for method in curves))
    for name, method in zip(names, runs, strict=True):
        describe(name, method)
    line = {"name": "paired", "left": names[0], "right": names[1], "points": round(mean, 2)}
    print(json.dumps({**line, "seeds": len(seeds)}))


if __name__ == "__main__":
    main()
