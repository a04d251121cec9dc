"""What a verifier's verdicts are worth on somebody's own traces.

Every expert action is scored as it is, in other spellings that mean the same, and with one change
of meaning; what the verifier ought to say is known of each. Reported are false accepts and false
rejects by kind, with examples; how often exact comparison would have missed what the verifier
accepts; how often two verdicts on one pair agree; and expert actions that fail their own verifier.
"""

from collections.abc import Callable, Iterable

import msgspec

from pivotune.core.protocols import Environment, Verifier
from pivotune.core.types import Message, Turn, Verdict
from pivotune.verify.actions import as_completion
from pivotune.verify.compose import verify_all
from pivotune.verify.perturb import CHANGING, PRESERVING
from pivotune.verify.strict import StrictVerifier

MAX_EXAMPLES = 3
EnvironmentAt = Callable[[Turn], Environment | None]


class Mistake(msgspec.Struct, frozen=True):
    """A pair on which the verifier is wrong, or gave no verdict."""

    turn_id: str
    expert: str
    action: str
    reward: float | None
    reason: str


class KindReport(msgspec.Struct):
    """Verdicts on one kind of pair; `wrong` are false rejects or false accepts by `preserving`."""

    preserving: bool
    pairs: int = 0
    wrong: int = 0
    invalid: int = 0
    examples: list[Mistake] = msgspec.field(default_factory=list)

    @property
    def error_rate(self) -> float:
        """Wrong verdicts over valid ones; 0 where there are none."""
        valid = self.pairs - self.invalid
        return self.wrong / valid if valid else 0.0


class SelftestReport(msgspec.Struct):
    """`agreement` is the chance that two verdicts on one pair agree, over all repeated pairs.

    `strict_misses` counts pairs that the verifier accepts, rightly, and exact comparison does
    not, out of `rightly_accepted`.
    """

    verifier: str
    version: str
    turns: int = 0
    expert: KindReport = msgspec.field(default_factory=lambda: KindReport(preserving=True))
    kinds: dict[str, KindReport] = msgspec.field(default_factory=dict)
    rightly_accepted: int = 0
    strict_misses: int = 0
    agreements: int = 0
    comparisons: int = 0
    verifier_calls: int = 0

    @property
    def agreement(self) -> float:
        return self.agreements / self.comparisons if self.comparisons else 1.0

    @property
    def strict_miss_rate(self) -> float:
        return self.strict_misses / self.rightly_accepted if self.rightly_accepted else 0.0

    @property
    def false_reject_rate(self) -> float:
        """Over the meaning-preserving pairs that were judged."""
        return _rate([kind for kind in self.kinds.values() if kind.preserving])

    @property
    def false_accept_rate(self) -> float:
        """Over the meaning-changing pairs that were judged."""
        return _rate([kind for kind in self.kinds.values() if not kind.preserving])

    @property
    def invalid(self) -> int:
        """Pairs without a verdict, those of the experts included."""
        return self.expert.invalid + sum(kind.invalid for kind in self.kinds.values())

    @property
    def pairs(self) -> int:
        """All pairs that were scored, the experts' own actions included."""
        return self.expert.pairs + sum(kind.pairs for kind in self.kinds.values())

    def lines(self) -> list[str]:
        """The report in plain words, for a terminal."""
        agreement = f"two verdicts agree {self.agreement:.1%}" if self.comparisons else "asked once"
        lines = [
            f"{self.verifier} {self.version} on {self.turns} turns: "
            f"false rejects {self.false_reject_rate:.1%}, false accepts "
            f"{self.false_accept_rate:.1%}, {agreement}, "
            f"no verdict on {self.invalid} of {self.pairs} pairs",
            f"expert actions that fail their own verifier: {self.expert.wrong} "
            f"(and {self.expert.invalid} without a verdict)",
            f"exact comparison misses {self.strict_miss_rate:.1%} of what is rightly accepted",
        ]
        for name, kind in self.kinds.items():
            what = "false rejects" if kind.preserving else "false accepts"
            lines.append(f"{name}: {kind.wrong} {what} of {kind.pairs}, {kind.invalid} invalid")
            lines += [f"  {m.expert}  |  {m.action}  ->  {m.reason}" for m in kind.examples]
        return lines


def _rate(kinds: list[KindReport]) -> float:
    valid = sum(kind.pairs - kind.invalid for kind in kinds)
    return sum(kind.wrong for kind in kinds) / valid if valid else 0.0


def selftest(
    turns: Iterable[Turn],
    verifier: Verifier,
    *,
    repeats: int = 2,
    success_at: float = 0.5,
    environment_at: EnvironmentAt | None = None,
) -> SelftestReport:
    """Score every pair `repeats` times; the first verdict counts, the others show agreement.

    An action is accepted when its reward reaches `success_at`. A verifier that needs an
    environment is given the one that `environment_at` finds for the turn.
    """
    report = SelftestReport(verifier.name, verifier.version)
    for turn in turns:
        report.turns += 1
        environment = environment_at(turn) if environment_at else None
        pairs = [(report.expert, turn.expert)]
        for kinds, preserving in ((PRESERVING, True), (CHANGING, False)):
            for name, perturb in kinds.items():
                action = perturb(turn)
                if action is not None:
                    kind = report.kinds.setdefault(name, KindReport(preserving=preserving))
                    pairs.append((kind, action))
        asked = [as_completion(action) for _, action in pairs for _ in range(repeats)]
        verdicts = verify_all(verifier, turn, asked, environment)
        for number, (kind, action) in enumerate(pairs):
            said = verdicts[number * repeats : (number + 1) * repeats]
            _count_agreement(report, said, success_at)
            _count(report, kind, turn, action, said[0], success_at)
    return report


def _count_agreement(report: SelftestReport, verdicts: list[Verdict], success_at: float) -> None:
    report.verifier_calls += len(verdicts)
    answers = [None if v.reward is None else v.reward >= success_at for v in verdicts]
    for position, answer in enumerate(answers):
        for other in answers[position + 1 :]:
            report.comparisons += 1
            report.agreements += answer == other


def _count(
    report: SelftestReport,
    kind: KindReport,
    turn: Turn,
    action: Message,
    verdict: Verdict,
    success_at: float,
) -> None:
    kind.pairs += 1
    accepted = verdict.reward is not None and verdict.reward >= success_at
    if verdict.reward is None:
        kind.invalid += 1
    elif accepted != kind.preserving:
        kind.wrong += 1
    elif accepted:
        report.rightly_accepted += 1
        exact = StrictVerifier().verify(turn, as_completion(action), None)
        report.strict_misses += exact.reward == 0.0
    right = accepted == kind.preserving and verdict.reward is not None
    if not right and len(kind.examples) < MAX_EXAMPLES:
        said = (show_message(turn.expert), show_message(action))
        kind.examples.append(Mistake(turn.id, *said, verdict.reward, verdict.reason))


def show_message(message: Message) -> str:
    """An action in one line of at most 160 characters."""
    calls = [f"{call.name}({call.arguments_text})" for call in message.tool_calls]
    text = " ".join(calls) or repr(message.content)
    return text if len(text) <= 160 else f"{text[:157]}…"
