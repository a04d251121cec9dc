"""Policies and samplers of a run, by the names that the recipe uses."""

from pathlib import Path
from typing import Any

from pivotune.core.errors import RecipeError
from pivotune.core.protocols import Sampler
from pivotune.models.chat import ChatFormat
from pivotune.models.policy import Policy, load_chat, load_policy
from pivotune.models.sampler import TorchSampler
from pivotune.models.server import ServerSampler
from pivotune.pipeline.recipe import Recipe, model_path
from pivotune.pipeline.run import Run


def open_base(run: Run) -> Policy:
    """The policy that everything starts from and is compared with, after any warm start."""
    if run.recipe.warm_start.steps:
        return _open(run.recipe, run.folder.warm_start / "final")
    return _open(run.recipe, run.recipe.model_path)


def _open(recipe: Recipe, path: Path | str) -> Policy:
    return load_policy(path, prompts=recipe.prompts, thinking=recipe.thinking)


def base_settings(run: Run) -> Any:
    """What decides the base and its prompts: part of the settings of every stage that uses it."""
    return (run.recipe.thinking, _base_weights(run))


def _base_weights(run: Run) -> Any:
    recipe = run.recipe
    if recipe.prompts != "template":
        warm = run.folder.settings("warm") if recipe.warm_start.steps else ""
        return (recipe.model, recipe.prompts, warm)
    if recipe.sampler == "server":
        return (recipe.model, "served", recipe.server.model, recipe.server.chat)
    if recipe.warm_start.steps:
        return (recipe.model, run.folder.settings("warm"))
    return recipe.model


def open_policy(run: Run, checkpoint: Path | None) -> Policy:
    """A trained policy, or the base where there is no checkpoint."""
    if checkpoint is None:
        return open_base(run)
    return _open(run.recipe, checkpoint)


def open_sampler(policy: Policy) -> TorchSampler:
    """The local sampler over a policy's live weights."""
    return TorchSampler(policy)


def open_profiled(run: Run) -> Sampler:
    """The sampler of the policy that is profiled: the base here, or what an endpoint serves."""
    recipe = run.recipe
    if recipe.sampler == "torch":
        return open_sampler(open_base(run))
    if recipe.warm_start.steps:
        raise RecipeError(
            "an endpoint does not serve a warm start of this run",
            fix="warm up in a run of its own, serve its warm/final, and name that as the model",
        )
    return ServerSampler(recipe.server, _served_chat(recipe))


def _served_chat(recipe: Recipe) -> ChatFormat | None:
    """The format of prompts that are rendered here; None where the endpoint renders them."""
    if recipe.server.chat:
        return None
    return load_chat(recipe.model_path, thinking=recipe.thinking)


def open_teacher_model(recipe: Recipe, name: str) -> tuple[Sampler, ChatFormat | None]:
    """Another policy to learn from, and its chat format where its tokens are known here."""
    if name == "server":
        chat = _served_chat(recipe)
        return ServerSampler(recipe.server, chat), chat
    policy = load_policy(model_path(name))
    return open_sampler(policy), policy.chat


def chat_of(sampler: Sampler) -> ChatFormat | None:
    """The format of a sampler's prompts; None where they are not made here."""
    if isinstance(sampler, TorchSampler):
        return sampler.policy.chat
    return sampler.chat if isinstance(sampler, ServerSampler) else None


def prompt_maker(sampler: Sampler) -> str:
    """What makes the prompts of a sampler, in words."""
    if isinstance(sampler, TorchSampler):
        return sampler.policy.chat.name
    if isinstance(sampler, ServerSampler):
        return "the endpoint's own template" if sampler.chat is None else sampler.chat.name
    return sampler.name


def prompt_findings(sampler: Sampler) -> tuple[str, ...]:
    """How prompts are made, and what a template or an endpoint leaves to us; a line each."""
    if isinstance(sampler, TorchSampler):
        return sampler.policy.chat.findings
    if isinstance(sampler, ServerSampler):
        template = () if sampler.chat is None else sampler.chat.findings
        return (*template, *sampler.findings)
    return ()
