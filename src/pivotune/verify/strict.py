"""The expert action, character for character: the baseline that functional verifiers improve on."""

from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, Turn, Verdict
from pivotune.verify.actions import accept, reject, reject_broken


class StrictVerifier:
    """Content, call names and argument texts must be the expert's; thinking is not compared."""

    name = "strict"
    version = "1"
    needs_environment = False

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if broken := reject_broken(completion):
            return broken
        expected, actual = turn.expert, completion.message
        calls = [(call.name, call.arguments_text) for call in expected.tool_calls]
        if calls != [(call.name, call.arguments_text) for call in actual.tool_calls]:
            return reject("the calls are not the expert's text")
        if expected.content != actual.content:
            return reject("the content is not the expert's text")
        return accept()
