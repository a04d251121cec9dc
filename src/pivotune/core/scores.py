"""What an evaluation states beyond one figure: curves, classes, and a model against its base.

`pivotune.evaluate` computes these (formulas there), `pivotune.report` shows them. C(k) is the
mean over tasks of pass@k, A(K) the headroom area, S(K) its share of what was left to gain.
"""

import msgspec

from pivotune.core.estimate import Estimate, OverSeeds

CLASS_NAMES = ("always", "given compute", "never")
"""Tasks that every rollout solves, that some solve, that none solves."""


class Curve(msgspec.Struct, frozen=True):
    """Means over tasks for k = 1..K with pointwise 95 % intervals.

    `left_out` names the tasks that have fewer than K rollouts.
    """

    convention: str
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    tasks: int
    left_out: tuple[str, ...]


class Classes(msgspec.Struct, frozen=True):
    """How many tasks are in each class; `n` lists the numbers of rollouts that decided it."""

    always: int
    given_compute: int
    never: int
    n: tuple[int, ...]

    @property
    def tasks(self) -> int:
        return self.always + self.given_compute + self.never


class Evaluated(msgspec.Struct, frozen=True):
    """One model by itself: its first try, the best of more, and all of them. `source`: how."""

    success: Estimate
    coverage: Curve
    reliability: Curve
    classes: Classes
    source: str


class CoverageScores(msgspec.Struct, frozen=True):
    """One model's coverage curve, and its A(K) and S(K)."""

    curve: Curve
    area: Estimate
    share: Estimate
    classes: Classes


class Crossover(msgspec.Struct, frozen=True):
    """k*, where the base's coverage reaches the post-trained one's; None is "not within K"."""

    value: int | None
    low: int | None
    high: int | None


class TaxComparison(msgspec.Struct, frozen=True):
    """A post-trained model against its base, at a budget of K rollouts a task.

    `gain[k-1]` is post's coverage minus base's at k rollouts, so its sign says which model a
    router should pick at each budget. `moves[i][j]` counts tasks that went from class i to
    class j of `CLASS_NAMES`.
    """

    name: str
    k: int
    tasks: int
    left_out: tuple[str, ...]
    base: CoverageScores
    post: CoverageScores
    tax_area: Estimate
    tax_share: Estimate
    crossover: Crossover
    gain: tuple[Estimate, ...]
    moves: tuple[tuple[int, int, int], ...]
    convention: str


class Reliability(msgspec.Struct, frozen=True):
    """How alike one model's rollouts of a task end.

    `curve` is the mean over tasks of pass^k, `consistency` the chance that two different
    rollouts of a task agree.
    """

    name: str
    curve: Curve
    consistency: Estimate


class Forecast(msgspec.Struct, frozen=True):
    """Whether Tax_S(`cheap_k`) on half the tasks ranks models as Tax_S(`full_k`) on the rest."""

    cheap_k: int
    full_k: int
    rank_correlation: Estimate


class Matched(msgspec.Struct, frozen=True):
    """Two post-trained models where their first tries are about equally good.

    The one that ends better stands at an earlier checkpoint: `steps` are left's and right's,
    None for the policy that is compared everywhere else. `first` and `last` are the shares of
    tasks that one try and K tries solve. Differences are left minus right, paired by task.
    """

    left: str
    right: str
    steps: tuple[int | None, int | None]
    k: int
    tasks: int
    first: tuple[float, float]
    last: tuple[float, float]
    first_difference: Estimate
    last_difference: Estimate
    area_difference: Estimate
    share_difference: Estimate


class TaxFindings(msgspec.Struct, frozen=True):
    """Post-trained models against one base at K = `k`; `reliability` has the base first.

    `matched` is empty where no checkpoints of the training were counted.
    """

    k: int
    comparisons: tuple[TaxComparison, ...]
    reliability: tuple[Reliability, ...]
    forecast: Forecast
    matched: tuple[Matched, ...] = ()


class PolicyOverSeeds(msgspec.Struct, frozen=True):
    """One policy over seeds; the taxes of the base are undefined.

    `clear` counts the seeds in which the interval of Tax_S lies above zero (headroom lost), and
    those in which it lies below.
    """

    name: str
    first: OverSeeds
    last: OverSeeds
    area: OverSeeds
    share: OverSeeds
    tax_area: OverSeeds
    tax_share: OverSeeds
    clear: tuple[int, int] = (0, 0)


class MatchedOverSeeds(msgspec.Struct, frozen=True):
    """Differences of two models at equal first-try success over seeds, left minus right.

    `clear` counts the seeds in which the interval of the difference in S(K) lies above zero
    (left has more left to gain), and those in which it lies below.
    """

    left: str
    right: str
    first: OverSeeds
    last: OverSeeds
    area: OverSeeds
    share: OverSeeds
    clear: tuple[int, int]


class TaxOverSeeds(msgspec.Struct, frozen=True):
    """Several runs of one recipe as one table; the base is the first policy.

    `left_out` names models that some run lacks. `forecast` takes all runs' models together.
    """

    k: int
    seeds: int
    policies: tuple[PolicyOverSeeds, ...]
    matched: tuple[MatchedOverSeeds, ...]
    forecast: Forecast
    left_out: tuple[str, ...]
