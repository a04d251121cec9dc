"""OpenAI Responses API: `input` and `output` lists of items, as logged requests and answers.

    message                an assistant's text, or another role's message
    reasoning              thinking of the turn that it stands in
    function_call          a call of that turn
    function_call_output   a tool's result

Assistant items that stand together, with nothing between them, are one turn.
"""

from collections.abc import Mapping
from typing import Any

from pivotune.core.types import JsonObject, Message, Task, ToolCall, ToolSpec, Trajectory
from pivotune.ingest.messages import (
    Draft,
    RefusalError,
    check_messages,
    index_tools,
    is_marked_failed,
    known_role,
    note_missing_tools,
    read_call,
    read_name,
    read_result,
    read_reward,
    read_text,
    read_tools,
    split_thinking,
)
from pivotune.ingest.openai_chat import ROLES

_USED = {"input", "output", "tools", "instructions", "id", "reward", "request", "response", "items"}


def recognise(row: Any) -> str:
    """Why a row is of this dialect; empty when it is not."""
    if not isinstance(row, dict):
        return ""
    if row.get("object") == "response" and isinstance(row.get("output"), list):
        return "`object` is `response`, with `output` items"
    if isinstance(row.get("output"), list) and "input" in row:
        return "has `input` and a list of `output` items"
    request, response = row.get("request"), row.get("response")
    if isinstance(request, dict) and "input" in request and isinstance(response, dict):
        return "has a `request` with `input` and a `response`"
    items = row.get("items")
    if isinstance(items, list) and items and isinstance(items[0], dict) and "type" in items[0]:
        return "`items` is a list of objects with a `type`"
    return ""


def convert(row: JsonObject, draft: Draft) -> list[Trajectory]:
    """Raises `RefusalError`."""
    request = row["request"] if isinstance(row.get("request"), dict) else row
    response = row["response"] if isinstance(row.get("response"), dict) else row
    tools = read_tools(request.get("tools") or response.get("tools"), draft)
    items = row["items"] if isinstance(row.get("items"), list) else read_input(request)
    messages = read_items([*items, *(response.get("output") or [])], tools, draft)
    check_messages(messages, draft)
    name = read_name(row, "id") or read_name(response, "id") or draft.name
    reward = read_reward(row, draft, "reward")
    task = Task(name, draft.domain)
    trajectory = Trajectory(name, draft.domain, task, tools, messages, reward)
    draft.ignore(row, _USED)
    note_missing_tools(trajectory, draft)
    return [trajectory]


def read_input(request: Mapping[str, Any]) -> list[Any]:
    """The items that were sent: instructions first, and a plain text as a user's message."""
    given = request.get("input")
    items: list[Any] = (
        [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    )
    instructions = request.get("instructions")
    if isinstance(instructions, str) and instructions:
        return [{"role": "system", "content": instructions}, *items]
    return list(items)


def read_items(items: list[Any], tools: tuple[ToolSpec, ...], draft: Draft) -> tuple[Message, ...]:
    """Items to messages. Raises `RefusalError`."""
    specs = index_tools(tools)
    messages: list[Message] = []
    group = _Group()
    for position, item in enumerate(items, 1):
        where = f"item {position}, turn {group.turn}"
        if not isinstance(item, dict):
            raise RefusalError("item that is not an object", f"{where}: {type(item).__name__}")
        if not group.take(item, specs, draft, where):
            messages += group.close(draft)
            messages.append(_other_message(item, where))
    messages += group.close(draft)
    return tuple(messages)


class _Group:
    """Assistant items that stand together, until something else comes."""

    def __init__(self) -> None:
        self.turn = 0
        self._clear()

    def _clear(self) -> None:
        self._texts: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._any = False

    def take(
        self, item: Mapping[str, Any], specs: Mapping[str, ToolSpec], draft: Draft, where: str
    ) -> bool:
        """False when the item is not the assistant's."""
        kind = item.get("type") or "message"
        if kind == "reasoning":
            for key in ("content", "summary"):
                if item.get(key):
                    self._thinking.append(read_text(item[key], where)[0])
                    break
        elif kind in ("function_call", "custom_tool_call"):
            arguments = item.get("arguments")
            if arguments is None and isinstance(item.get("input"), str):
                arguments = {"input": item["input"]}
            call_id = item.get("call_id") or item.get("id")
            self._calls.append(read_call(item.get("name"), arguments, call_id, specs, draft, where))
        elif kind == "message" and item.get("role") == "assistant":
            text, thinking = read_text(item.get("content"), where)
            if not thinking:
                text, thinking = split_thinking(text)
            self._texts.append(text)
            self._thinking.append(thinking)
        else:
            return False
        self._any = True
        return True

    def close(self, draft: Draft) -> list[Message]:
        """The turn that ends here, if there is one with something in it."""
        content = "\n".join(text for text in self._texts if text)
        thinking = "\n".join(text for text in self._thinking if text)
        calls, some = tuple(self._calls), self._any
        if "" in self._texts and (len(self._texts) > 1 or not calls):
            draft.note("empty assistant item left out", f"turn {self.turn}")
        self._clear()
        if not some or not (content or thinking or calls):
            return []
        self.turn += 1
        return [Message("assistant", content, calls, thinking)]


def _other_message(item: Mapping[str, Any], where: str) -> Message:
    kind = item.get("type") or "message"
    if kind in ("function_call_output", "custom_tool_call_output"):
        result = read_result(item.get("output"), where)
        answered = read_name(item, "call_id")
        return Message("tool", result, tool_call_id=answered, failed=is_marked_failed(item))
    if kind != "message":
        raise RefusalError("item of unknown type", f"{where}: {kind!r}")
    role = known_role(item.get("role"), ROLES, where)
    return Message(role, read_text(item.get("content"), where)[0])
