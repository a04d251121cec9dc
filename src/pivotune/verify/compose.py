"""Verifiers of verifiers, cheap ones first: evaluation stops as soon as the answer is known.

An invalid member makes the whole invalid unless the others decide without it.
"""

import math
from collections.abc import Sequence

import msgspec

from pivotune.core.crowd import map_at_once
from pivotune.core.errors import VerifierError
from pivotune.core.protocols import Environment, Verifier
from pivotune.core.types import Completion, Cost, Turn, Verdict


class Safe:
    """A verifier that answers invalid where the one inside raises or leaves [0, 1]."""

    def __init__(self, inner: Verifier) -> None:
        self.inner = inner
        self.name, self.version = inner.name, inner.version
        self.needs_environment = inner.needs_environment
        self.at_once = count_at_once(inner)

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        try:
            verdict = self.inner.verify(turn, completion, environment)
        except Exception as error:
            # Whatever a verifier raises leaves the group; it is never scored as zero.
            return Verdict(None, f"{self.name} failed: {type(error).__name__}: {error}")
        reward = verdict.reward
        if reward is not None and not (math.isfinite(reward) and 0.0 <= reward <= 1.0):
            return Verdict(None, f"{self.name} gave the reward {reward}, outside [0, 1]")
        return verdict


def safely(verifier: Verifier) -> Verifier:
    """Wrap a verifier so that a failure is an invalid verdict, never a zero."""
    return verifier if isinstance(verifier, Safe) else Safe(verifier)


def count_at_once(verifier: Verifier) -> int:
    """How many verdicts may be asked for at once: 1, unless the verifier has an `at_once`.

    That is for verifiers that wait for others, and bear being called in several threads.
    """
    return int(getattr(verifier, "at_once", 1))


def verify_all(
    verifier: Verifier,
    turn: Turn,
    completions: Sequence[Completion],
    environment: Environment | None,
) -> list[Verdict]:
    """Verdicts in the order of the completions; one that cannot be given is invalid, not zero."""
    judge = safely(verifier)
    return map_at_once(
        lambda each: judge.verify(turn, each, environment), completions, count_at_once(judge)
    )


class _Composition:
    """Members in order, and what they have in common."""

    name = "composition"

    def __init__(self, members: Sequence[Verifier]) -> None:
        if not members:
            raise VerifierError(f"{self.name} of no verifier", fix="name at least one under `of`")
        self.members = tuple(safely(member) for member in members)
        self.version = "1(" + ",".join(f"{m.name}-{m.version}" for m in self.members) + ")"
        self.needs_environment = any(member.needs_environment for member in self.members)
        # Environments are cloned by their verifiers, which need not be safe in several threads.
        alone = self.needs_environment
        self.at_once = 1 if alone else max(count_at_once(member) for member in self.members)


class FirstOf(_Composition):
    """The first member that gives a valid verdict decides."""

    name = "first_of"

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        reasons: list[str] = []
        cost = Cost()
        for member in self.members:
            verdict = member.verify(turn, completion, environment)
            cost += verdict.cost
            if not verdict.invalid:
                return msgspec.structs.replace(verdict, cost=cost)
            reasons.append(f"{member.name}: {verdict.reason}")
        return Verdict(None, "; ".join(reasons), cost=cost)


class AllOf(_Composition):
    """The lowest reward; a zero ends it."""

    name = "all_of"

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        return _extreme(self.members, turn, completion, environment, stop_at=0.0)


class AnyOf(_Composition):
    """The highest reward; a one ends it."""

    name = "any_of"

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        return _extreme(self.members, turn, completion, environment, stop_at=1.0)


def _extreme(
    members: Sequence[Verifier],
    turn: Turn,
    completion: Completion,
    environment: Environment | None,
    *,
    stop_at: float,
) -> Verdict:
    parts: dict[str, float] = {}
    chosen: tuple[float, str] | None = None
    failed = ""
    cost = Cost()
    for member in members:
        verdict = member.verify(turn, completion, environment)
        cost += verdict.cost
        if verdict.reward is None:
            failed = failed or f"{member.name}: {verdict.reason}"
            continue
        parts |= verdict.parts | {member.name: verdict.reward}
        reason = f"{member.name}: {verdict.reason}"
        if verdict.reward == stop_at:
            return Verdict(verdict.reward, reason, parts, cost)
        if chosen is None or abs(verdict.reward - stop_at) < abs(chosen[0] - stop_at):
            chosen = (verdict.reward, reason)
    if failed or chosen is None:
        return Verdict(None, failed, cost=cost)
    return Verdict(*chosen, parts, cost)


class Weighted(_Composition):
    """The weighted mean of the rewards; every member must be valid."""

    name = "weighted"

    def __init__(self, members: Sequence[Verifier], weights: Sequence[float]) -> None:
        super().__init__(members)
        if len(weights) != len(self.members) or min(weights) < 0 or not 0 < sum(weights) < math.inf:
            raise VerifierError(
                "weights that do not fit the verifiers",
                got=list(weights),
                expected=f"{len(self.members)} numbers of at least 0, not all 0",
            )
        self.weights = tuple(weights)
        self.version += f"*{','.join(format(weight, 'g') for weight in weights)}"

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        total = 0.0
        parts: dict[str, float] = {}
        reasons: list[str] = []
        cost = Cost()
        for member, weight in zip(self.members, self.weights, strict=True):
            verdict = member.verify(turn, completion, environment)
            cost += verdict.cost
            if verdict.reward is None:
                return Verdict(None, f"{member.name}: {verdict.reason}", cost=cost)
            total += weight * verdict.reward
            parts |= verdict.parts | {member.name: verdict.reward}
            reasons.append(f"{member.name}: {verdict.reason}")
        return Verdict(min(1.0, total / sum(self.weights)), "; ".join(reasons), parts, cost)
