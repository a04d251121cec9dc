"""The seams: what a sampler, an environment and a verifier are to the rest of the project."""

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

import msgspec

from pivotune.core.types import (
    Completion,
    JsonObject,
    Message,
    Task,
    ToolSpec,
    Turn,
    Verdict,
)


class SampleRequest(msgspec.Struct, frozen=True):
    """`n` completions of one prompt.

    Row i draws from a random stream that depends on (`seed`, i) only, whatever else is in the
    batch. Temperature 0 is greedy. `session` names an episode whose earlier prefix may be
    cached: the sampler reuses it where the new prompt extends it. `expects_call` tells the
    parser whether an action without a tool call counts as `no_call` (None: either will do).
    An action also ends with the first of the texts in `stop`, which its ids hold and its text
    does not. `name` (a turn, an episode) stands in errors.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    n: int
    temperature: float
    seed: int
    max_tokens: int
    session: str = ""
    expects_call: bool | None = None
    stop: tuple[str, ...] = ()
    name: str = ""


class ScoreRequest(msgspec.Struct, frozen=True):
    """Log-probabilities of given action tokens after a prompt, at a temperature.

    `top_k` > 0 asks for the k most likely tokens at each position besides. An `action` that
    nobody has sampled stands in place of the ids: it is written as the policy's format spells
    it, with the token that ends it.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    token_ids: tuple[int, ...] = ()
    temperature: float = 1.0
    top_k: int = 0
    action: Message | None = None


class TokenScores(msgspec.Struct, frozen=True):
    """`logprobs[i]` of action token i; `top_ids[i]`, `top_logprobs[i]` the k best there."""

    logprobs: tuple[float, ...]
    top_ids: tuple[tuple[int, ...], ...] = ()
    top_logprobs: tuple[tuple[float, ...], ...] = ()


class SamplerAbilities(msgspec.Struct, frozen=True):
    """What a sampler can do beyond sampling; a plain chat endpoint can do neither."""

    scores: bool
    loads_weights: bool
    token_ids: bool


class Sampler(Protocol):
    """Anything that answers prompts: the local policy, a server, a script."""

    @property
    def name(self) -> str: ...

    @property
    def policy_hash(self) -> str:
        """Identifies the weights that answer now."""
        ...

    @property
    def abilities(self) -> SamplerAbilities: ...

    @property
    def context_limit(self) -> int:
        """The largest prompt plus completion, in tokens."""
        ...

    def sample(self, requests: Sequence[SampleRequest]) -> list[tuple[Completion, ...]]:
        """Completions per request, in the order of the requests.

        Raises `SamplerError` or `TemplateError` for a request that cannot be served.
        """
        ...

    def score(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]: ...

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """Tokens of the rendered prompt, generation prompt included."""
        ...

    def end_session(self, session: str) -> None:
        """Drop what is cached for an episode; unknown names are ignored."""
        ...


class StepResult(msgspec.Struct, frozen=True):
    """The environment's answer to an action: messages to append, and whether it is over."""

    replies: tuple[Message, ...]
    done: bool


class OracleView(msgspec.Struct, frozen=True):
    """What the whole state tells: a policy never sees this.

    `remaining` is the optimal number of steps, None where the task cannot be solved any more.
    """

    remaining: int | None
    action: Message | None
    admissible: tuple[str, ...]


class Environment(Protocol):
    """A task being played. Starts unset; `reset` or `restore` first."""

    @property
    def tools(self) -> tuple[ToolSpec, ...]: ...

    def reset(self, task: Task) -> tuple[Message, ...]:
        """Start a task; the opening messages (system and user)."""
        ...

    def step(self, action: Message) -> StepResult: ...

    def clone(self) -> Self: ...

    def reward(self) -> float:
        """The outcome so far in [0, 1]."""
        ...

    def restore(self, turn: Turn) -> None:
        """Go to the state of a recorded turn by replaying it; raises `ReplayMismatch`."""
        ...

    def oracle(self) -> OracleView | None:
        """None where the domain has no oracle."""
        ...


@runtime_checkable
class Observable(Environment, Protocol):
    """An environment that can show its state, so that the effects of actions can be compared."""

    def snapshot(self) -> JsonObject:
        """All that an action can change (files, rows, places of things), compared by value."""
        ...


@runtime_checkable
class Advising(Environment, Protocol):
    """An environment that knows a good player of its tasks."""

    def advice(self) -> Message | None:
        """What a careful player would do that knows what this episode has shown and no more.

        None where it would give up.
        """
        ...


@runtime_checkable
class Choosing(Protocol):
    """What an environment also has that is answered by the likeliest of given actions."""

    def choices(self) -> tuple[Message, ...]:
        """The actions to choose from; the same ones until `choose`."""
        ...

    def choose(self, logprobs: Sequence[float]) -> None:
        """End the task, given the policy's log-probability of each choice."""
        ...


class Verifier(Protocol):
    """Decides whether an action is acceptable at a turn's state.

    `environment`, where given, stands at that state; a verifier clones it and never steps the
    original. What it cannot judge is an invalid verdict, never a zero.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def needs_environment(self) -> bool: ...

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict: ...
