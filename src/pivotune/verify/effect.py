"""Execution instead of text: both actions are run, each in a copy of the environment.

Two actions are the same when what they did is the same: the environment's state afterwards, what
it answered, whether that ended the task, and the outcome. How the actions were written does not
matter.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from pivotune.core.protocols import Environment, Observable
from pivotune.core.types import Completion, Cost, JsonObject, Message, Turn, Verdict
from pivotune.verify.actions import accept, invalid, reject, reject_broken, say_repairs, versioned
from pivotune.verify.strings import normalise

_COST = Cost(environment_steps=2)
_ABSENT = object()


class EffectConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`compare_output` off: only what was changed counts, not what was shown to the agent."""

    compare_output: bool = True


class EffectVerifier:
    """Accepts an action that does what the expert's does; needs an `Observable` environment.

    Whether a call or a message was expected is not asked: that shows in the effect.
    """

    name = "effect"
    needs_environment = True

    def __init__(self, config: EffectConfig | None = None) -> None:
        self.config = config or EffectConfig()
        self.version = versioned(1, self.config)

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if broken := reject_broken(completion):
            return broken
        if not isinstance(environment, Observable):
            return invalid("this environment cannot show its state: it has no `snapshot`")
        expected = _run(environment, turn.expert)
        actual = _run(environment, completion.message)
        problem = self._difference(expected, actual)
        verdict = reject(problem) if problem else accept(say_repairs(completion))
        return msgspec.structs.replace(verdict, cost=_COST)

    def _difference(self, expected: "Effect", actual: "Effect") -> str:
        for place, wanted, got in _differences(expected.state, actual.state):
            return f"{place}: expected {_brief(wanted)}, got {_brief(got)}"
        if (expected.done, expected.reward) != (actual.done, actual.reward):
            return (
                f"expected done {expected.done} with outcome {expected.reward:g}, "
                f"got done {actual.done} with outcome {actual.reward:g}"
            )
        if self.config.compare_output and expected.output != actual.output:
            return f"expected the answer {_brief(expected.output)}, got {_brief(actual.output)}"
        return ""


class Effect(msgspec.Struct, frozen=True):
    """What an action did."""

    state: JsonObject
    output: str
    done: bool
    reward: float


def _run(environment: Observable, action: Message) -> Effect:
    copy = environment.clone()
    result = copy.step(action)
    output = "\n".join(normalise(reply.content) for reply in result.replies)
    return Effect(copy.snapshot(), output, result.done, copy.reward())


def _differences(expected: Any, actual: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Places at which two snapshots differ, in the order of their keys."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in dict.fromkeys([*expected, *actual]):
            wanted, got = expected.get(key, _ABSENT), actual.get(key, _ABSENT)
            yield from _differences(wanted, got, f"{place}.{key}" if place else str(key))
    elif type(expected) is not type(actual) or expected != actual:
        yield place or "state", expected, actual


def _brief(value: Any) -> str:
    text = "nothing" if value is _ABSENT else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}…"
