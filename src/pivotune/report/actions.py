"""Actions in words: the text of one for a reader, and its kind for counting."""

import json

from pivotune.core.types import Message, ToolCall

COMMAND_KEYS = ("command", "cmd")
MESSAGE = "plain message"


def action_text(message: Message) -> str:
    """What an action says and calls, a call as `name(key="value")`."""
    calls = [f"{call.name}({_arguments(call)})" for call in message.tool_calls]
    return "\n".join(filter(None, (message.content, *calls)))


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return call.arguments_text
    return ", ".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in call.arguments.items()
    )


def action_kind(message: Message) -> str:
    """The first word of a command where the call carries one, else the tool's name."""
    if not message.tool_calls:
        return MESSAGE
    call = message.tool_calls[0]
    for key in COMMAND_KEYS:
        value = (call.arguments or {}).get(key)
        if isinstance(value, str) and value.strip():
            return value.split(maxsplit=1)[0]
    return call.name
