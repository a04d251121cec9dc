"""A stronger model of the same family, for methods that learn from another policy.

The base is trained on over its own mixture, but with no weight on the mistakes of the player: it
sees the states that mistakes lead to and is taught only what is right there. Hints stay in the
mixture, and many more judged games: the base tells solved from failed attempts, and hardly ever
where one went wrong.

    out/run/      the training run (state to resume from)
    out/model/    the policy, named as `teacher_model` in a recipe; model/card.json what it can do
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.store import write_json
from pivotune.domains.household.environment import generated_task
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.lab.base_model import BaseConfig, MixtureObjective, keep_model, seconds_of
from pivotune.lab.measure import BaseMeasure, MeasureConfig, measure_base
from pivotune.lab.mixture import MixtureConfig, judging_messages
from pivotune.lab.rendering import conversation_tree
from pivotune.models.chat import ChatFormat
from pivotune.models.policy import Policy
from pivotune.models.sampler import TorchSampler
from pivotune.train.objective import Collected
from pivotune.train.trainer import TrainConfig, train

_FIRST_JUDGED = 40_000_000
"""Judged games are numbered from here: none of them is of the mixture."""


class TeacherConfig(msgspec.Struct, frozen=True):
    """How long the base is trained on; the mixture is that of `base`, without its mistakes.

    `judged`: judged games a step, beside the mixture's own.
    """

    base: BaseConfig = BaseConfig()
    steps: int = 600
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    judged: int = 8
    checkpoint_every: int = 50


class TeacherCard(msgspec.Struct, frozen=True):
    """What a teacher is, and what it can do beside the base."""

    config: TeacherConfig
    base_hash: str
    seed: int
    seconds: float
    measured: BaseMeasure


def teacher_mixture(config: TeacherConfig, seed: int) -> MixtureConfig:
    """The base's mixture without its mistakes and its first steps."""
    return msgspec.structs.replace(
        config.base.mixture,
        seed=seed,
        echo_steps=0,
        mistake_weight=0.0,
        unsure_from=config.steps,
    )


class TeacherObjective(MixtureObjective):
    """Likelihood of the mixture's words and of judgements."""

    def __init__(self, chat: ChatFormat, config: TeacherConfig, seed: int) -> None:
        super().__init__(chat, teacher_mixture(config, seed))
        self._judged = config.judged

    def collect(self, step: int) -> Collected:
        trees = list(super().collect(step).trees)
        for number in range(self._judged):
            game = _FIRST_JUDGED + step * self._judged + number
            messages = judging_messages(
                generated_task(game, "train", TINY_GAMES), self._config.doubts, self._config.seed
            )
            trees.append(conversation_tree(self._chat, f"judged {step}.{number}", messages, ()))
        return Collected(trees)


def build_teacher(
    out: Path,
    base: Policy,
    config: TeacherConfig,
    *,
    seed: int = 0,
    measure: MeasureConfig,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> TeacherCard:
    """Train `base` in place, or go on where `out` stopped; measure, and write `out/model`."""
    base_hash = base.hash
    settings = TrainConfig(
        steps=config.steps,
        seed=seed,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_steps,
        schedule="cosine",
        token_budget=config.base.token_budget,
        checkpoint_every=config.checkpoint_every,
    )
    objective = TeacherObjective(base.chat, config, seed)
    result = train(base, objective, settings, out / "run", on_step=on_step)
    policy = keep_model(result, out)
    card = TeacherCard(
        config=config,
        base_hash=base_hash,
        seed=seed,
        seconds=seconds_of(result),
        measured=measure_base(TorchSampler(policy), measure),
    )
    write_json(out / "model" / "card.json", card)
    return card
