"""Several methods in one run: pivots plus episodes, several domains, work to be kept.

    [methods.both.settings.sources]
    pivots = { objective = "local_grpo", settings = { batch = 16 } }
    games  = { objective = "episode_grpo", weight = 0.5, settings = { batch = 4 } }
    base   = { objective = "sft", weight = 0.1, domain = "skills", settings = { batch = 4 } }

Every source collects as it would alone; all trees of a step are one update. `weight` multiplies
the loss weights of a source's tokens, so a token of weight 0.5 pulls half as hard, and sources
with more tokens weigh more. Metrics carry the source's name before them.
"""

from dataclasses import replace
from typing import Any

import msgspec

from pivotune.core.config import check_keys
from pivotune.core.errors import RecipeError
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, JsonObject
from pivotune.models.trees import Segment, TokenTree
from pivotune.train.objective import Collected, Materials, Objective, required


class SourceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One method of the mixture."""

    objective: str
    """A name of the table, or "module:Class"."""
    weight: float = 1.0
    """What its tokens' loss weights are multiplied by."""
    domain: str = ""
    """Only turns, tasks and trajectories of this domain; empty: all."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """The method's own."""


class MixedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sources by name, each with its own batch."""

    sources: dict[str, SourceConfig] = msgspec.field(default_factory=dict)
    """The methods."""


class Mixed:
    """Collects from every source in turn."""

    Config = MixedConfig

    def __init__(self, materials: Materials, config: MixedConfig) -> None:
        load = required(materials.load, "a table of methods", "mixed")
        required(tuple(config.sources) or None, "sources", "mixed")
        self._weights = {name: each.weight for name, each in config.sources.items()}
        if min(self._weights.values()) <= 0:
            raise RecipeError("mixed: weights are above 0; leave a source out instead")
        self._parts: dict[str, Objective] = {}
        for name, source in config.sources.items():
            method = load(source.objective)
            where = f"settings of source {name!r} ({source.objective})"
            check_keys(method.Config, source.settings, where)
            try:
                settings = msgspec.convert(source.settings, method.Config)
            except msgspec.ValidationError as error:
                raise RecipeError(f"{where}: {error}") from error
            if getattr(settings, "batch", 1) < 1:
                raise RecipeError(f"{where}: batch starts at 1; leave the source out instead")
            self._parts[name] = method(part_of(materials, name, source.domain), settings)

    def collect(self, step: int) -> Collected:
        trees: list[TokenTree] = []
        metrics: dict[str, float] = {}
        phases: dict[str, Cost] = {}
        cost = Cost()
        for name, part in self._parts.items():
            found = part.collect(step)
            trees += [weighted(tree, self._weights[name]) for tree in found.trees]
            metrics |= {f"{name}/{key}": value for key, value in found.metrics.items()}
            cost += found.cost
            for phase, used in found.phases.items():
                phases[phase] = phases.get(phase, Cost()) + used
        return Collected(trees, metrics, cost, phases)

    def state(self) -> JsonObject:
        return {name: part.state() for name, part in self._parts.items()}

    def load_state(self, state: JsonObject) -> None:
        for name, part in self._parts.items():
            part.load_state(state[name])


def part_of(materials: Materials, name: str, domain: str) -> Materials:
    """The materials of one source: its own seed, and its own domain where one is named."""
    own = replace(materials, seed=derive_seed(materials.seed, "mixed", name))
    if not domain:
        return own
    return replace(
        own,
        turns=[turn for turn in own.turns if turn.task.domain == domain],
        solved=[turn for turn in own.solved if turn.task.domain == domain],
        candidates=[turn for turn in own.candidates if turn.task.domain == domain],
        tasks=[task for task in own.tasks if task.domain == domain],
        trajectories=[each for each in (*own.trajectories, *own.replay) if each.domain == domain],
        replay=[],
    )


def weighted(tree: TokenTree, weight: float) -> TokenTree:
    """The tree with all loss weights multiplied."""
    return TokenTree(tree.id, tuple(_weighted(segment, weight) for segment in tree.segments))


def _weighted(segment: Segment, weight: float) -> Segment:
    signal = segment.signal
    if weight == 1.0 or not signal.live.any():
        return segment
    targets = signal.targets
    scaled = replace(
        signal,
        pg_weights=signal.pg_weights * weight,
        ce_weights=signal.ce_weights * weight,
        targets=targets and replace(targets, weights=targets.weights * weight),
    )
    return replace(segment, signal=scaled)
