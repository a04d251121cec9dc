"""Two hundred pairs of actions, labelled by hand, on which every family's errors are measured.

Forty pairs each of five domains: an airline's desk, a shell, code repair, search, household
games. `same` says whether a careful person would call the two interchangeable: the same effects,
the same information gained, the same thing said. The labels follow no family's rules, and `why`
gives the reason. Household pairs can be executed: their contexts hold the game and its history.
"""

import json
from collections.abc import Iterable
from importlib.resources import files

import msgspec

from pivotune.core.protocols import Verifier
from pivotune.core.types import JsonObject, Message, Task, ToolCall, ToolSpec, Turn
from pivotune.verify.actions import as_completion
from pivotune.verify.compose import safely
from pivotune.verify.selftest import EnvironmentAt, show_message

FAMILIES = ("strict", "tool_name", "tool_call", "schema", "text", "command")
"""The families that need neither an environment nor an endpoint."""


class _Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is said, or the calls: name and arguments."""

    say: str = ""
    call: tuple[tuple[str, JsonObject], ...] = ()

    def message(self) -> Message:
        calls = tuple(
            ToolCall(name, arguments, json.dumps(arguments, ensure_ascii=False))
            for name, arguments in self.call
        )
        return Message("assistant", self.say, calls)


class _Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent knows: tools and history; `task` where the game can be played."""

    domain: str
    tools: tuple[ToolSpec, ...]
    state: tuple[Message, ...]
    task: Task | None = None


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    context: str
    expert: _Action
    action: _Action
    same: bool
    why: str


class Pair(msgspec.Struct, frozen=True):
    """One labelled pair: the turn holds the expert's action."""

    turn: Turn
    domain: str
    action: Message
    same: bool
    why: str

    @property
    def executable(self) -> bool:
        """Whether there is a game that the actions can be carried out in."""
        return self.turn.task.payload != {}


class PairErrors(msgspec.Struct):
    """Verdicts on the pairs of one domain, or of all. Rates are over valid verdicts."""

    same: int = 0
    different: int = 0
    false_rejects: int = 0
    false_accepts: int = 0
    invalid: int = 0
    wrong: list[str] = msgspec.field(default_factory=list)

    @property
    def false_reject_rate(self) -> float:
        return self.false_rejects / self.same if self.same else 0.0

    @property
    def false_accept_rate(self) -> float:
        return self.false_accepts / self.different if self.different else 0.0


def read_pairs() -> list[Pair]:
    """All pairs, in the order of the file."""
    folder = files("pivotune") / "verify" / "assets"
    contexts = msgspec.json.decode(
        (folder / "contexts.json").read_bytes(), type=dict[str, _Context]
    )
    lines = (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [msgspec.json.decode(line, type=_Row) for line in lines]
    return [_as_pair(row, contexts[row.context]) for row in rows]


def _as_pair(row: _Row, context: _Context) -> Pair:
    played = sum(message.role == "assistant" for message in context.state)
    task = context.task or Task(row.id, context.domain)
    expert = row.expert.message()
    turn = Turn(row.id, row.context, task, played, context.state, context.tools, expert)
    return Pair(turn, context.domain, row.action.message(), row.same, row.why)


def score_pairs(
    pairs: Iterable[Pair],
    verifier: Verifier,
    *,
    success_at: float = 0.5,
    environment_at: EnvironmentAt | None = None,
) -> dict[str, PairErrors]:
    """Errors by domain, and under "all". Pairs without a verdict are counted as invalid."""
    judge = safely(verifier)
    found: dict[str, PairErrors] = {}
    total = PairErrors()
    for pair in pairs:
        environment = environment_at(pair.turn) if environment_at else None
        verdict = judge.verify(pair.turn, as_completion(pair.action), environment)
        for errors in (found.setdefault(pair.domain, PairErrors()), total):
            _count(errors, pair, verdict.reward, verdict.reason, success_at)
    return found | {"all": total}


def _count(
    errors: PairErrors, pair: Pair, reward: float | None, reason: str, success_at: float
) -> None:
    if reward is None:
        errors.invalid += 1
        return
    accepted = reward >= success_at
    if pair.same:
        errors.same += 1
        errors.false_rejects += not accepted
    else:
        errors.different += 1
        errors.false_accepts += accepted
    if accepted != pair.same:
        what = "accepted" if accepted else "rejected"
        expert, action = show_message(pair.turn.expert), show_message(pair.action)
        line = f"{pair.turn.id}: {expert}  |  {action}  {what} ({reason}); label: {pair.why}"
        errors.wrong.append(line)
