"""Messages to token ids and back, through the model's own chat template.

A `ChatFormat` renders what a server would render for the same messages, and knows where an
action begins and ends in it. Templates differ in what they accept (arguments as an object or as
text, tools, tool results, system messages, reasoning); a probe at load tries them out, and
`findings` says what was found. Nothing is merged or dropped without a finding; what a template
refuses is a `TemplateError` that names the message.

    render(messages)        <system…><user…><assistant header>
    render_action(…, a)     the same ids, then the ids of `a` up to its stop token
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from jinja2.exceptions import TemplateError as JinjaError

from pivotune.core.errors import TemplateError
from pivotune.core.types import Message, ToolCall, ToolSpec
from pivotune.models.parse import (
    THINK_CLOSE,
    THINK_OPEN,
    ParsedAction,
    arguments_json,
    format_calls,
    parse_action,
)

Thinking = Literal["keep", "drop"]
Dicts = list[dict[str, Any]]

_EMPTY_THINK = re.compile(r"\s*(<think>)?\s*</think>\s*")
_CACHED_PIECES = 1 << 14


@dataclass(frozen=True, slots=True)
class TemplateAbilities:
    """What a chat template can render by itself. `arguments` None: no tool calls at all.

    `several_calls` in one message, `repeats` of a role in a row, and thinking of messages that
    are not the last (`old_thinking`) may be refused or left out by a template: we do not mend it.
    """

    arguments: Literal["object", "text"] | None
    tools: bool
    tool_results: bool
    system: bool
    reasoning: bool
    several_calls: bool = True
    repeats: bool = True
    old_thinking: bool = True

    def describe(self) -> tuple[str, ...]:
        """What the template renders, then a line for everything that it leaves to us or refuses."""
        found = {
            "tools": self.tools,
            f"tool calls (arguments as {self.arguments})": self.arguments,
            "tool results": self.tool_results,
            "system messages": self.system,
            "thinking": self.reasoning,
        }
        renders = ", ".join(name for name, there in found.items() if there)
        lines = {
            "tools: described in the system message, the template does not render them": self.tools,
            "tool calls: written as text, the template does not render them": self.arguments,
            "tool results: shown as user messages, the template refuses them": self.tool_results,
            "system message: put before the first user message, the template refuses it": (
                self.system
            ),
            "thinking: written into the content, the template does not render it": self.reasoning,
            "several calls in one message: the template refuses or drops them, such turns are "
            "left out": self.several_calls,
            "two messages of one role in a row: the template refuses them, such turns are left "
            "out": self.repeats,
            "earlier thinking: the template strips it, so a later turn's prompt does not continue "
            "the earlier one's": self.old_thinking,
        }
        missing = tuple(line for line, by_template in lines.items() if not by_template)
        return (f"the chat template renders {renders or 'plain messages only'}", *missing)


class ChatFormat:
    """The chat format of one tokenizer. `thinking` "drop" renders without any reasoning."""

    def __init__(
        self, tokenizer: Any, *, more_stop_ids: Sequence[int] = (), thinking: Thinking = "keep"
    ) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise TemplateError(
                "the tokenizer has no chat template",
                where=str(getattr(tokenizer, "name_or_path", "") or "tokenizer"),
                fix="put a chat_template.jinja into the model folder, use an instruct model, or "
                'ask for the base-model harness (prompts = "transcript")',
            )
        self.tokenizer = tokenizer
        self.thinking = thinking
        self.abilities = probe_template(tokenizer)
        self._encode_piece = lru_cache(_CACHED_PIECES)(self._encode_whole)
        self._cut = self._find_cut()
        turn_end, end_found = self._find_turn_end()
        self.turn_end_id = turn_end
        self.stop_ids = tuple(dict.fromkeys((turn_end, *more_stop_ids)))
        found = () if end_found else ("end of turn: the template writes none, the EOS token is",)
        self.findings = self.abilities.describe() + found

    @property
    def name(self) -> str:
        """What makes the prompts, in words."""
        return "the model's own chat template"

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end an action besides the stop tokens."""
        return ()

    def parse(
        self,
        text: str,
        tools: Sequence[ToolSpec],
        *,
        finish: Literal["stop", "length"],
        expects_call: bool | None,
    ) -> ParsedAction:
        """Read an action's text as this format spells it."""
        return parse_action(text, finish=finish, expects_call=expects_call)

    def render_text(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, for_action: bool = True
    ) -> str:
        """The template's text; `for_action` adds the header of the assistant's next message."""
        dicts, specs = self._to_dicts(messages, tools)
        try:
            return self._apply(dicts, specs, for_action)
        except (JinjaError, TypeError, ValueError, KeyError) as error:
            raise self._refusal(messages, tools, error) from error

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Ids of the prompt for the assistant's next message."""
        return self.encode(self.render_text(messages, tools))

    def render_action(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], action: Message
    ) -> tuple[list[int], list[int]]:
        """Ids of the prompt, and those of the action with the token that ends it.

        The prompt equals `render(messages, tools)`, but for an empty think block that the
        template puts before an action without thinking: it stands in the prompt.
        """
        prompt = self.render_text(messages, tools)
        full = self.render_text((*messages, action), tools, for_action=False)
        if not full.startswith(prompt):
            prompt, full = self._align(prompt, full, messages, tools, action)
        inserted = _EMPTY_THINK.match(full, len(prompt))
        if inserted and not action.thinking and not action.content.startswith(THINK_OPEN):
            prompt = full[: inserted.end()]
        prompt_ids, full_ids = self.encode(prompt), self.encode(full)
        if full_ids[: len(prompt_ids)] == prompt_ids:
            action_ids = full_ids[len(prompt_ids) :]
        else:
            action_ids = self.encode(full[len(prompt) :])
        return prompt_ids, self._end_turn(action_ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a rendered text: no BOS but what the template wrote. Cached by turn."""
        if self._cut is None:
            return list(self._encode_piece(text))
        ids: list[int] = []
        for piece in self._cut.split(text):
            ids.extend(self._encode_piece(piece))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of an action's ids, without the stop token at its end."""
        kept = list(ids)
        while kept and kept[-1] in self.stop_ids:
            kept.pop()
        text: str = self.tokenizer.decode(
            kept, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _apply(self, dicts: Dicts, specs: Dicts, for_action: bool) -> str:
        options = {"enable_thinking": False} if self.thinking == "drop" else {}
        text: str = self.tokenizer.apply_chat_template(
            dicts,
            tools=specs or None,
            tokenize=False,
            add_generation_prompt=for_action,
            **options,
        )
        return text

    def _to_dicts(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[Dicts, Dicts]:
        """What the template is given, with what it cannot render put into plain text."""
        specs = [_tool_dict(tool) for tool in tools]
        dicts = _message_dicts(messages, self.abilities, self.thinking)
        if specs and not self.abilities.tools:
            _add_to_system(dicts, _describe_tools(specs))
            specs = []
        if not self.abilities.system:
            _fold_system(dicts)
        return dicts, specs

    def _refusal(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], error: Exception
    ) -> TemplateError:
        """Names the last message without which the template would have rendered."""
        index = len(messages) - 1
        while index > 0:
            try:
                self._apply(*self._to_dicts(messages[:index], tools), for_action=False)
                break
            except (JinjaError, TypeError, ValueError, KeyError):
                index -= 1
        return TemplateError(
            f"the chat template refuses this conversation: {error}",
            where=f"message {index}",
            got=f"roles {', '.join(message.role for message in messages)}" if messages else "none",
            fix="traces.merge_roles=true where one role speaks twice, or another template",
        )

    def _align(
        self,
        prompt: str,
        full: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        action: Message,
    ) -> tuple[str, str]:
        """Prompt and full text where the prompt opens a think block that the full text lacks."""
        header = prompt.removesuffix("\n").removesuffix(THINK_OPEN)
        if len(header) < len(prompt) - 1 and full.startswith(header):
            thinking = f"{action.thinking}\n" if action.thinking else "\n"
            said = full[len(header) :].lstrip("\n")
            return prompt, f"{prompt}{thinking}{THINK_CLOSE}\n\n{said}"
        turn = sum(message.role == "assistant" for message in messages)
        raise TemplateError(
            "the prompt is not a prefix of the conversation that goes on with the action",
            where=f"assistant turn {turn} (message {len(messages)})",
            got=full[_common_length(prompt, full) :][:60],
            expected=prompt[_common_length(prompt, full) :][:60],
            fix="use a template that renders an action as it renders its prompt",
        )

    def _end_turn(self, ids: list[int]) -> list[int]:
        """Cut what follows the end-of-turn token; add the token where the template has none."""
        for position in range(len(ids) - 1, -1, -1):
            if ids[position] == self.turn_end_id:
                return ids[: position + 1]
        return [*ids, self.turn_end_id]

    def _find_turn_end(self) -> tuple[int, bool]:
        """The first special token after an assistant's content, else EOS."""
        word = "answer"
        text = self.render_text(
            (Message("user", "question"), Message("assistant", word)), (), for_action=False
        )
        special = set(self.tokenizer.all_special_ids)
        for token in self.encode(text[text.rfind(word) + len(word) :]):
            if token in special:
                return token, True
        eos = self.tokenizer.eos_token_id
        if eos is None:
            raise TemplateError(
                "nothing ends an assistant message: no special token follows it, no EOS",
                where=str(self.tokenizer.name_or_path or "tokenizer"),
                fix="set eos_token in the tokenizer's configuration",
            )
        return int(eos), False

    def _encode_whole(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _find_cut(self) -> "re.Pattern[str] | None":
        """Where a text may be cut before encoding: before special tokens, if that is exact."""
        added = self.tokenizer.added_tokens_decoder.values()
        marks = [re.escape(t.content) for t in added if t.special and not (t.lstrip or t.rstrip)]
        if not marks:
            return None
        cut = re.compile(f"(?={'|'.join(sorted(marks, key=len, reverse=True))})")
        sample = self.render_text(_SAMPLE, ())
        pieces = [self._encode_whole(piece) for piece in cut.split(sample)]
        exact = self._encode_whole(sample) == tuple(token for piece in pieces for token in piece)
        return cut if exact and len(pieces) > 1 else None


_CALL = ToolCall("probe_tool", {"probe_key": "probe_wert_ü"}, "")
_SAMPLE = (
    Message("user", " Where is\nthe mug? 머그 "),
    Message("assistant", " On the desk."),
    Message("user", "Thanks"),
)


def probe_template(tokenizer: Any) -> TemplateAbilities:
    """Try a template out on small conversations; see `TemplateAbilities`."""
    user, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    tool = _tool_dict(ToolSpec("probe_tool", "probe", {"type": "object", "properties": {}}))

    def shows(text: str, dicts: Dicts, tools: Dicts | None = None) -> bool:
        try:
            rendered: str = tokenizer.apply_chat_template(dicts, tools=tools, tokenize=False)
        except (JinjaError, TypeError, ValueError, KeyError):
            return False
        return text in rendered

    def call(arguments: Any, names: Sequence[str] = ("probe_tool",)) -> dict[str, Any]:
        calls = [
            {
                "type": "function",
                "id": f"call{index:05d}",
                "function": {"name": name, "arguments": arguments},
            }
            for index, name in enumerate(names)
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def renders(arguments: Any) -> bool:
        dicts = [user, call(arguments)]
        repr_or_twice = ("'probe_key'", '\\"probe_key', "None")
        return (
            shows("probe_key", dicts)
            and shows("probe_wert_ü", dicts)
            and not any(shows(wrong, dicts) for wrong in repr_or_twice)
        )

    as_text = json.dumps(_CALL.arguments, ensure_ascii=False)
    arguments: Literal["object", "text"] | None = None
    if renders(_CALL.arguments):
        arguments = "object"
    elif renders(as_text):
        arguments = "text"
    given = _CALL.arguments if arguments == "object" else as_text
    result = {"role": "tool", "content": "probe_result", "tool_call_id": "call00000"}
    asked = call(given) if arguments else answer
    two = [user, call(given, ("probe_one", "probe_two"))]
    thought = {**answer, "reasoning_content": "probe_thought"}
    reasoning = shows("probe_thought", [user, thought])
    return TemplateAbilities(
        arguments=arguments,
        tools=shows("probe_tool", [user], [tool]),
        tool_results=shows("probe_result", [user, asked, {**result, "name": "probe_tool"}]),
        system=shows("probe_system", [{"role": "system", "content": "probe_system"}, user]),
        reasoning=reasoning,
        several_calls=arguments is None or (shows("probe_one", two) and shows("probe_two", two)),
        repeats=shows("probe_again", [user, {"role": "user", "content": "probe_again"}]),
        old_thinking=not reasoning or shows("probe_thought", [user, thought, user, answer]),
    )


def _message_dicts(
    messages: Sequence[Message], abilities: TemplateAbilities, thinking: Thinking
) -> Dicts:
    """Messages as the template takes them. Calls without an id get one, results its match."""
    dicts: Dicts = []
    waiting: list[tuple[str, str]] = []
    numbered = 0
    for index, message in enumerate(messages):
        if message.role == "assistant":
            calls = [
                (call.id or f"call{numbered + i:05d}", call)
                for i, call in enumerate(message.tool_calls)
            ]
            numbered += len(calls)
            waiting = [(identifier, call.name) for identifier, call in calls]
            dicts.append(_assistant_dict(index, message, calls, abilities, thinking))
        elif message.role == "tool":
            answered = [pair for pair in waiting if pair[0] == message.tool_call_id]
            pair = (answered or waiting or [("", "")])[0]
            waiting = [other for other in waiting if other != pair]
            dicts.append(_result_dict(message, pair, abilities))
        else:
            dicts.append({"role": message.role, "content": message.content})
    return dicts


def _assistant_dict(
    index: int,
    message: Message,
    calls: Sequence[tuple[str, ToolCall]],
    abilities: TemplateAbilities,
    thinking: Thinking,
) -> dict[str, Any]:
    content = message.content
    if calls and abilities.arguments is None:
        content = "\n".join(filter(None, [content, format_calls(message.tool_calls)]))
    thought = message.thinking if thinking == "keep" else ""
    if thought and not abilities.reasoning:
        content = f"{THINK_OPEN}\n{thought}\n{THINK_CLOSE}\n\n{content}"
    result: dict[str, Any] = {"role": "assistant", "content": content}
    if thought and abilities.reasoning:
        result["reasoning_content"] = thought
    if calls and abilities.arguments is not None:
        as_object = abilities.arguments == "object"
        result["tool_calls"] = [
            {
                "type": "function",
                "id": identifier,
                "function": {"name": call.name, "arguments": _arguments(index, call, as_object)},
            }
            for identifier, call in calls
        ]
    return result


def _arguments(index: int, call: ToolCall, as_object: bool) -> Any:
    """Arguments as the template wants them; the text as it was spelled, escapes resolved."""
    if not as_object:
        spelled = call.arguments_text
        return spelled if spelled and "\\u" not in spelled else arguments_json(call)
    if call.arguments is None:
        raise TemplateError(
            "this template takes the arguments of a call as an object, and these are not JSON",
            where=f"message {index}, call of {call.name}",
            got=call.arguments_text,
            fix="leave the turn out, or keep such an action as plain content",
        )
    return call.arguments


def _result_dict(
    message: Message, call: tuple[str, str], abilities: TemplateAbilities
) -> dict[str, Any]:
    if not abilities.tool_results:
        shown = f"<tool_response>\n{message.content}\n</tool_response>"
        return {"role": "user", "content": shown}
    identifier, name = call
    result: dict[str, Any] = {"role": "tool", "content": message.content}
    if tool_call_id := message.tool_call_id or identifier:
        result["tool_call_id"] = tool_call_id
    if tool_name := message.name or name:
        result["name"] = tool_name
    return result


def _tool_dict(tool: ToolSpec) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _describe_tools(specs: Dicts) -> str:
    tools = "\n".join(json.dumps(spec["function"], ensure_ascii=False) for spec in specs)
    example = '<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call>'
    return (
        f"You can call these tools:\n{tools}\n\n"
        f"To call one, write its name and arguments as:\n{example}"
    )


def _add_to_system(dicts: Dicts, text: str) -> None:
    if dicts and dicts[0]["role"] == "system":
        dicts[0] = {**dicts[0], "content": f"{dicts[0]['content']}\n\n{text}".strip()}
    else:
        dicts.insert(0, {"role": "system", "content": text})


def _fold_system(dicts: Dicts) -> None:
    """Put a leading system message before the text of the user message that follows it."""
    if dicts and dicts[0]["role"] == "system":
        system = dicts.pop(0)["content"]
        if dicts and dicts[0]["role"] == "user":
            dicts[0] = {**dicts[0], "content": f"{system}\n\n{dicts[0]['content']}"}
        else:
            dicts.insert(0, {"role": "user", "content": system})


def _common_length(left: str, right: str) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
