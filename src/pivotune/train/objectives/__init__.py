"""The methods by name, and `load_objective` for one of a user's own."""

from importlib import import_module

from pivotune.core.errors import RecipeError
from pivotune.train.objective import Method
from pivotune.train.objectives.agent_opsd import AgentOpsd
from pivotune.train.objectives.episode_grpo import EpisodeGrpo
from pivotune.train.objectives.gigpo import Gigpo
from pivotune.train.objectives.likelihood import Likelihood
from pivotune.train.objectives.local_grpo import LocalGrpo
from pivotune.train.objectives.mixed import Mixed
from pivotune.train.objectives.opd import Opd
from pivotune.train.objectives.opsd import Opsd
from pivotune.train.objectives.pivot_opd import PivotOpd
from pivotune.train.objectives.rejection_sft import RejectionSft
from pivotune.train.objectives.rlsd import Rlsd
from pivotune.train.objectives.sdar import Sdar
from pivotune.train.objectives.sft import Sft
from pivotune.train.objectives.skill_grpo import SkillGrpo
from pivotune.train.objectives.skill_sd import SkillSd
from pivotune.train.objectives.sod import Sod
from pivotune.train.objectives.tcod import Tcod

OBJECTIVES: dict[str, Method] = {
    "agent_opsd": AgentOpsd,
    "episode_grpo": EpisodeGrpo,
    "gigpo": Gigpo,
    "likelihood": Likelihood,
    "local_grpo": LocalGrpo,
    "mixed": Mixed,
    "opd": Opd,
    "opsd": Opsd,
    "pivot_opd": PivotOpd,
    "rejection_sft": RejectionSft,
    "rlsd": Rlsd,
    "sdar": Sdar,
    "sft": Sft,
    "skill_grpo": SkillGrpo,
    "skill_sd": SkillSd,
    "sod": Sod,
    "tcod": Tcod,
}


def load_objective(name: str) -> Method:
    """A method of the table, or "module:name" for any class of the same shape."""
    module, found, attribute = name.partition(":")
    if not found:
        if name not in OBJECTIVES:
            raise RecipeError(
                "there is no such objective",
                got=name,
                expected=f'{", ".join(OBJECTIVES)}, or your own as "module:name"',
            )
        return OBJECTIVES[name]
    try:
        method: Method = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise RecipeError(
            f"the objective cannot be imported: {error}",
            got=name,
            fix="check the name, and that the module can be imported from here",
        ) from error
    if not hasattr(method, "Config"):
        raise RecipeError(
            "the objective has no settings class",
            got=name,
            expected="a class attribute `Config`, a msgspec.Struct",
        )
    return method
