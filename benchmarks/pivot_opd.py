"""What PivotOPD costs a step over GRPO: detection, distillation and K recoveries, all counted.

    python benchmarks/pivot_opd.py [--steps 4] [--tasks 8] [--model FOLDER]

The embedded base plays the same household games in groups of 8 (at most 20 turns) under GRPO and
under PivotOPD with K = 0, 1, 2, with the oracle and with its own weights as the teacher. Every
step collects, trains and updates; the rate is so low that all of them play nearly the same
episodes. Processor seconds of one thread; the first step, in which the trainer checks itself, is
left out. A ratio is the median over steps of PivotOPD's seconds over GRPO's.
"""

import argparse
import json
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from pivotune.models.threads import limit_threads

limit_threads()

from pivotune.domains.catalog import make_environment, suite_tasks  # noqa: E402
from pivotune.models.policy import load_policy  # noqa: E402
from pivotune.models.sampler import TorchSampler  # noqa: E402
from pivotune.pipeline.recipe import model_path  # noqa: E402
from pivotune.train.objective import Materials, Method  # noqa: E402
from pivotune.train.objectives.episode_grpo import EpisodeGrpo, EpisodeGrpoConfig  # noqa: E402
from pivotune.train.objectives.pivot_opd import PivotOpd, PivotOpdConfig  # noqa: E402
from pivotune.train.teachers import TeacherConfig  # noqa: E402
from pivotune.train.trainer import TrainConfig, train  # noqa: E402

TURNS = 20


def seconds_by_step(model: str, method: Method, config: Any, steps: int) -> list[float]:
    """Processor seconds of every step but the first."""
    policy = load_policy(model, device="cpu")
    materials = Materials(
        chat=policy.chat,
        sampler=TorchSampler(policy),
        tasks=suite_tasks("household:train", config.batch * (steps + 1), 0),
        make_environment=make_environment,
        steps=steps,
    )
    stamps = [time.process_time()]
    with tempfile.TemporaryDirectory() as folder:
        train(
            policy,
            method(materials, config),
            TrainConfig(steps=steps + 1, learning_rate=1e-6, checkpoint_every=steps + 1),
            Path(folder),
            on_step=lambda _metrics: stamps.append(time.process_time()),
        )
    return [after - before for before, after in pairwise(stamps)][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--model", default=model_path("lab"))
    arguments = parser.parse_args()
    shape = {"batch": arguments.tasks, "max_turns": TURNS}
    grpo = seconds_by_step(
        arguments.model, EpisodeGrpo, EpisodeGrpoConfig(**shape), arguments.steps
    )
    print(f"GRPO: {statistics.median(grpo):.2f} s a step", flush=True)
    ratios: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for kind in ("oracle", "self"):
        for k in (0, 1, 2):
            config = PivotOpdConfig(
                **shape, teacher=TeacherConfig(kind), recovery_turns=k, w_rec=1.0 if k else 0.0
            )
            found = seconds_by_step(arguments.model, PivotOpd, config, arguments.steps)
            each = [a / b for a, b in zip(found, grpo, strict=True)]
            name = f"{kind} K={k}"
            ratios[name], seconds[name] = statistics.median(each), statistics.median(found)
            print(
                f"PivotOPD, {name}: {seconds[name]:.2f} s a step, {ratios[name] - 1:+.1%} "
                f"({min(each) - 1:+.1%} to {max(each) - 1:+.1%})",
                flush=True,
            )
    line = {
        "name": "pivot_opd",
        "ours": round(seconds["self K=2"], 3),
        "theirs": round(statistics.median(grpo), 3),
        "ratio": round(ratios["self K=2"], 3),
        "unit": "processor seconds a step (PivotOPD over GRPO)",
        "setting": f"self-taught, K = 2, detection counted; {arguments.tasks} tasks x 8 episodes "
        f"of at most {TURNS} turns, median of {arguments.steps} steps, one thread; all ratios: "
        + ", ".join(f"{name} {value:.2f}" for name, value in ratios.items()),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
