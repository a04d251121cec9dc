"""What all methods that draw groups share: how large, how hot, and what a reward is compared with.

A group is G samples of one thing: actions at a pivot, or episodes of a task.
"""

import msgspec

from pivotune.core.errors import RecipeError
from pivotune.train.advantages import Baseline, Scale
from pivotune.train.objective import Materials
from pivotune.turns.sampling import PosteriorTemperatures, PtgsConfig


class GroupConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The groups of a step."""

    batch: int = 16
    """Groups a step: pivots, or tasks to play."""
    group: int = 8
    """Samples in a group: actions at a pivot, or episodes of a task."""
    temperature: float = 1.0
    """Sampling temperature; log-probabilities and ratios are taken at it."""
    max_tokens: int = 48
    """Limit of an action."""
    baseline: Baseline = "mean"
    """What a reward is compared with: the group's mean, or the mean of the others."""
    scale: Scale = "std"
    """Divide by the group's standard deviation, or not (Dr.GRPO)."""
    invalid_limit: float = 0.05
    """Largest share of a step's verdicts, or of its episodes' environments, that may fail."""
    refill: int = 0
    """Rounds in which groups whose rewards are all equal are replaced by others."""
    ptgs: PtgsConfig | None = None
    """Temperatures that follow the outcomes at each pivot or task."""


def check_groups(config: GroupConfig, samples: str) -> None:
    """Raises `RecipeError` where the `samples` ("actions", "episodes") of a group cannot differ."""
    if min(config.batch, config.max_tokens) < 1:
        raise RecipeError(
            "a step needs groups, and an action tokens",
            got=f"batch {config.batch}, max_tokens {config.max_tokens}",
            expected="both from 1",
        )
    if config.group < 2 or config.temperature <= 0:
        raise RecipeError(
            f"a group needs at least two {samples} that can differ",
            got=f"group {config.group}, temperature {config.temperature}",
            expected="group of 2 or more, temperature above 0",
        )


def posterior_temperatures(
    config: GroupConfig, materials: Materials
) -> PosteriorTemperatures | None:
    """Temperatures that follow outcomes, None where all groups have the same one."""
    if config.ptgs is None:
        return None
    return PosteriorTemperatures(
        config.ptgs,
        reference=config.temperature,
        steps=materials.steps,
        seed=materials.seed,
    )
