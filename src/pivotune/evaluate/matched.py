"""Post-trained models at equal first-try success.

A model that was trained further has less left to gain by further tries, whatever the method. So
two methods are compared where their first tries are equally good: the one that ends better is
taken at that checkpoint of its own training whose pass@1 comes nearest to the other's.

    finals, curves --pair_places--> which checkpoints are wanted
    pairs, their tallies --compare_matched--> differences in pass@1, pass@K, A(K), S(K)

Checkpoints may be chosen by few rollouts and compared by many. The difference in pass@1 that is
left is stated beside the others.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import msgspec

from pivotune.core.estimate import Estimate
from pivotune.core.scores import Matched
from pivotune.evaluate.metrics import Tallies
from pivotune.evaluate.tax import compare_tax


class Place(msgspec.Struct, frozen=True):
    """A method's checkpoint after `step` steps; None is the policy that the method ends with."""

    method: str
    step: int | None = None

    @property
    def name(self) -> str:
        return self.method if self.step is None else f"{self.method}@{self.step}"


Curves = Mapping[str, Mapping[int, Tallies]]
"""Tallies of checkpoints by method and step."""


def pair_places(finals: Mapping[str, Tallies], curves: Curves) -> tuple[tuple[Place, Place], ...]:
    """For every pair of methods, in their order, the two places to compare.

    A method without checkpoints is only taken at its end.
    """
    ends = {name: first_try(tallies) for name, tallies in finals.items()}
    early = {
        name: {step: first_try(tallies) for step, tallies in curve.items()}
        for name, curve in curves.items()
    }

    def nearest(method: str, wanted: float) -> Place:
        places = {Place(method): ends[method]}
        places |= {Place(method, step): rate for step, rate in early.get(method, {}).items()}
        return min(places, key=lambda place: abs(places[place] - wanted))

    return tuple(
        (Place(left), nearest(right, ends[left]))
        if ends[left] <= ends[right]
        else (nearest(left, ends[right]), Place(right))
        for left, right in combinations(finals, 2)
    )


def first_try(tallies: Tallies) -> float:
    """C(1): the mean over tasks of c/n."""
    rates = [each.successes / each.n for each in tallies.values() if each.n]
    return sum(rates) / len(rates) if rates else 0.0


def compare_matched(
    pairs: Sequence[tuple[Place, Place]], tallies: Callable[[Place], Tallies], k: int, seed: int = 0
) -> tuple[Matched, ...]:
    """Each pair over the tasks that both have, by paired bootstrap; raises as `compare_tax`."""
    return tuple(_compare(*pair, tallies, k, seed) for pair in pairs)


def _compare(
    left: Place, right: Place, tallies: Callable[[Place], Tallies], k: int, seed: int
) -> Matched:
    (found,) = compare_tax(tallies(left), {right.method: tallies(right)}, k, seed)
    ours, theirs = found.base.curve.values, found.post.curve.values
    return Matched(
        left=left.method,
        right=right.method,
        steps=(left.step, right.step),
        k=k,
        tasks=found.tasks,
        first=(ours[0], theirs[0]),
        last=(ours[-1], theirs[-1]),
        first_difference=_negative(found.gain[0]),
        last_difference=_negative(found.gain[-1]),
        area_difference=found.tax_area,
        share_difference=found.tax_share,
    )


def _negative(gain: Estimate) -> Estimate:
    """Left minus right from right minus left."""

    def minus(value: float | None) -> float | None:
        return None if value is None else 0.0 - value

    return msgspec.structs.replace(
        gain, value=minus(gain.value), low=minus(gain.high), high=minus(gain.low)
    )
