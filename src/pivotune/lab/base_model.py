"""Build the lab base model: a small model from nothing, taught a mixture that is written down.

    out/tokenizer/     byte-level BPE of the mixture's texts and the chat template
    out/run/           the training run (metrics.jsonl, state to resume from)
    out/model/         the finished policy, an ordinary Hugging Face folder
    out/model/card.json    what it is made of, what it took, what it can do

The base is meant to be capable but unsharp: it has seen the house's mechanics from an expert
that errs, so that at one state its samples sometimes succeed and sometimes fail. One seed
gives one model on one kind of CPU; killed anywhere, the same command goes on.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.store import write_json
from pivotune.lab.measure import BaseMeasure, MeasureConfig, measure_base
from pivotune.lab.mixture import MixtureConfig, composition, draw_mixture, mixture_texts
from pivotune.lab.tokenizer import save_tokenizer, train_tokenizer
from pivotune.models.chat import ChatFormat
from pivotune.models.fresh import ModelShape, fresh_policy
from pivotune.models.policy import Policy, load_policy
from pivotune.models.sampler import TorchSampler
from pivotune.train.objective import Collected, Stateless
from pivotune.train.trainer import TrainConfig, TrainResult, train


class BaseConfig(msgspec.Struct, frozen=True):
    """What a base model is made of; the defaults made the one that is shipped."""

    mixture: MixtureConfig = MixtureConfig()
    shape: ModelShape = ModelShape()
    vocabulary: int = 1024
    tokenizer_steps: int = 200
    """Steps of the mixture whose texts the tokenizer learns from."""
    steps: int = 4200
    learning_rate: float = 3e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    token_budget: int = 4096
    checkpoint_every: int = 50


class BaseCard(msgspec.Struct, frozen=True):
    """What a base model is. `composition`: share of the training tokens by source."""

    config: BaseConfig
    seed: int
    parameters: int
    composition: dict[str, float]
    trained_tokens: int
    seconds: float
    measured_by: MeasureConfig
    measured: BaseMeasure


class MixtureObjective(Stateless):
    """Likelihood of the mixture's own words: an objective of the ordinary trainer."""

    def __init__(self, chat: ChatFormat, config: MixtureConfig) -> None:
        self._chat = chat
        self._config = config

    def collect(self, step: int) -> Collected:
        return Collected(draw_mixture(self._chat, self._config, step))


def train_base(
    out: Path,
    config: BaseConfig,
    *,
    seed: int = 0,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> TrainResult:
    """Train from nothing, or go on where `out` stopped."""
    mixture = msgspec.structs.replace(config.mixture, seed=seed)
    if not (out / "tokenizer" / "tokenizer_config.json").exists():
        texts = mixture_texts(mixture, config.tokenizer_steps)
        save_tokenizer(train_tokenizer(texts, config.vocabulary), out / "tokenizer")
    policy = fresh_policy(config.shape, out / "tokenizer", seed)
    settings = TrainConfig(
        steps=config.steps,
        seed=seed,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_steps,
        schedule="cosine",
        betas=(0.9, 0.98),
        weight_decay=config.weight_decay,
        token_budget=config.token_budget,
        checkpoint_every=config.checkpoint_every,
    )
    objective = MixtureObjective(policy.chat, mixture)
    return train(policy, objective, settings, out / "run", on_step=on_step)


def keep_model(result: TrainResult, out: Path) -> Policy:
    """Copy a finished policy to `out/model`, and load it from there."""
    shutil.copytree(result.policy, out / "model", dirs_exist_ok=True)
    return load_policy(out / "model")


def seconds_of(result: TrainResult) -> float:
    """What a training took, to a tenth."""
    return round(sum(cost.seconds for cost in result.costs.values()), 1)


def build_base(
    out: Path,
    config: BaseConfig,
    *,
    seed: int = 0,
    measure: MeasureConfig,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> BaseCard:
    """Train, measure, and write `out/model` with its card."""
    result = train_base(out, config, seed=seed, on_step=on_step)
    policy = keep_model(result, out)
    costs = result.costs.values()
    card = BaseCard(
        config=config,
        seed=seed,
        parameters=sum(each.numel() for each in policy.model.parameters()),
        composition=composition(policy.chat, config.mixture),
        trained_tokens=sum(cost.trained_tokens for cost in costs),
        seconds=seconds_of(result),
        measured_by=measure,
        measured=measure_base(TorchSampler(policy), measure),
    )
    write_json(out / "model" / "card.json", card)
    return card
