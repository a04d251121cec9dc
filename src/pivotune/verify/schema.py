"""Output that fits a JSON schema, such as the replies of a terminal harness."""

from functools import cached_property
from typing import Any

import jsonschema
import msgspec
from jsonschema.protocols import Validator
from referencing import Registry

from pivotune.core.errors import VerifierError
from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, JsonObject, Turn, Verdict
from pivotune.verify.actions import accept, reject, reject_broken, say_repairs, versioned


class SchemaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`schema` is the JSON schema of the message; without one, that of each call's tool is used."""

    schema: JsonObject | None = None


class SchemaVerifier:
    """Accepts any output of the right form, whatever it says: use it with another family."""

    name = "schema"
    needs_environment = False

    def __init__(self, config: SchemaConfig | None = None) -> None:
        self.config = config or SchemaConfig()
        self.version = versioned(1, self.config)
        _ = self._validator

    @cached_property
    def _validator(self) -> Validator | None:
        return None if self.config.schema is None else _compile(self.config.schema)

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if broken := reject_broken(completion):
            return broken
        if self._validator is None:
            return self._verify_calls(turn, completion)
        try:
            document = parse_json(_unfence(completion.message.content))
        except JsonProblemError as error:
            return reject(f"malformed: {error}", malformed=1.0)
        problem = _first_problem(self._validator, document)
        return reject(problem) if problem else accept(say_repairs(completion))

    def _verify_calls(self, turn: Turn, completion: Completion) -> Verdict:
        specs = {tool.name: tool for tool in turn.tools}
        if not completion.message.tool_calls:
            return reject("no_call: nothing to hold against a schema", no_call=1.0)
        for call in completion.message.tool_calls:
            if call.name not in specs:
                return reject(f"{call.name} is no tool of this turn")
            if call.arguments is None:
                return reject(f"malformed: arguments of {call.name}", malformed=1.0)
            validator = _compile(specs[call.name].parameters)
            if problem := _first_problem(validator, call.arguments):
                return reject(f"{call.name}: {problem}")
        return accept(say_repairs(completion))


def _compile(schema: JsonObject) -> Validator:
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise VerifierError(f"not a JSON schema: {error.message}", got=schema) from error
    # With a registry of its own it looks nothing up in the network.
    return kind(schema, registry=Registry())


def _first_problem(validator: Validator, document: Any) -> str:
    for error in validator.iter_errors(document):
        place = "/".join(map(str, error.absolute_path)) or "the document"
        return f"{place}: {error.message[:200]}"
    return ""


def _unfence(text: str) -> str:
    """The inside of a single Markdown code block around the whole."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 : -3]
    return stripped
