"""What a method is to the trainer: something that collects weighted token trees for each step.

A method is a class with a `Config` (its own settings) and a constructor
`(materials, config)`: it takes from the materials what it needs and says so when that is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from pivotune.core.errors import RecipeError
from pivotune.core.protocols import Sampler, Verifier
from pivotune.core.types import Cost, JsonObject, Profile, Task, Trajectory, Turn
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import TokenTree
from pivotune.turns.rollout import MakeEnvironment, RestoredEnvironments

T = TypeVar("T")
Draw = Callable[[int], Sequence[TokenTree]]


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """One step's training data. No trees: nothing to learn this step, the weights stay.

    `metrics` go into the step's line of the metrics log under their own names; `cost` is what
    collecting used (its seconds are the trainer's to measure). `phases` are parts of the collecting
    that the ledger shows apart, such as detection: with their own seconds, and not in `cost`.
    """

    trees: Sequence[TokenTree]
    metrics: Mapping[str, float] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    phases: Mapping[str, Cost] = field(default_factory=dict)


class Objective(Protocol):
    """A method: it samples or draws, and writes per-token signals. It never sees the model.

    Steps count from 0. Whatever `collect` does must follow from the step, the policy's weights
    and `state()`, so that a resumed run repeats an unbroken one.
    """

    def collect(self, step: int) -> Collected: ...

    def state(self) -> JsonObject:
        """What `collect` remembers from step to step; JSON-able, {} where it remembers nothing."""
        ...

    def load_state(self, state: JsonObject) -> None: ...


class Stateless:
    """The two state methods of an objective that remembers nothing."""

    def state(self) -> JsonObject:
        return {}

    def load_state(self, state: JsonObject) -> None:
        """Nothing to restore."""


@dataclass(frozen=True, slots=True, eq=False)
class Materials:
    """What a run has to train from; a method takes what it needs.

    `turns` are the pivots (or whatever turns are trained on), `solved` those that the base mostly
    solves already, `candidates` all that pivots may be chosen from anew, `trajectories` the
    expert's, `replay` those of other work to be mixed in. `draw` gives ready trees for a step.
    `tasks` are played from the start in environments from `make_environment`. `teacher` is another
    policy to learn from, `teacher_chat` its chat format where it is known. `steps` is the length
    of the run, for what changes along it. `load` finds a method by name, for one that mixes
    several.
    """

    seed: int = 0
    chat: ChatFormat | None = None
    sampler: Sampler | None = None
    turns: Sequence[Turn] = ()
    solved: Sequence[Turn] = ()
    candidates: Sequence[Turn] = ()
    trajectories: Sequence[Trajectory] = ()
    replay: Sequence[Trajectory] = ()
    profiles: Sequence[Profile] = ()
    verifier: Verifier | None = None
    environments: RestoredEnvironments | None = None
    draw: Draw | None = None
    tasks: Sequence[Task] = ()
    make_environment: MakeEnvironment | None = None
    teacher: Sampler | None = None
    teacher_chat: ChatFormat | None = None
    steps: int = 0
    load: "Callable[[str], Method] | None" = None


class Method(Protocol):
    """An objective's class: `Config` is the struct of its settings."""

    @property
    def Config(self) -> type[msgspec.Struct]: ...  # noqa: N802

    def __call__(self, materials: Materials, config: Any) -> Objective: ...


def required(part: T | None, name: str, method: str) -> T:
    """The part, or a `RecipeError` that says which method lacks what."""
    if part is None or (isinstance(part, Sequence) and not part):
        raise RecipeError(
            f"the objective {method!r} needs {name}",
            got="none",
            fix="run the stage that makes it, or choose another objective",
        )
    return part
