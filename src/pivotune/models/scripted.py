"""A sampler that plays back given answers: for tests and dry runs. Loads no torch.

Its tokens are the words of a text, with a stop token after the last one.
"""

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pivotune.core.errors import SamplerError
from pivotune.core.protocols import (
    SamplerAbilities,
    SampleRequest,
    ScoreRequest,
    TokenScores,
)
from pivotune.core.types import Completion, Message, ToolSpec, content_hash
from pivotune.models.parse import cut_at_stop, format_action, parse_action

Script = Callable[[Sequence[Message], Sequence[ToolSpec], int], str | Message]
STOP_ID = 0


def hash_state(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """The key under which `ScriptedSampler.from_answers` looks an answer up."""
    return content_hash(tuple(messages), tuple(tools))


class ScriptedSampler:
    """Answers row `row` of a request with `script(messages, tools, row)`, a text or a message.

    Texts go through the parser like a policy's own. Every token has log-probability 0.
    """

    def __init__(
        self, script: Script, *, context_limit: int = 1 << 20, policy_hash: str = "scripted"
    ) -> None:
        self._script = script
        self._context_limit = context_limit
        self._policy_hash = policy_hash

    @classmethod
    def from_answers(cls, answers: Mapping[str, Sequence[str | Message]]) -> "ScriptedSampler":
        """Answers by `hash_state`; row i gets answer i, going round when there are fewer."""

        def play(messages: Sequence[Message], tools: Sequence[ToolSpec], row: int) -> str | Message:
            key = hash_state(messages, tools)
            if not (given := answers.get(key)):
                raise SamplerError(
                    "the script has no answer for this state",
                    got=messages[-1].content if messages else "no messages",
                    expected=f"an answer under {key}",
                )
            return given[row % len(given)]

        return cls(play)

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def policy_hash(self) -> str:
        return self._policy_hash

    @property
    def abilities(self) -> SamplerAbilities:
        return SamplerAbilities(scores=False, loads_weights=False, token_ids=True)

    @property
    def context_limit(self) -> int:
        return self._context_limit

    def sample(self, requests: Sequence[SampleRequest]) -> list[tuple[Completion, ...]]:
        return [self._answer(request) for request in requests]

    def score(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        raise SamplerError("a scripted sampler cannot score", fix="use the torch sampler")

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        return len(self._render(messages, tools))

    def end_session(self, session: str) -> None:
        """Nothing is cached."""

    def _answer(self, request: SampleRequest) -> tuple[Completion, ...]:
        prompt_ids = self._render(request.messages, request.tools)
        if len(prompt_ids) + 1 > self.context_limit:
            raise SamplerError(
                "the prompt leaves no room for an action",
                got=f"{len(prompt_ids)} tokens",
                expected=f"fewer than {self.context_limit}",
            )
        room = min(request.max_tokens, self.context_limit - len(prompt_ids))
        return tuple(self._complete(request, row, prompt_ids, room) for row in range(request.n))

    def _complete(
        self, request: SampleRequest, row: int, prompt_ids: tuple[int, ...], room: int
    ) -> Completion:
        answer = self._script(request.messages, request.tools, row)
        text = format_action(answer) if isinstance(answer, Message) else answer
        text = cut_at_stop(text, request.stop)
        ids = (*self._encode(text), STOP_ID)
        finish: Literal["stop", "length"] = "stop" if len(ids) <= room else "length"
        if finish == "length":
            text = " ".join(text.split()[:room])
        parsed = parse_action(text, finish=finish, expects_call=request.expects_call)
        return Completion(
            prompt_ids=prompt_ids,
            token_ids=ids[:room],
            logprobs=(0.0,) * len(ids[:room]),
            message=parsed.message,
            outcome=parsed.outcome,
            finish=finish,
            temperature=request.temperature,
            policy_hash=self.policy_hash,
            text=text,
            problem=parsed.problem,
        )

    def _render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        described = (f"tool {tool.name} {tool.description}" for tool in tools)
        spoken = (f"{message.role} {format_action(message)}" for message in messages)
        turns = [self._encode(text) for text in itertools.chain(described, spoken)]
        return tuple(itertools.chain.from_iterable(turns))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(zlib.crc32(word.encode()) + 1 for word in text.split())
