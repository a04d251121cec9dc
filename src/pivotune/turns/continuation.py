"""A policy plays on from the middle of an episode: the rollout that `outcome` is judged by.

It is `run_episodes` over an environment that starts where another one stands, so nothing samples
in a way of its own.
"""

from collections.abc import Sequence
from typing import Self

from pivotune.core.errors import VerifierError
from pivotune.core.protocols import Environment, OracleView, Sampler, StepResult
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, Message, Task, ToolSpec, Turn
from pivotune.turns.rollout import EpisodeLimits, Play, episode_cost, run_episodes
from pivotune.verify.outcome import Rollout


class ContinuedEnvironment:
    """Another environment, from where it stands; its opening is the history so far."""

    def __init__(self, inner: Environment, history: Sequence[Message]) -> None:
        self.inner, self.history = inner, tuple(history)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return self.inner.tools

    def reset(self, task: Task) -> tuple[Message, ...]:
        return self.history

    def step(self, action: Message) -> StepResult:
        return self.inner.step(action)

    def clone(self) -> Self:
        return type(self)(self.inner.clone(), self.history)

    def reward(self) -> float:
        return self.inner.reward()

    def restore(self, turn: Turn) -> None:
        self.inner.restore(turn)

    def oracle(self) -> OracleView | None:
        return self.inner.oracle()


def policy_rollout(sampler: Sampler, *, temperature: float, seed: int, max_tokens: int) -> Rollout:
    """Play on with a policy; raises `VerifierError` where the environment breaks on the way."""

    def play(environment: Environment, history: Sequence[Message], steps: int, name: str) -> Cost:
        (episode,) = run_episodes(
            sampler,
            [Play(Task(name, ""))],
            lambda task: ContinuedEnvironment(environment, history),
            temperature=temperature,
            seed=derive_seed(seed, "continuation"),
            limits=EpisodeLimits(max_turns=steps, max_tokens=max_tokens),
        )
        if episode.ended == "failed":
            raise VerifierError(f"the rollout failed: {episode.problem}", where=name)
        return episode_cost(episode)

    return play
