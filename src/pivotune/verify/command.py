"""Shell commands equal after parsing, wherever the action keeps them.

A command is an argument of a call (`command`, `cmd`, `keystrokes`, `script`), the `commands` of a
terminal harness's JSON reply, the last fenced block of a message, or else the whole message.
"""

import re
from typing import Any

import msgspec

from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, Turn, Verdict
from pivotune.verify.actions import (
    accept,
    reject,
    reject_other_kind,
    say_repairs,
    versioned,
)
from pivotune.verify.compare import FieldRule
from pivotune.verify.shell import same_command
from pivotune.verify.strings import normalise
from pivotune.verify.tool_call import ToolCallConfig, ToolCallVerifier

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_COMPLETE = ("task_complete", "is_task_complete")


class CommandConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`arguments` names the arguments of calls that hold a command."""

    arguments: tuple[str, ...] = ("command", "cmd", "keystrokes", "script")


class CommandVerifier:
    """Calls by `tool_call` with command arguments parsed; messages by their commands alone."""

    name = "command"
    needs_environment = False

    def __init__(self, config: CommandConfig | None = None) -> None:
        self.config = config or CommandConfig()
        rule = FieldRule(compare="command")
        fields = {f"*.{name}": rule for name in self.config.arguments}
        self._calls = ToolCallVerifier(ToolCallConfig(fields=fields))
        self.version = versioned(1, self.config)

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if other := reject_other_kind(turn, completion):
            return other
        if turn.expert.tool_calls:
            return self._calls.verify(turn, completion, environment)
        expected = read_commands(turn.expert.content)
        actual = read_commands(completion.message.content)
        if expected.complete != actual.complete:
            return reject(f"task complete: expected {expected.complete}, got {actual.complete}")
        if len(expected.commands) != len(actual.commands):
            return reject(f"expected {len(expected.commands)} commands, got {len(actual.commands)}")
        for wanted, got in zip(expected.commands, actual.commands, strict=True):
            prose = "\n" in wanted and expected.bare
            same = normalise(wanted) == normalise(got) if prose else same_command(wanted, got)
            if not same or wanted.endswith("\n") != got.endswith("\n"):
                return reject(f"expected the command {wanted[:80]!r}, got {got[:80]!r}")
        return accept(say_repairs(completion))


class Commands(msgspec.Struct, frozen=True):
    """Commands of a message; keystrokes keep their last newline, which is the Enter key.

    `bare` says that the whole message was taken. Of several lines it may be prose, in which a
    heading would pass for a comment: such messages are compared as text.
    """

    commands: tuple[str, ...]
    complete: bool = False
    bare: bool = False


def read_commands(content: str) -> Commands:
    """Commands of a harness reply, of the last fenced block, or the message itself."""
    blocks = _FENCE.findall(content)
    inner = blocks[-1] if blocks else content
    reply = _read_reply(inner)
    if reply is not None:
        return reply
    return Commands((inner.strip(),), bare=not blocks)


def _read_reply(text: str) -> Commands | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value: Any = parse_json(text)
    except JsonProblemError:
        return None
    commands = value.get("commands") if isinstance(value, dict) else None
    if not isinstance(commands, list):
        return None
    keystrokes = [item.get("keystrokes") if isinstance(item, dict) else item for item in commands]
    texts = tuple(item for item in keystrokes if isinstance(item, str))
    if len(texts) != len(keystrokes):
        return None
    return Commands(texts, any(bool(value.get(key)) for key in _COMPLETE))
