"""A training run's state on disk: safetensors and JSON only, replaced as a whole or not at all.

    last/weights.safetensors      trained parameters by name
    last/optimiser.safetensors    AdamW moments and step counts: "exp_avg/NAME" and so on
    last/state.json               step, objective state, costs, best score so far

No generator state is stored: every random choice derives from (seed, step).
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pivotune.core.errors import StoreError
from pivotune.core.store import read_json, write_json
from pivotune.core.types import Cost, JsonObject

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class TrainState(msgspec.Struct, frozen=True):
    """What a run needs besides weights and moments; `settings` identifies how it was made."""

    step: int
    settings: str
    objective: JsonObject
    costs: dict[str, Cost]
    best_step: int | None = None
    best_score: float | None = None


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name; tied ones appear once."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def save_checkpoint(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, state: TrainState
) -> None:
    """Replace the checkpoint in `folder`; a kill or a full disk leaves the old one."""
    parameters = trained_parameters(model)
    weights = {name: each.detach().contiguous() for name, each in parameters.items()}
    moments = {
        f"{moment}/{name}": optimiser.state[each][moment]
        for name, each in parameters.items()
        if each in optimiser.state
        for moment in _MOMENTS
    }

    def fill(part: Path) -> None:
        save_file(weights, part / "weights.safetensors")
        save_file(moments, part / "optimiser.safetensors")
        write_json(part / "state.json", state)

    replace_folder(folder, fill)


def load_state(folder: Path) -> TrainState | None:
    """The state of the checkpoint in `folder`, None where there is none."""
    recover_folder(folder)
    return read_json(folder / "state.json", TrainState) if folder.exists() else None


def load_checkpoint(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Put a checkpoint's weights and moments in place; raises `StoreError` when they misfit."""
    parameters = trained_parameters(model)
    weights = _read_tensors(folder / "weights.safetensors")
    moments = _read_tensors(folder / "optimiser.safetensors")
    fits = weights.keys() == parameters.keys() and all(
        weights[name].shape == each.shape for name, each in parameters.items()
    )
    if not fits:
        raise StoreError(
            "the checkpoint belongs to another model",
            where=str(folder),
            got=f"{len(weights)} tensors",
            expected=f"the {len(parameters)} trained parameters of this policy",
            fix="train the policy that the run began with, or use another run folder",
        )
    with torch.no_grad():
        for name, each in parameters.items():
            each.copy_(weights[name])
    for name, each in parameters.items():
        if f"step/{name}" in moments:
            optimiser.state[each] = {
                moment: _beside(moments[f"{moment}/{name}"], each, moment) for moment in _MOMENTS
            }


def _beside(value: Tensor, parameter: nn.Parameter, moment: str) -> Tensor:
    """AdamW keeps float32 step counts beside the parameter (its fused form asks for that)."""
    return value.to(parameter.device) if moment == "step" else value.to(parameter)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"damaged checkpoint: {error}",
            where=str(path),
            fix="delete the folder and run the stage again",
        ) from error
    return tensors


def replace_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a fresh folder beside `folder`, then put it in its place.

    Killed at any point, `recover_folder` finds the old content or the new one, whole.
    """
    recover_folder(folder)
    part, old = _beside_folder(folder)
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        fill(part)
        for path in part.iterdir():
            _sync(path)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part, ignore_errors=True)
        recover_folder(folder)
        raise StoreError(
            f"the folder cannot be written: {error}",
            where=str(folder),
            fix="free space or choose another run folder, then run again: finished work is kept",
        ) from error


def recover_folder(folder: Path) -> None:
    """Finish or undo a replacement that was cut short."""
    _, old = _beside_folder(folder)
    if old.exists():
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(folder)


def _beside_folder(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.old")


def _sync(path: Path) -> None:
    if path.is_file():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
