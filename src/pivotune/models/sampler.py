"""The sampler of the local policy: requests in, completions out, in one process.

Requests become rows; an engine fills the rows: the cached engine (token trees, prompts computed
once) where it supports the model, else the plain one. `engine_name` says which.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pivotune.core.errors import SamplerError
from pivotune.core.protocols import SamplerAbilities, SampleRequest, ScoreRequest, TokenScores
from pivotune.core.types import Completion, Message, ToolSpec
from pivotune.models.attention import supports_trees
from pivotune.models.cached_engine import CachedEngine
from pivotune.models.parse import cut_at_stop
from pivotune.models.plain_engine import PlainEngine
from pivotune.models.policy import Policy
from pivotune.models.rows import Engine, Ids, Row, row_uniforms

PLAIN_TOKEN_BUDGET = 1 << 17
COUNTED_PROMPTS = 256
"""Prompts that are kept between being counted and being sampled: more than episodes at once."""


class TorchSampler:
    """Samples from a policy as its weights are now. Sessions end when the weights change."""

    def __init__(
        self,
        policy: Policy,
        *,
        token_budget: int | None = None,
        engine: Literal["auto", "plain"] = "auto",
    ) -> None:
        self.policy = policy
        self._engine = _make_engine(policy.model, token_budget, engine)
        self._engine_hash = policy.hash
        self._stop_ids = frozenset(policy.chat.stop_ids)
        self._counted: dict[_PromptKey, tuple[Sequence[Any], tuple[int, ...]]] = {}

    @property
    def name(self) -> str:
        return "torch"

    @property
    def engine_name(self) -> str:
        """How rows are computed, in words."""
        return self._engine.name

    @property
    def policy_hash(self) -> str:
        return self.policy.hash

    @property
    def abilities(self) -> SamplerAbilities:
        return SamplerAbilities(scores=True, loads_weights=True, token_ids=True)

    @property
    def context_limit(self) -> int:
        return self.policy.context_limit

    def sample(self, requests: Sequence[SampleRequest]) -> list[tuple[Completion, ...]]:
        policy_hash = self._refresh()
        groups = [self._rows(index, request) for index, request in enumerate(requests)]
        with _evaluating(self.policy.model):
            self._engine.generate([row for rows in groups for row in rows], self._stop_ids)
        return [
            tuple(self._complete(request, row, policy_hash) for row in rows)
            for request, rows in zip(requests, groups, strict=True)
        ]

    def score(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        self._refresh()
        pairs = [self._pair(index, request) for index, request in enumerate(requests)]
        scores: dict[int, TokenScores] = {}
        with _evaluating(self.policy.model):
            for index, logits_TV in self._engine.action_logits(pairs):
                scores[index] = _scores(logits_TV, pairs[index][1], requests[index])
        return [scores[index] for index in range(len(requests))]

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """Of the rendered prompt, which is kept: an episode counts its prompt, then samples it."""
        key, ids = _prompt_key(messages, tools), tuple(self.policy.chat.render(messages, tools))
        while len(self._counted) >= COUNTED_PROMPTS:
            self._counted.pop(next(iter(self._counted)))
        # The messages are kept too: no other object can have their identity meanwhile.
        self._counted[key] = ((*messages, *tools), ids)
        return len(ids)

    def _prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """Rendered ids, those of the last count where the messages are the same objects."""
        counted = self._counted.pop(_prompt_key(messages, tools), None)
        return tuple(self.policy.chat.render(messages, tools)) if counted is None else counted[1]

    def end_session(self, session: str) -> None:
        self._engine.end_session(session)

    def _refresh(self) -> str:
        """The policy's hash; what was cached under other weights is dropped."""
        policy_hash = self.policy.hash
        if policy_hash != self._engine_hash:
            self._engine.forget()
            self._engine_hash = policy_hash
        return policy_hash

    def _rows(self, index: int, request: SampleRequest) -> list[Row]:
        prompt = self._prompt(request.messages, request.tools)
        room = self.context_limit - len(prompt)
        if room < 1:
            raise SamplerError(
                "the prompt leaves no room for an action",
                where=request.name or f"request {index}",
                got=f"{len(prompt)} tokens",
                expected=f"fewer than the context limit of {self.context_limit}",
                fix="leave the turn out, or declare a window of the history",
            )
        limit = min(request.max_tokens, room)
        if limit < 1 or request.temperature < 0:
            raise SamplerError(
                "a request that cannot be sampled",
                where=request.name or f"request {index}",
                got=f"max_tokens {request.max_tokens}, temperature {request.temperature}",
                expected="max_tokens of at least 1, temperature of at least 0",
            )
        stop = (*self.policy.chat.stop, *request.stop)
        return [
            Row(
                prompt,
                limit,
                request.temperature,
                row_uniforms(request.seed, row, limit),
                request.session,
                _watch_text(self.policy.chat.decode, stop) if stop else None,
                request.name,
            )
            for row in range(request.n)
        ]

    def _complete(self, request: SampleRequest, row: Row, policy_hash: str) -> Completion:
        assert row.finish is not None
        text = cut_at_stop(self.policy.chat.decode(row.tokens), request.stop)
        parsed = self.policy.chat.parse(
            text, request.tools, finish=row.finish, expects_call=request.expects_call
        )
        return Completion(
            prompt_ids=row.prompt,
            token_ids=tuple(row.tokens),
            logprobs=tuple(row.logprobs),
            message=parsed.message,
            outcome=parsed.outcome,
            finish=row.finish,
            temperature=request.temperature,
            policy_hash=policy_hash,
            text=text,
            problem=parsed.problem,
        )

    def _pair(self, index: int, request: ScoreRequest) -> tuple[Ids, Ids]:
        chat, token_ids = self.policy.chat, request.token_ids
        if request.action is None:
            prompt = tuple(chat.render(request.messages, request.tools))
        else:
            rendered = chat.render_action(request.messages, request.tools, request.action)
            prompt, token_ids = (tuple(ids) for ids in rendered)
        if not token_ids or len(prompt) + len(token_ids) > self.context_limit:
            raise SamplerError(
                "a request that cannot be scored",
                where=f"request {index}",
                got=f"{len(prompt)} prompt tokens, {len(token_ids)} action tokens",
                expected=f"an action, and at most {self.context_limit} tokens",
            )
        return prompt, token_ids


_PromptKey = tuple[tuple[int, ...], tuple[int, ...]]


def _prompt_key(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> _PromptKey:
    """Messages and tools never change, so the same objects render to the same prompt."""
    return tuple(map(id, messages)), tuple(map(id, tools))


def _make_engine(model: Any, token_budget: int | None, engine: Literal["auto", "plain"]) -> Engine:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    reason = supports_trees(base)
    if engine == "plain" or reason is not None:
        return PlainEngine(base, token_budget or PLAIN_TOKEN_BUDGET, reason)
    return CachedEngine(base, token_budget)


def _watch_text(
    decode: Callable[[Sequence[int]], str], stop: Sequence[str]
) -> Callable[[Sequence[int]], bool]:
    """Whether one of the texts has just been completed. Only the end is decoded: a token is at
    least a byte, and UTF-8 has at most 4 bytes a character."""
    window = 4 * max(map(len, stop)) + 4

    def ended(tokens: Sequence[int]) -> bool:
        end = decode(tokens[-window:])
        return any(each in end for each in stop)

    return ended


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, whatever a trainer has set."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()


def _scores(logits_TV: Tensor, token_ids: Ids, request: ScoreRequest) -> TokenScores:
    """Log-probabilities of the action's tokens; temperature 0 counts as 1."""
    logprobs_TV = (logits_TV / (request.temperature or 1.0)).log_softmax(-1)
    ids_T = torch.tensor(token_ids, device=logprobs_TV.device)
    picked = logprobs_TV.gather(1, ids_T[:, None]).squeeze(1)
    if not request.top_k:
        return TokenScores(tuple(picked.tolist()))
    best, best_ids = logprobs_TV.topk(min(request.top_k, logprobs_TV.shape[1]), dim=-1)
    return TokenScores(
        tuple(picked.tolist()),
        tuple(tuple(ids) for ids in best_ids.tolist()),
        tuple(tuple(values) for values in best.tolist()),
    )
