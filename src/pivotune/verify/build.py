"""From a name or a small table of settings to a verifier."""

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pivotune.core.config import check_keys
from pivotune.core.errors import RecipeError, VerifierError
from pivotune.core.protocols import Verifier
from pivotune.verify.command import CommandConfig, CommandVerifier
from pivotune.verify.compose import AllOf, AnyOf, FirstOf, Weighted
from pivotune.verify.effect import EffectConfig, EffectVerifier
from pivotune.verify.judge import JudgeConfig, JudgeVerifier
from pivotune.verify.outcome import OutcomeConfig, OutcomeVerifier
from pivotune.verify.process_reward import ProcessRewardConfig, ProcessRewardVerifier
from pivotune.verify.schema import SchemaConfig, SchemaVerifier
from pivotune.verify.strict import StrictVerifier
from pivotune.verify.text import TextConfig, TextVerifier
from pivotune.verify.tool_call import ToolCallConfig, ToolCallVerifier
from pivotune.verify.tool_name import ToolNameVerifier

Spec = str | Mapping[str, Any]
Constructor = Callable[..., Verifier]


def _configured(config: type[msgspec.Struct], verifier: Constructor) -> Constructor:
    """A constructor that takes the settings as keywords."""

    def construct(**options: Any) -> Verifier:
        check_keys(config, options, f"verifier {verifier.name}")  # type: ignore[attr-defined]
        return verifier(msgspec.convert(options, config))

    return construct


VERIFIERS: dict[str, Constructor] = {
    "strict": StrictVerifier,
    "tool_name": ToolNameVerifier,
    "tool_call": _configured(ToolCallConfig, ToolCallVerifier),
    "schema": _configured(SchemaConfig, SchemaVerifier),
    "text": _configured(TextConfig, TextVerifier),
    "command": _configured(CommandConfig, CommandVerifier),
    "effect": _configured(EffectConfig, EffectVerifier),
    "outcome": _configured(OutcomeConfig, OutcomeVerifier),
    "judge": _configured(JudgeConfig, JudgeVerifier),
    "process_reward": _configured(ProcessRewardConfig, ProcessRewardVerifier),
}
COMPOSITIONS: dict[str, Constructor] = {"first_of": FirstOf, "all_of": AllOf, "any_of": AnyOf}


def build_verifier(spec: Spec, more: Mapping[str, Constructor] | None = None) -> Verifier:
    """Build from `"tool_call"`, or `{"name": "tool_call", "order": "sequence"}`.

    Compositions name their members under `of` (and `weights`, for `weighted`). A name with a
    colon, `module:name`, is a user's own constructor. `more` adds the verifiers of a domain.
    Raises `VerifierError` or `RecipeError`.
    """
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    known = VERIFIERS | dict(more or {})
    if name in COMPOSITIONS or name == "weighted":
        return _compose(name, options, more)
    if isinstance(name, str) and ":" in name:
        constructor = _load(name)
    elif name in known:
        constructor = known[name]
    else:
        names = [*known, *COMPOSITIONS, "weighted"]
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)
        raise VerifierError(
            "unknown verifier",
            got=name,
            expected=f"one of {', '.join(names)}, or module:name",
            fix=f"did you mean {near[0]!r}?",
        )
    try:
        return constructor(**options)
    except (msgspec.ValidationError, TypeError) as error:
        raise RecipeError(
            f"settings that the verifier {name} does not take: {error}", got=options
        ) from error


def _compose(
    name: str, options: dict[str, Any], more: Mapping[str, Constructor] | None
) -> Verifier:
    specs = options.pop("of", None)
    if not isinstance(specs, (list, tuple)):
        raise VerifierError(f"{name} needs a list of verifiers under `of`", got=specs)
    members = [build_verifier(spec, more) for spec in specs]
    weights = options.pop("weights", [1.0] * len(members)) if name == "weighted" else []
    if options:
        raise RecipeError(f"settings that {name} does not take", got=options)
    return Weighted(members, weights) if name == "weighted" else COMPOSITIONS[name](members)


def _load(name: str) -> Constructor:
    module, _, attribute = name.partition(":")
    try:
        constructor: Constructor = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise VerifierError(
            f"cannot be loaded: {error}", where=name, expected="module:name of a constructor"
        ) from error
    return constructor
