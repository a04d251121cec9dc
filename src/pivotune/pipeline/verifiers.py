"""Verifiers of a run, and the environments that they need, by the names that the recipe uses.

Loads no torch.
"""

from collections.abc import Callable
from functools import partial

from pivotune.core.protocols import Verifier
from pivotune.domains.catalog import DOMAINS, make_environment
from pivotune.pipeline.recipe import Recipe
from pivotune.turns.rollout import RestoredEnvironments
from pivotune.verify import build_verifier


def open_verifier(recipe: Recipe, name: str, within: frozenset[str] = frozenset()) -> Verifier:
    """One that the recipe sets, one of the traces' domain, else one of the general families.

    `within` are the compositions that it is a member of: none of them can be its own member.
    """
    domain = DOMAINS.get(recipe.traces.domain)
    known = domain.verifiers if domain is not None else {}
    spec = {"name": name, **recipe.verifiers.get(name, {})}
    if "of" not in spec:
        return build_verifier(spec, known)
    path = within | {name}
    members: dict[str, Callable[..., Verifier]] = {
        each: partial(open_verifier, recipe, each, path)
        for each in recipe.verifiers
        if each not in path
    }
    return build_verifier(spec, {**known, **members})


def open_environments(verifier: Verifier) -> RestoredEnvironments | None:
    """Environments for a verifier that needs them."""
    return RestoredEnvironments(make_environment) if verifier.needs_environment else None
