"""Tasks that are answered by the likeliest of given actions (multiple choice).

In: tasks whose environments are `Choosing`. Out: an episode without turns for each, and what
it cost. The log-probability of a choice is the sum over its tokens after the prompt; the token
that ends the action is not counted, as in lm-eval.
"""

import math
from collections.abc import Callable, Sequence

from pivotune.core.errors import DataError, SamplerError
from pivotune.core.protocols import Choosing, Environment, Sampler, ScoreRequest
from pivotune.core.types import Cost, Episode, Task


def answer_by_choice(
    sampler: Sampler,
    tasks: Sequence[Task],
    make_environment: Callable[[Task], Environment],
    on_done: Callable[[int, Episode, Cost], None],
) -> None:
    """Answer every task once; `on_done(position, episode, cost)` is called for each.

    A question that cannot be scored (longer than the context) is a failed episode without a
    reward. Raises `SamplerError` for a sampler that cannot score at all.
    """
    if not sampler.abilities.scores:
        raise SamplerError(
            "these questions are answered by log-probabilities, which this sampler does not give",
            got=sampler.name,
            fix="use a local model, or a suite that is answered in words",
        )
    for position, task in enumerate(tasks):
        on_done(position, *_answer(sampler, task, make_environment(task)))


def check_rollouts(rollouts: int, suite: str) -> None:
    """Log-probabilities do not vary from one rollout to the next."""
    if rollouts > 1:
        raise DataError(
            "a suite answered by log-probabilities gives the same answer every time",
            where=suite,
            got=f"{rollouts} rollouts a task",
            expected="one rollout; pass@k and the tax need a suite that is sampled",
        )


def _answer(sampler: Sampler, task: Task, environment: Environment) -> tuple[Episode, Cost]:
    assert isinstance(environment, Choosing)
    opening = environment.reset(task)
    choices = environment.choices()
    requests = [ScoreRequest(opening, environment.tools, action=each) for each in choices]
    try:
        scores = sampler.score(requests)
    except SamplerError as error:
        return Episode(task, opening, (), None, "failed", str(error)), Cost()
    environment.choose([math.fsum(each.logprobs[:-1]) for each in scores])
    episode = Episode(task, opening, (), environment.reward(), "done", tools=environment.tools)
    tokens = sampler.count(opening, environment.tools) + sum(len(each.logprobs) for each in scores)
    return episode, Cost(prompt_tokens=tokens, environment_steps=1)
