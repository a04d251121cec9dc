"""Which turns are worth profiling at all. Every turn left out has a counted reason."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from pivotune.core.types import TOOL_ERROR, Message, Trajectory, Turn, content_hash


class CandidateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out before sampling.

    Trajectories known to have failed (reward below `success_at`) are no experts unless
    `keep_failed`; turns whose own action is rejected by the verifier are left out unless
    `keep_wrong_expert` (that filter needs the verifier and is applied while profiling).
    """

    keep_failed: bool = False
    keep_wrong_expert: bool = False
    success_at: float = 0.5


class Candidates(msgspec.Struct, frozen=True):
    """Turns to profile, and the number left out by reason."""

    turns: tuple[Turn, ...]
    dropped: dict[str, int]


def is_expert(trajectory: Trajectory, config: CandidateConfig) -> bool:
    """A trajectory whose outcome is unknown counts as an expert's."""
    failed = trajectory.reward is not None and trajectory.reward < config.success_at
    return config.keep_failed or not failed


def prefix_hash(turn: Turn) -> str:
    """Identifies the state as the policy sees it: messages and tools."""
    return content_hash(turn.state, turn.tools)


def tool_error(turn: Turn) -> bool:
    """Whether the trace marks a result of the turn's calls as an error."""
    return bool(turn.meta.get(TOOL_ERROR, False))


def choose_candidates(
    turns: Iterable[Turn],
    *,
    count_tokens: Callable[[Sequence[Message], Turn], int | None],
    max_prompt_tokens: int,
) -> Candidates:
    """Leave out tool errors, unreadable experts, exact duplicates and prefixes over the limit, in
    this order.

    An expert whose arguments are no JSON object can be neither compared nor shown in a prompt.
    `count_tokens` gives None for a prefix that the chat template refuses.
    """
    dropped: dict[str, int] = {}
    seen: set[str] = set()
    kept: list[Turn] = []
    for turn in turns:
        reason = ""
        key = content_hash(prefix_hash(turn), turn.expert)
        if tool_error(turn):
            reason = "the call ended in a tool error"
        elif any(call.arguments is None for call in turn.expert.tool_calls):
            reason = "the expert's arguments are no JSON object"
        elif key in seen:
            reason = "exact duplicate"
        elif (count := count_tokens(turn.state, turn)) is None:
            reason = "the chat template refuses it"
        elif count > max_prompt_tokens:
            reason = "prefix over the limit"
        seen.add(key)
        if reason:
            dropped[reason] = dropped.get(reason, 0) + 1
        else:
            kept.append(turn)
    return Candidates(tuple(kept), dropped)


def draw_candidates(candidates: Candidates, limit: int, seed: int) -> Candidates:
    """At most `limit` of the turns, drawn by the seed, in their order; 0: all."""
    count = len(candidates.turns)
    if not 0 < limit < count:
        return candidates
    drawn = np.random.default_rng(seed).choice(count, limit, replace=False)
    turns = tuple(candidates.turns[i] for i in sorted(drawn))
    return Candidates(turns, {**candidates.dropped, "not drawn": count - limit})
