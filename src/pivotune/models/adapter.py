"""LoRA: a policy whose own weights stay as they are, with small trained factors beside them.

    y = W x + (alpha / rank) B A x        A (rank, in) random, B (out, rank) zero at the start

Every linear layer but the output layer gets a pair. Training, checkpoints and sampling work on
the wrapped model as on any other, only that few parameters are trained; what is exported has
B A added to W and is an ordinary model again.
"""

import warnings
from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from pivotune.core.errors import ModelError

ALPHA_PER_RANK = 2
"""alpha / rank, the usual 2: the learning rate then means the same at every rank."""


def adapted_model(model: nn.Module, rank: int, seed: int) -> nn.Module:
    """The model with an adapter around it; the function that it computes is the same at first.

    A depends on the model's shapes, rank and seed only. Raises `ModelError` without peft.
    """
    if rank < 1:
        raise ModelError("an adapter has a rank of at least 1", got=rank)
    if find_spec("peft") is None:
        raise ModelError(
            "LoRA needs the package peft",
            fix="pip install 'pivotune[smollm]', or train all weights with adapter_rank=0",
        )
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=ALPHA_PER_RANK * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            # peft asks transformers 5 for a name that is going away.
            warnings.simplefilter("ignore", FutureWarning)
            wrapped: nn.Module = get_peft_model(model, config)
    return wrapped.eval()


def merged_model(model: nn.Module) -> Any:
    """A plain copy of an adapted model with B A added to W; any other model as it is."""
    copy: Any = deepcopy(model) if is_adapted(model) else None
    return model if copy is None else copy.merge_and_unload()


def is_adapted(model: nn.Module) -> bool:
    """Whether the model has an adapter around it."""
    return hasattr(model, "merge_and_unload")


def frozen_copy(model: nn.Module) -> nn.Module:
    """A copy that training leaves alone. Weights that are not trained are shared, not copied."""
    shared = {id(each): each for each in model.parameters() if not each.requires_grad}
    copy = deepcopy(model, shared)
    for parameter in copy.parameters():
        parameter.requires_grad_(False)
    return copy
