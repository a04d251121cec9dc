"""Log-probabilities of recorded actions under another policy, or at another context.

    gap = log p(action | the teacher's context) - log p(action | the student's context)

Both sides are at one temperature, T_ref, whatever the row was sampled at.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from pivotune.core.protocols import Sampler, ScoreRequest, TokenScores
from pivotune.core.types import Completion, Cost, Message, ToolSpec
from pivotune.models.trees import Floats


class Spoken(msgspec.Struct, frozen=True):
    """An action and the context at which its tokens are to be scored."""

    state: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    completion: Completion


def score_actions(
    sampler: Sampler, spoken: Sequence[Spoken], temperature: float | None, top_k: int = 0
) -> tuple[list[TokenScores | None], Cost]:
    """Scores of every action's tokens; None where context and action do not fit the model.

    `temperature` None: that at which each action was sampled. What is scored is charged as prompt
    tokens: it is read, not sampled.
    """
    lengths = [
        sampler.count(each.state, each.tools) + len(each.completion.token_ids) for each in spoken
    ]
    fits = [i for i, length in enumerate(lengths) if length <= sampler.context_limit]
    requests = [
        ScoreRequest(
            spoken[i].state,
            spoken[i].tools,
            spoken[i].completion.token_ids,
            spoken[i].completion.temperature if temperature is None else temperature,
            top_k,
        )
        for i in fits
    ]
    scores: list[TokenScores | None] = [None] * len(spoken)
    for i, score in zip(fits, sampler.score(requests) if requests else [], strict=True):
        scores[i] = score
    return scores, Cost(prompt_tokens=sum(lengths[i] for i in fits))


def own_logprobs(
    sampler: Sampler, spoken: Sequence[Spoken], temperature: float
) -> tuple[list[Floats | None], Cost]:
    """The student's own at its own contexts: as recorded where they were sampled at T_ref."""
    ask = [each for each in spoken if each.completion.temperature != temperature]
    scores, cost = score_actions(sampler, ask, temperature)
    asked = iter(scores)
    found: list[Floats | None] = []
    for each in spoken:
        if each.completion.temperature == temperature:
            found.append(np.asarray(each.completion.logprobs, np.float32))
        else:
            found.append(_floats(next(asked)))
    return found, cost


def token_gaps(
    teacher: Sampler,
    student: Sampler,
    told: Sequence[Spoken],
    own: Sequence[Spoken],
    temperature: float,
) -> tuple[list[Floats | None], Cost]:
    """(T,) gaps of actions whose teacher's contexts are `told`, the student's `own`."""
    scores, cost = score_actions(teacher, told, temperature)
    mine, more = own_logprobs(student, own, temperature)
    gaps = [
        None if a is None or b is None else np.asarray(a.logprobs, np.float32) - b
        for a, b in zip(scores, mine, strict=True)
    ]
    return gaps, cost + more


def _floats(scores: TokenScores | None) -> Floats | None:
    return None if scores is None else np.asarray(scores.logprobs, np.float32)
