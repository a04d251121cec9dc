"""Conversations of the lab as token trees: one trunk, hinted turns as branches.

    trunk   …<|tool|>You arrive…<|assistant|>go…<|end|><|tool|>…
    branch                     └ <|user|>A reasonable action…<|assistant|>take…<|end|>

Only the lab's own append-only template is rendered here: what the assistant says lies between
its role token and the token that ends it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pivotune.core.types import Message, ToolSpec
from pivotune.domains.skills.hints import hint_message
from pivotune.lab.tokenizer import ASSISTANT, END
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import Floats, Ints, Segment, TokenTree, cross_entropy_signal


@dataclass(frozen=True, slots=True)
class Hint:
    """An action suggested before the message at `position`, and taken."""

    position: int
    action: Message


def conversation_tree(
    chat: ChatFormat,
    name: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    hints: Sequence[Hint] = (),
    context_weight: float = 0.0,
    action_weights: Sequence[float] = (),
) -> TokenTree:
    """A whole conversation, trained on every assistant message.

    `action_weights` are those of the assistant's messages, in order (none: 1 each);
    `context_weight` is the weight of everything else in the trunk. Hinted branches train only
    the action that follows the hint.
    """
    ids = np.array(chat.encode(chat.render_text(messages, tools, for_action=False)), np.int64)
    said = said_by_assistant(chat, ids)
    weights = np.where(said, 1.0, context_weight).astype(np.float32)
    if action_weights:
        header = chat.tokenizer.convert_tokens_to_ids(ASSISTANT)
        action = np.cumsum(ids == header) - 1
        weights[said] = np.array(action_weights, np.float32)[action[said]]
    weights[0] = 0.0
    trunk = Segment(ids, cross_entropy_signal(weights))
    branches = (_hinted_branch(chat, messages, tools, hint) for hint in hints)
    return TokenTree(name, (trunk, *branches))


def said_by_assistant(chat: ChatFormat, ids: Ints) -> Floats:
    """(T,) whether a token was written by the assistant, the token that ends it included."""
    header, end = chat.tokenizer.convert_tokens_to_ids([ASSISTANT, END])
    begun = np.cumsum(ids == header) - (ids == header)
    ended = np.cumsum(ids == end) - (ids == end)
    inside: Floats = (begun > ended) & (ids != header)
    return inside


def _hinted_branch(
    chat: ChatFormat, messages: Sequence[Message], tools: Sequence[ToolSpec], hint: Hint
) -> Segment:
    state = messages[: hint.position]
    plain = chat.render_text(state, tools, for_action=False)
    hinted = (*state, hint_message(hint.action), hint.action)
    text = chat.render_text(hinted, tools, for_action=False)
    assert text.startswith(plain), "the lab's template is append-only"
    ids = np.array(chat.encode(text[len(plain) :]), np.int64)
    weights = said_by_assistant(chat, ids).astype(np.float32)
    return Segment(ids, cross_entropy_signal(weights), parent=0, attach=len(chat.encode(plain)))
