"""The nouns of the project: messages above, turns and verdicts in the middle, costs below.

All are frozen msgspec structs: they compare by value, and `core.store` writes and reads them
as JSON. Token ids appear only as opaque records inside `Completion`; nothing below `models`
interprets them.
"""

import enum
import hashlib
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
JsonObject = dict[str, Any]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a tool. `arguments` is None when `arguments_text` is not a JSON object."""

    name: str
    arguments: JsonObject | None
    arguments_text: str = ""
    id: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One chat message. Missing, null and empty content are all the empty string.

    `thinking` is reasoning text kept apart from the content; `tool_call_id`, `name` and `failed`
    (the trace marks the result as an error) belong to tool results.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    tool_call_id: str = ""
    name: str = ""
    failed: bool = False


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the policy may call; `parameters` is a JSON schema of an object."""

    name: str
    description: str = ""
    parameters: JsonObject = msgspec.field(default_factory=dict)


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an environment can be reset to. `payload` is the domain's own (a game, a seed)."""

    id: str
    domain: str
    split: str = ""
    payload: JsonObject = msgspec.field(default_factory=dict)


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a trajectory was read from; `row` counts from 1."""

    path: str
    row: int
    dialect: str


class Trajectory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recorded episode. `reward` is None when the outcome is not known."""

    id: str
    domain: str
    task: Task
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    reward: float | None = None
    source: Source | None = None
    meta: JsonObject = msgspec.field(default_factory=dict)


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One candidate: the history before an assistant message, and that message.

    `index` counts the assistant messages of the trajectory from 0; `state` is every message
    before it.
    """

    id: str
    trajectory_id: str
    task: Task
    index: int
    state: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    expert: Message
    meta: JsonObject = msgspec.field(default_factory=dict)


TOOL_ERROR = "tool_error"
"""Key of a turn's meta: a result of its calls is marked as an error."""


class ParseOutcome(enum.Enum):
    """What a completion turned out to be (see the verifier rules in the docs)."""

    OK = "ok"
    NO_CALL = "no_call"
    UNEXPECTED_CALL = "unexpected_call"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"
    EMPTY = "empty"

    @property
    def broken(self) -> bool:
        """Whether no action could be read at all: malformed, truncated or empty."""
        return self in (ParseOutcome.MALFORMED, ParseOutcome.TRUNCATED, ParseOutcome.EMPTY)


class Completion(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sampled action. The ids are the record; `message` is derived from them.

    `logprobs[i]` is the log-probability of `token_ids[i]` at the sampling `temperature`
    (at temperature 0 they are those of temperature 1). `finish` is "length" when the token
    limit cut the action. `problem` says in words why `outcome` is not OK. `prompt_tokens` and
    `sampled_tokens` are lengths as an endpoint counts them that gives no ids.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    message: Message
    outcome: ParseOutcome
    finish: Literal["stop", "length"]
    temperature: float
    policy_hash: str
    text: str = ""
    problem: str = ""
    prompt_tokens: int = 0
    sampled_tokens: int = 0

    @property
    def prompt_length(self) -> int:
        return len(self.prompt_ids) or self.prompt_tokens

    @property
    def length(self) -> int:
        return len(self.token_ids) or self.sampled_tokens


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a piece of work used.

    `prompt_tokens` counts each request's prompt once, however many samples share it and
    whatever a cache saved. `judge_tokens` are those that judges and scoring models say they used,
    prompt and answer together: they are not the policy's.
    """

    rollout_turns: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    environment_steps: int = 0
    verifier_calls: int = 0
    judge_calls: int = 0
    judge_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        names = self.__struct_fields__
        return Cost(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a verifier says of an action: a reward in [0, 1], or invalid with a reason.

    An invalid verdict has reward None and is never scored as zero. `cost` is what asking others
    took (a judge, an environment); the call itself is counted by whoever made it.
    """

    reward: float | None
    reason: str
    parts: dict[str, float] = msgspec.field(default_factory=dict)
    cost: Cost = Cost()

    @property
    def invalid(self) -> bool:
        return self.reward is None


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scored completion of a profile, kept whole so that it can be verified again."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    message: Message
    outcome: ParseOutcome
    finish: Literal["stop", "length"]
    verdict: Verdict
    text: str = ""
    problem: str = ""


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """K samples of one turn under one frozen policy and one verifier.

    `expert` is the verdict of the expert's own action; `prompt_tokens` the length of the
    rendered prefix. Where the rewards differed, verdicts were asked for again: `repeated` times,
    of which `agreed` said the same as the first. Statistics over the valid rewards are in
    `pivotune.turns.pivots`.
    """

    turn_id: str
    prefix_hash: str
    policy_hash: str
    verifier: str
    verifier_version: str
    temperature: float
    seed: int
    max_tokens: int
    prompt_tokens: int
    expert: Verdict
    samples: tuple[Sample, ...]
    cost: Cost = Cost()
    repeated: int = 0
    agreed: int = 0

    @property
    def rewards(self) -> tuple[float, ...]:
        """The valid rewards, in sampling order."""
        return tuple(s.verdict.reward for s in self.samples if s.verdict.reward is not None)


class EpisodeTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of an episode: what was done and the messages the environment answered with."""

    completion: Completion
    replies: tuple[Message, ...]


class Episode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of a policy in an environment.

    `ended` is "done" (the environment ended it), "turns" (step limit), "context" (the history
    no longer fits) or "failed" (the environment raised; `reward` is then None, never zero).
    """

    task: Task
    opening: tuple[Message, ...]
    turns: tuple[EpisodeTurn, ...]
    reward: float | None
    ended: Literal["done", "turns", "context", "failed"]
    problem: str = ""
    tools: tuple[ToolSpec, ...] = ()


_encoder = msgspec.json.Encoder(order="deterministic")


def content_hash(*parts: Any) -> str:
    """A stable 16-digit hash of any JSON-able values (structs included)."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(_encoder.encode(part))
        digest.update(b"\0")
    return digest.hexdigest()
