"""Training metrics to a tracker besides the run folder: tensorboard, trackio or wandb.

Trackers are optional (`pip install 'pivotune[track]'`) and get what `metrics.jsonl` gets. None
of them uses the network by itself: trackio keeps a local database (TRACKIO_DIR), and wandb
writes offline unless WANDB_MODE says otherwise.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pivotune.core.errors import RecipeError
from pivotune.core.store import encode_json
from pivotune.core.types import JsonObject

Write = Callable[[int, Mapping[str, float]], None]
PROJECT = "pivotune"
PACKAGES = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}
"""Trackers by name, and the package that each needs."""


def check_trackers(names: Sequence[str], where: str) -> None:
    """Raise `RecipeError` for an unknown tracker, or one whose package is not installed."""
    for name in names:
        if name not in PACKAGES:
            raise RecipeError(
                "track: unknown tracker",
                where=where,
                got=name,
                expected=f"one of {', '.join(PACKAGES)}",
            )
        if find_spec(PACKAGES[name]) is None:
            raise RecipeError(
                f"track: {name} is not installed",
                where=where,
                fix="pip install 'pivotune[track]', or leave it out of `track`",
            )


@contextmanager
def open_sinks(
    names: Sequence[str], *, folder: Path, run: str, method: str, config: JsonObject
) -> Iterator[Callable[[JsonObject], None]]:
    """Something that is told of every line of a training log; closed at the end.

    `run` and `method` name it in the tracker; a method that goes on is found again by them.
    """
    openers = {"tensorboard": _tensorboard, "trackio": _trackio, "wandb": _wandb}
    with ExitStack() as stack:
        writes = [
            stack.enter_context(openers[name](folder / name, run, method, config)) for name in names
        ]

        def write(metrics: JsonObject) -> None:
            for each in writes:
                each(int(metrics["step"]), flat_metrics(metrics))

        yield write


def flat_metrics(metrics: JsonObject) -> dict[str, float]:
    """The numbers of a line; those of an inner object are named `outer/inner`."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            inner = flat_metrics(value)
            found |= {f"{name}/{key}": number for key, number in inner.items()}
        elif isinstance(value, int | float) and name != "step":
            found[name] = float(value)
    return found


@contextmanager
def _tensorboard(folder: Path, run: str, method: str, config: JsonObject) -> Iterator[Write]:
    """Event files in the method's own folder."""
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))

    def write(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    try:
        writer.add_text(f"{run} {method}", f"    {encode_json(config).decode()}")
        yield write
    finally:
        writer.close()


@contextmanager
def _trackio(folder: Path, run: str, method: str, config: JsonObject) -> Iterator[Write]:
    """A run in trackio's local database."""
    trackio: Any = import_module("trackio")
    name = f"{run}-{method}"
    trackio.init(
        project=PROJECT,
        name=name,
        config=config,
        resume="allow",
        embed=False,
        auto_log_cpu=False,
        auto_log_gpu=False,
    )
    try:
        yield lambda step, values: trackio.log(dict(values), step=step)
    finally:
        trackio.finish()


@contextmanager
def _wandb(folder: Path, run: str, method: str, config: JsonObject) -> Iterator[Write]:
    """A run of wandb, offline by default; steps may come again after a kill."""
    wandb: Any = import_module("wandb")
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{run}-{method}"
    found = wandb.init(
        project=PROJECT,
        name=name,
        dir=str(folder),
        config=config,
        mode=os.environ.get("WANDB_MODE", "offline"),
        resume="allow",
    )
    found.define_metric("*", step_metric="trained_step")
    try:
        yield lambda step, values: found.log({**values, "trained_step": step})
    finally:
        found.finish()
