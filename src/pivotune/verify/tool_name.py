"""The right tools, whatever their arguments: the paper's verifier for code repair."""

from collections import Counter

from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, Turn, Verdict
from pivotune.verify.actions import accept, names_of, reject, reject_other_kind, say_repairs


class ToolNameVerifier:
    """Accepts the same tools, each as often, in any order. Where the expert spoke, any message."""

    name = "tool_name"
    version = "1"
    needs_environment = False

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if other := reject_other_kind(turn, completion):
            return other
        expected, actual = turn.expert.tool_calls, completion.message.tool_calls
        if Counter(c.name for c in expected) != Counter(c.name for c in actual):
            return reject(f"expected calls of {names_of(expected)}, got {names_of(actual)}")
        return accept(say_repairs(completion))
