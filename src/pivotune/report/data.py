"""What the page shows, as plain values: the pipeline fills it, `page.build_page` draws it.

Anything that a run does not have is empty, and its section is left out. Shares and successes
are fractions in [0, 1]; an undefined figure is an `Estimate` without a value, or NaN.
"""

import msgspec

from pivotune.core.estimate import Estimate
from pivotune.core.ledger import Alternative, Prices
from pivotune.core.scores import TaxFindings
from pivotune.core.types import Cost, Message, ParseOutcome, Verdict


class PolicyScore(msgspec.Struct, frozen=True):
    """One policy on one suite; `change` is from the base, paired by task (None for the base).

    `groups`: success by skill or task type, where the suite has any.
    """

    policy: str
    success: Estimate
    change: Estimate | None = None
    groups: dict[str, float] = {}


class SuiteScores(msgspec.Struct, frozen=True):
    """Every policy on one suite, the base first."""

    name: str
    scores: tuple[PolicyScore, ...]


class TurnPoint(msgspec.Struct, frozen=True, gc=False):
    """One profiled turn as a point of the figures; `live` means that its rewards differ.

    `depth` counts the assistant's earlier actions, `kind` is the kind of the expert's action.
    """

    turn_id: str
    depth: int
    kind: str
    mean: float
    spread: float
    live: bool
    selected: bool
    domain: str = ""


class Fresh(msgspec.Struct, frozen=True):
    """Turns sampled again, after they were chosen: their mean reward and share of live groups."""

    turns: int
    mean: float
    live_share: Estimate


class PivotSet(msgspec.Struct, frozen=True):
    """What one rule chose under one verifier.

    `counts` says what became of every profile. `profiled_mean` and `profiled_live_share` are
    those of the profile that chose the pivots; `pivots` and `random` come from fresh samples.
    """

    verifier: str
    rule: str
    samples: int
    profiled: int
    chosen: int
    wrong_expert: int
    counts: dict[str, int]
    profiled_mean: float
    profiled_live_share: float
    pivots: Fresh
    random: Fresh


class SampleView(msgspec.Struct, frozen=True):
    """One sampled action with its verdict."""

    action: str
    outcome: ParseOutcome
    verdict: Verdict


class TurnDetail(msgspec.Struct, frozen=True):
    """One turn in full: what the policy saw, what the expert did, what the policy did.

    `sampling` says how the samples were drawn.
    """

    turn_id: str
    task_id: str
    depth: int
    kind: str
    selected: bool
    state: tuple[Message, ...]
    expert_action: str
    expert: Verdict
    samples: tuple[SampleView, ...]
    sampling: str = ""


class Series(msgspec.Struct, frozen=True):
    """One measure over training steps."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


class MethodCurves(msgspec.Struct, frozen=True):
    """What one method logged while it trained, by the measure's name in the log.

    `verifier` judges single actions where the method samples any.
    """

    method: str
    objective: str
    series: dict[str, Series]
    best_step: int | None = None
    verifier: str = ""


class StageCost(msgspec.Struct, frozen=True):
    """What a stage (or one policy's part of it) used."""

    stage: str
    cost: Cost


class Recovered(msgspec.Struct, frozen=True):
    """How one policy goes on from states just after a mistake.

    `within[t]` is the share of replays that were won in at most t + 1 turns; `turns` and
    `optimum` are means over the won ones.
    """

    name: str
    rate: Estimate
    turns: float | None
    optimum: float | None
    within: tuple[float, ...] = ()


class Recovery(msgspec.Struct, frozen=True):
    """Replays of the base's pivotal mistakes by every policy, the base first.

    `failed_with_mistake` is the share of the base's failed episodes that hold such a mistake;
    `diagnosis` is the base from before its mistakes, or with help.
    """

    states: int
    replays: int
    failed_with_mistake: float | None
    policies: tuple[Recovered, ...]
    diagnosis: tuple[Recovered, ...] = ()


class Fact(msgspec.Struct, frozen=True):
    """One line of "how it was measured"."""

    name: str
    value: str


class ReportData(msgspec.Struct, frozen=True):
    """The whole page. `main` is the method of the headline, `traces` one line on the data.

    `recovery` replays the base's mistakes. `tax` compares post-trained models with the base at
    several rollouts a task; `alternatives` say what whole episodes would have cost instead of
    single turns. `turns` are all profiled turns under `pivot_sets[0]`, `details` a bounded
    number of them. `recipe` is the run's recipe as it was used.
    """

    title: str
    traces: str = ""
    main: str = ""
    in_domain: SuiteScores | None = None
    out_of_domain: SuiteScores | None = None
    pivot_sets: tuple[PivotSet, ...] = ()
    turns: tuple[TurnPoint, ...] = ()
    outcomes: dict[str, int] = {}
    details: tuple[TurnDetail, ...] = ()
    curves: tuple[MethodCurves, ...] = ()
    costs: tuple[StageCost, ...] = ()
    facts: tuple[Fact, ...] = ()
    recipe: str = ""
    tax: TaxFindings | None = None
    recovery: Recovery | None = None
    alternatives: tuple[Alternative, ...] = ()
    prices: Prices = Prices()
