"""The same calls under the tools' declared JSON schemas.

Names equal exactly; several calls in any order, matched one to one by a maximum matching;
arguments compared by `compare`. Where the expert spoke, the message is compared by `text`.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from pivotune.core.protocols import Environment, Verifier
from pivotune.core.types import Completion, JsonObject, ToolCall, ToolSpec, Turn, Verdict
from pivotune.verify.actions import (
    accept,
    invalid,
    names_of,
    reject,
    reject_other_kind,
    say_repairs,
    versioned,
)
from pivotune.verify.compare import Comparator, FieldRule, compile_tool
from pivotune.verify.matching import count_matched
from pivotune.verify.text import TextVerifier

Difference = Callable[[ToolCall, ToolCall], str]

_MAX_COMPILED = 4096
_encode = msgspec.json.Encoder().encode


class ToolCallConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`fields` maps patterns such as `search.query` or `*.command` to how they are compared."""

    order: Literal["any", "sequence"] = "any"
    surplus: Literal["reject", "ignore"] = "reject"
    fields: dict[str, FieldRule] = msgspec.field(default_factory=dict)


class ToolCallVerifier:
    """Reward 1 for the expert's calls in any equivalent spelling, else 0.

    Parts of a rejection: `names`, whether all names match; `arguments`, the share of expected
    calls that were found. `message` judges turns where the expert spoke.
    """

    name = "tool_call"
    needs_environment = False

    def __init__(
        self, config: ToolCallConfig | None = None, message: Verifier | None = None
    ) -> None:
        self.config = config or ToolCallConfig()
        self.message = message or TextVerifier()
        self.version = f"{versioned(1, self.config)}+{self.message.name}-{self.message.version}"
        self._compiled: dict[tuple[str, bytes], Comparator] = {}

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if other := reject_other_kind(turn, completion):
            return other
        expected, actual = turn.expert.tool_calls, completion.message.tool_calls
        if not expected:
            return self.message.verify(turn, completion, environment)
        for call in expected:
            if call.arguments is None:
                return invalid(f"the expert's arguments of {call.name} are no JSON object")
        return self._compare(turn.tools, expected, actual, completion)

    def _compare(
        self,
        tools: Sequence[ToolSpec],
        expected: Sequence[ToolCall],
        actual: Sequence[ToolCall],
        completion: Completion,
    ) -> Verdict:
        for call in actual:
            if call.arguments is None:
                why = f"the arguments of {call.name} are no JSON object"
                return reject(f"malformed: {why}", malformed=1.0)
        surplus = len(actual) - len(expected)
        if surplus < 0 or (surplus > 0 and self.config.surplus == "reject"):
            return reject(
                f"expected {len(expected)} calls ({names_of(expected)}), "
                f"got {len(actual)} ({names_of(actual)})",
                names=0.0,
            )
        comparators = self._comparators(tools, expected)

        def difference(call: ToolCall, other: ToolCall) -> str:
            if call.name != other.name:
                return f"expected a call of {call.name}, got {other.name}"
            comparator = comparators[call.name]
            if comparator is None:
                return f"{call.name} is no tool of this turn"
            return comparator.difference(call.arguments, other.arguments)

        if surplus == 0:
            problems = list(map(difference, expected, actual))
            if not any(problems):
                return accept(say_repairs(completion), names=1.0, arguments=1.0)
            if len(expected) == 1 or self.config.order == "sequence":
                return _rejected(expected, actual, problems)
        found, problem = self._count_found(expected, actual, difference)
        if found == len(expected):
            return accept(say_repairs(completion), names=1.0, arguments=1.0)
        return _rejected(expected, actual, [problem] + [""] * (len(expected) - 1), found)

    def _count_found(
        self, expected: Sequence[ToolCall], actual: Sequence[ToolCall], difference: Difference
    ) -> tuple[int, str]:
        """How many expected calls are there, and one that is not, in words."""
        if self.config.order == "sequence":
            found = 0
            for call in actual:
                if found < len(expected) and not difference(expected[found], call):
                    found += 1
            left = list(range(found, len(expected)))
        else:
            found, left = count_matched(expected, actual, lambda e, a: not difference(e, a))
        return found, f"no call matches {_brief(expected[left[0]])}" if left else ""

    def _comparators(
        self, tools: Sequence[ToolSpec], calls: Sequence[ToolCall]
    ) -> dict[str, Comparator | None]:
        """Compiled schemas by name; None for a name that is not among the declared tools."""
        return {call.name: self._comparator(tools, call.name) for call in calls}

    def _comparator(self, tools: Sequence[ToolSpec], name: str) -> Comparator | None:
        spec = next((tool for tool in tools if tool.name == name), None)
        if spec is None:
            if tools:
                return None
            spec = ToolSpec(name)
        key = (name, _encode(spec.parameters))
        comparator = self._compiled.get(key)
        if comparator is None:
            if len(self._compiled) >= _MAX_COMPILED:
                self._compiled.clear()
            comparator = self._compiled[key] = compile_tool(spec, self.config.fields)
        return comparator


def _rejected(
    expected: Sequence[ToolCall],
    actual: Sequence[ToolCall],
    problems: Sequence[str],
    found: int | None = None,
) -> Verdict:
    names = sorted(c.name for c in expected) == sorted(c.name for c in actual)
    matched = sum(not problem for problem in problems) if found is None else found
    return reject(
        next(problem for problem in problems if problem),
        names=float(names),
        arguments=matched / len(expected),
    )


def _brief(call: ToolCall) -> str:
    arguments: JsonObject = call.arguments or {}
    text = f"{call.name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    return text if len(text) <= 120 else f"{text[:117]}…"
