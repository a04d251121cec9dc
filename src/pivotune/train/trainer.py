"""The training loop: trees in, weights out. It does not know which method runs.

    collect -> normalise -> pack -> [log-probs -> loss -> backward] per micro-batch -> AdamW

A step is one `collect`; its trees are trained in `minibatches` updates, `inner_epochs` times
over. The model stays in evaluation mode (no dropout), so that trainer and sampler are the same
function and the first ratio is 1. A run folder holds

    metrics.jsonl   one line a step     last/   state to resume from     best/, final/   policies
    validated/STEP  every policy that was validated after step 0, where it is asked for
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from torch import nn

from pivotune.core.errors import ModelError, StoreError
from pivotune.core.ledger import Ledger
from pivotune.core.seeds import derive_seed
from pivotune.core.store import AppendLog, read_records, write_records
from pivotune.core.types import Cost, JsonObject, content_hash
from pivotune.models.adapter import frozen_copy
from pivotune.models.forward import self_check, validate_tree
from pivotune.models.policy import Policy
from pivotune.models.trees import TokenTree
from pivotune.train.batches import computed_tokens, normalise, pack
from pivotune.train.checkpoint import (
    TrainState,
    load_checkpoint,
    load_state,
    recover_folder,
    replace_folder,
    save_checkpoint,
    trained_parameters,
)
from pivotune.train.checks import check_ratio, check_reference
from pivotune.train.losses import LossConfig, LossSums
from pivotune.train.objective import Collected, Objective
from pivotune.train.update import (
    Pass,
    Prepared,
    UpdateSums,
    backward,
    clip,
    prepare,
    score,
    with_frozen,
    with_reference,
)

Metrics = dict[str, Any]

VALIDATED = "validated"
"""Folder of the kept policies, one folder a step."""


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a run trains; what it trains on is the objective's.

    Clip range, beta and one epoch are published settings. The published learning rate of 1e-6
    is for models of 1e9 parameters and more: small ones want 1e-5 to 1e-4.
    """

    steps: int = 50
    """Number of collects."""
    seed: int = 0
    """Every random choice of the run derives from it."""
    learning_rate: float = 1e-5
    """AdamW's, after the warm-up."""
    warmup_steps: int = 5
    """Steps of linear warm-up."""
    schedule: Literal["constant", "cosine"] = "constant"
    """After the warm-up: hold, or fall to 0 at the last step along a cosine."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's moment decays."""
    weight_decay: float = 0.0
    """AdamW's decay of every trained parameter."""
    clip_gradient: float = 1.0
    """Largest gradient norm of an update."""
    inner_epochs: int = 1
    """Times that a step's trees are trained; 1 keeps the data on-policy."""
    minibatches: int = 1
    """Updates that a step's trees are divided among."""
    token_budget: int = 8192
    """Largest micro-batch in tokens: bounds memory, changes no gradient."""
    path: Literal["tree", "plain"] = "tree"
    """Compute every token of a tree once, or an ordinary row per sequence."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: autocast of the forward pass, weights and moments stay as they are."""
    recompute: bool = False
    """Compute activations again in the backward pass: less memory, more time, same gradients."""
    checkpoint_every: int = 10
    """Steps between checkpoints to resume from."""
    evaluate_every: int = 0
    """Steps between validations; 0: only before the first and after the last step."""
    ratio_tolerance: float = 1e-3
    """Largest |log ratio| between sampler and trainer before the first update."""
    loss: LossConfig = LossConfig()
    """The loss terms' settings."""


class Validation(msgspec.Struct, frozen=True):
    """What the `evaluate` callback returns: a score (higher is better) and what it cost."""

    score: float
    cost: Cost = Cost()
    metrics: dict[str, float] = msgspec.field(default_factory=dict)


class TrainResult(msgspec.Struct, frozen=True):
    """Where the trained policy lies and what training it cost.

    `policy` is the folder to use: `best/` where there were validations, else `final/`.
    `reference_hash` names the reference policy, None where beta is 0.
    """

    steps: int
    policy: Path
    best_step: int | None
    best_score: float | None
    costs: dict[str, Cost]
    reference_hash: str | None


Evaluate = Callable[[int], Validation]
OnStep = Callable[[Metrics], None]


def train(
    policy: Policy,
    objective: Objective,
    config: TrainConfig,
    run_dir: Path,
    *,
    reference: Policy | None = None,
    on_step: OnStep | None = None,
    evaluate: Evaluate | None = None,
    keep_validated: bool = False,
) -> TrainResult:
    """Train `policy` in place, or go on where the run folder stopped.

    `policy` is always given with the weights that the run began with, also when resuming: the
    reference is a frozen copy of them unless one is given, and only exists where beta is not 0.
    `evaluate(steps done)` is called before the first step too, so that the best policy may be
    the one that training began with; `keep_validated` keeps every later policy that it saw.
    Raises `NumericsError` when a check of the first batch fails or a loss or gradient is not
    finite; `StoreError` when the run folder belongs to other settings.
    """
    run = _Run(policy, objective, config, run_dir, reference, evaluate, keep_validated)
    try:
        run.resume()
        for step in range(run.step, config.steps):
            metrics = run.take_step(step)
            if on_step is not None:
                on_step(metrics)
        return run.finish()
    finally:
        run.close()


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of a step, counted from 0."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    share = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


class _Run:
    """A training run while it lasts: model, optimiser, log and totals."""

    def __init__(
        self,
        policy: Policy,
        objective: Objective,
        config: TrainConfig,
        run_dir: Path,
        reference: Policy | None,
        evaluate: Evaluate | None,
        keep_validated: bool,
    ) -> None:
        self.policy = policy
        self.model: nn.Module = policy.model.eval()
        self.objective = objective
        self.config = config
        self.run_dir = run_dir
        self.evaluate = evaluate
        self.keep_validated = keep_validated
        self.how = Pass(config.path, config.precision, config.recompute)
        self.step = 0
        self.best_step: int | None = None
        self.best_score: float | None = None
        self.ledger = Ledger()
        self.settings = _settings(policy.hash, config)
        self.reference, self.reference_hash = self._frozen_reference(reference)
        self.reference_is_start = reference is None or reference.hash == policy.hash
        self.parameters = _float32_parameters(self.model)
        self.device = self.parameters[0].device
        self.optimiser = torch.optim.AdamW(
            self.parameters,
            lr=0.0,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.log: AppendLog | None = None

    def _frozen_reference(self, given: Policy | None) -> tuple[nn.Module | None, str | None]:
        if self.config.loss.beta == 0.0:
            return None, None
        if given is not None:
            return given.model.eval(), given.hash
        return frozen_copy(self.model), self.policy.hash

    def resume(self) -> None:
        """Load the last checkpoint and cut the log behind it, or begin with step 0."""
        for name in ("best", "final"):
            recover_folder(self.run_dir / name)
        state = load_state(self.run_dir / "last")
        if state is not None:
            self._restore(state)
        log_path = self.run_dir / "metrics.jsonl"
        _cut_log(log_path, self.step if state is not None else -1)
        self.log = AppendLog(log_path)
        if state is None:
            self.log.append([{"step": 0, **self._validate()}])
            self.save()

    def _restore(self, state: TrainState) -> None:
        folder = self.run_dir / "last"
        if state.settings != self.settings or state.step > self.config.steps:
            raise StoreError(
                "this run folder was trained under other settings",
                where=str(folder),
                got=f"settings {state.settings}, step {state.step}",
                expected=f"settings {self.settings}, at most step {self.config.steps}",
                fix="use another run folder, or delete this one to train again",
            )
        load_checkpoint(folder, self.model, self.optimiser)
        self.objective.load_state(state.objective)
        self.ledger = Ledger(state.costs)
        self.step, self.best_step, self.best_score = state.step, state.best_step, state.best_score

    def take_step(self, step: int) -> Metrics:
        """Collect, learn, validate where it is time, log and save."""
        started = time.perf_counter()
        collected = self.objective.collect(step)
        collected_at = time.perf_counter()
        self._charge_collecting(collected, collected_at - started)
        with self.ledger.timed("train"):
            learned = self._learn(collected.trees, step)
        self.step = step + 1
        every = self.config.evaluate_every
        due = self.step == self.config.steps or bool(every and self.step % every == 0)
        metrics = {
            "step": self.step,
            **collected.metrics,
            **learned,
            "seconds_train": time.perf_counter() - collected_at,
            **(self._validate() if due else {}),
            "cost": _plain_cost(self.ledger.total()),
            **self._spent(),
        }
        assert self.log is not None
        self.log.append([metrics])
        if self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps:
            self.save()
        return metrics

    def _spent(self) -> Metrics:
        """Running totals without validation: what training itself has used."""
        costs = self.ledger.costs.items()
        spent = sum((cost for phase, cost in costs if phase != "validate"), Cost())
        return {"spent": _plain_cost(spent), "seconds_spent": spent.seconds}

    def _charge_collecting(self, collected: Collected, seconds: float) -> None:
        """The seconds of phases that are shown apart are no longer those of collecting."""
        for phase, cost in collected.phases.items():
            self.ledger.charge(phase, cost)
            seconds -= cost.seconds
        self.ledger.charge("collect", msgspec.structs.replace(collected.cost, seconds=seconds))

    def _learn(self, trees: Sequence[TokenTree], step: int) -> Metrics:
        """All updates of one step; nothing moves when there is nothing to train."""
        started = time.perf_counter()
        batches = self._prepare(trees, step)
        if not self.optimiser.state:
            self._check([each for batch in batches for each in batch])
        rate = learning_rate(step, self.config)
        updates, norms = [], []
        for _ in range(self.config.inner_epochs):
            for batch in batches:
                updates.append(backward(self.model, batch, self.how, self.config.loss))
                norms.append(clip(self.parameters, batch, self.config.clip_gradient))
                self._update_weights(rate)
        tokens = self.config.inner_epochs * sum(
            computed_tokens(tree, shared=self.config.path == "tree")
            for batch in batches
            for each in batch
            for tree in each.trees
        )
        self.ledger.charge("train", Cost(trained_tokens=tokens))
        seconds = max(1e-9, time.perf_counter() - started)
        return {
            "learning_rate": rate,
            "updates": len(updates),
            **_measures(updates, norms, with_kl=self.reference is not None),
            "tokens_computed": tokens,
            "tokens_per_second": tokens / seconds,
        }

    def _update_weights(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.policy.mark_changed()  # the fused optimiser does not count as an in-place write

    def _prepare(self, trees: Sequence[TokenTree], step: int) -> list[list[Prepared]]:
        """The step's updates, each a list of micro-batches with all that its loss needs."""
        for tree in trees:
            validate_tree(
                tree,
                vocabulary=self.policy.vocabulary,
                context_limit=self.policy.context_limit,
            )
        budget, shared = self.config.token_budget, self.config.path == "tree"
        batches = [
            [prepare(each, self.device) for each in pack(normalised, budget, shared=shared)]
            for part in self._minibatches(trees, step)
            if (normalised := normalise(part, self.config.loss))
        ]
        if self.reference is not None:
            batches = [
                with_reference(batch, score(self.reference, batch, self.how)) for batch in batches
            ]
        if len(batches) * self.config.inner_epochs > 1 and self._needs_frozen(batches):
            batches = [with_frozen(batch, score(self.model, batch, self.how)) for batch in batches]
        return batches

    def _minibatches(self, trees: Sequence[TokenTree], step: int) -> list[list[TokenTree]]:
        if self.config.minibatches == 1:
            return [list(trees)]
        generator = np.random.default_rng(derive_seed(self.config.seed, "minibatches", step))
        parts = np.array_split(generator.permutation(len(trees)), self.config.minibatches)
        return [[trees[i] for i in part] for part in parts]

    def _needs_frozen(self, batches: Sequence[Sequence[Prepared]]) -> bool:
        """Whether the policy at the start of the step is needed once weights have moved."""
        if self.config.loss.importance_cap is not None:
            return True
        tokens = (each.tokens for batch in batches for each in batch)
        return any(bool(torch.isnan(each.sampled[each.pg_weights != 0]).any()) for each in tokens)

    def _check(self, batches: Sequence[Prepared]) -> None:
        """What must hold for everything that the first update of the run trains on."""
        if self.config.path == "tree":
            self_check(self.model, [tree for each in batches for tree in each.trees])
        batches = [each for each in batches if each.has_policy_gradient]
        logprobs = score(self.model, batches, self.how)
        if self.config.loss.importance_cap is None:
            check_ratio(batches, logprobs, self.config.ratio_tolerance)
        if self.reference_is_start:
            check_reference(batches, logprobs, self.reference_hash)

    def _validate(self) -> Metrics:
        """Validate, and keep the policy where it is the best so far (the earliest of equals)."""
        if self.evaluate is None:
            return {}
        with self.ledger.timed("validate"):
            found = self.evaluate(self.step)
        self.ledger.charge("validate", msgspec.structs.replace(found.cost, seconds=0.0))
        if self.best_score is None or found.score > self.best_score:
            replace_folder(self.run_dir / "best", self.policy.save)
            self.best_step, self.best_score = self.step, found.score
        if self.keep_validated and self.step:
            replace_folder(self.run_dir / VALIDATED / str(self.step), self.policy.save)
        return {"validation": found.score, **found.metrics}

    def save(self) -> None:
        """Replace the checkpoint to resume from."""
        state = TrainState(
            step=self.step,
            settings=self.settings,
            objective=self.objective.state(),
            costs=self.ledger.costs,
            best_step=self.best_step,
            best_score=self.best_score,
        )
        save_checkpoint(self.run_dir / "last", self.model, self.optimiser, state)

    def finish(self) -> TrainResult:
        """Export the last policy and say where the one to use lies."""
        replace_folder(self.run_dir / "final", self.policy.save)
        return TrainResult(
            steps=self.step,
            policy=self.run_dir / ("final" if self.best_step is None else "best"),
            best_step=self.best_step,
            best_score=self.best_score,
            costs=self.ledger.costs,
            reference_hash=self.reference_hash,
        )

    def close(self) -> None:
        """Close the log; the weights stay in the policy."""
        if self.log is not None:
            self.log.close()


def _float32_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The trained parameters; raises `ModelError` for those too coarse for small updates."""
    parameters = trained_parameters(model)
    for name, each in parameters.items():
        if each.dtype != torch.float32:
            raise ModelError(
                "trained weights must be float32: small updates vanish in coarser ones",
                where=name,
                got=str(each.dtype),
                fix="load the policy in float32 and set train.precision=bfloat16 for speed",
            )
    if not parameters:
        raise ModelError("the policy has no parameter to train", where=type(model).__name__)
    return list(parameters.values())


def _settings(start_hash: str, config: TrainConfig) -> str:
    """What a checkpoint must agree with; a run may be made longer where that changes no rate."""
    steps = config.steps if config.schedule == "cosine" else 0
    fixed = msgspec.structs.replace(config, steps=steps, checkpoint_every=0)
    return content_hash(start_hash, fixed)


def _cut_log(path: Path, last_step: int) -> None:
    """Drop the lines of steps that the checkpoint does not know."""
    if path.exists():
        lines = list(read_records(path, JsonObject))
        kept = [line for line in lines if line["step"] <= last_step]
        if len(kept) < len(lines):
            write_records(path, kept)


def _measures(updates: Sequence[UpdateSums], norms: Sequence[float], *, with_kl: bool) -> Metrics:
    """Means over tokens and updates; a term that was not trained has no entry."""
    if not updates:
        return {}
    tokens = sum((each.tokens for each in updates), LossSums())
    measures: Metrics = {
        "loss": sum(each.loss for each in updates) / len(updates),
        "gradient_norm": sum(norms) / len(norms),
    }
    if tokens.tokens:
        measures |= {
            "ratio_mean": tokens.ratio / tokens.tokens,
            "ratio_max": tokens.ratio_max,
            "clip_fraction": tokens.clipped / tokens.tokens,
            "entropy": sum(each.entropy for each in updates) / tokens.tokens,
            "pg_tokens": int(tokens.tokens),
        }
        if with_kl:
            measures["kl"] = tokens.kl / tokens.tokens
    if tokens.ce_tokens:
        measures |= {"ce": tokens.ce / tokens.ce_tokens, "ce_tokens": int(tokens.ce_tokens)}
    if tokens.forward_kl_tokens:
        measures["forward_kl"] = tokens.forward_kl / tokens.forward_kl_tokens
    return measures


def _plain_cost(cost: Cost) -> JsonObject:
    """Running totals in counts: equal for equal runs, unlike seconds."""
    return {name: getattr(cost, name) for name in cost.__struct_fields__ if name != "seconds"}
