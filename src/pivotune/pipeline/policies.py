"""Policies, samplers and verifiers of a run, by the names that the recipe uses."""

from pathlib import Path

from pivotune.core.protocols import Verifier
from pivotune.domains.catalog import DOMAINS, make_environment
from pivotune.models.policy import Policy, load_policy
from pivotune.models.sampler import TorchSampler
from pivotune.pipeline.recipe import Recipe
from pivotune.turns.rollout import RestoredEnvironments
from pivotune.verify import build_verifier

BASE = "base"


def open_base(recipe: Recipe) -> Policy:
    """The policy that everything starts from and is compared with."""
    return load_policy(recipe.model_path)


def open_policy(recipe: Recipe, checkpoint: Path | None) -> Policy:
    """A trained policy, or the base where there is no checkpoint."""
    return open_base(recipe) if checkpoint is None else load_policy(str(checkpoint))


def open_sampler(policy: Policy) -> TorchSampler:
    """The local sampler over a policy's live weights."""
    return TorchSampler(policy)


def open_verifier(recipe: Recipe, name: str) -> Verifier:
    """A verifier of the traces' domain, else one of the general families."""
    domain = DOMAINS.get(recipe.traces.domain)
    return build_verifier(name, domain.verifiers if domain is not None else None)


def open_environments(verifier: Verifier) -> RestoredEnvironments | None:
    """Environments for a verifier that needs them."""
    return RestoredEnvironments(make_environment) if verifier.needs_environment else None
