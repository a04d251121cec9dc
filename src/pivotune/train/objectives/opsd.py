"""On-policy self-distillation: the teacher is the student itself, told an action at every turn.

    A(l) = log p(y_l | c, h(a*), y_<l) - log p(y_l | c, y_<l)    weights frozen at the step's start

a* is the oracle's or a model's action at each state of the student's own episodes.
"""

from typing import Literal

from pivotune.train.objectives.opd import Opd, OpdConfig


class OpsdConfig(OpdConfig, frozen=True, forbid_unknown_fields=True):
    """`teacher` names the actions."""

    source: Literal["hint", "model"] = "hint"


class Opsd(Opd):
    """OPD with the privileged self-teacher."""

    name = "opsd"
    Config = OpsdConfig
