"""Is the task still won from here? The action is taken, the game played on, its end judged.

Who plays on is a `Rollout`: the environment's own oracle by default (can the task still be won
within the horizon?), or a policy (does this policy win it from here?).
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, Cost, Message, Turn, Verdict, content_hash
from pivotune.verify.actions import invalid, reject_broken, versioned

Rollout = Callable[[Environment, Sequence[Message], int, str], Cost]
"""(environment, history, steps, name): plays on in the environment, at most that many actions.

The environment is a copy that may be changed; the history ends with its last answers. `name`
tells one rollout from another: random streams are named after it. Raises where it cannot play.
"""


class OutcomeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`horizon`: actions after the one that is judged. `rollouts`: their outcomes are averaged."""

    horizon: Annotated[int, msgspec.Meta(ge=0)] = 30
    rollouts: Annotated[int, msgspec.Meta(ge=1)] = 1


class OutcomeVerifier:
    """The reward is the environment's, at the end or at the horizon.

    The expert action is not looked at. `player` names who plays on, and is part of the version.
    """

    name = "outcome"
    needs_environment = True

    def __init__(
        self,
        config: OutcomeConfig | None = None,
        rollout: Rollout | None = None,
        player: str = "oracle",
    ) -> None:
        self.config = config or OutcomeConfig()
        self._rollout = rollout or play_oracle
        self.version = f"{versioned(1, self.config)}+{player}"

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if broken := reject_broken(completion):
            return broken
        if environment is None:
            return invalid("outcome needs an environment")
        key = content_hash(turn.id, completion.message)
        rewards: list[float] = []
        cost = Cost()
        for number in range(self.config.rollouts):
            reward, spent = self._play(turn, completion.message, environment, f"{key}/{number}")
            rewards.append(reward)
            cost += spent
        mean = sum(rewards) / len(rewards)
        reason = f"outcome {mean:g} within {self.config.horizon} actions"
        return Verdict(mean, reason, {"outcome": mean}, cost)

    def _play(
        self, turn: Turn, action: Message, environment: Environment, name: str
    ) -> tuple[float, Cost]:
        copy = environment.clone()
        result = copy.step(action)
        cost = Cost(environment_steps=1)
        if not result.done and self.config.horizon:
            history = (*turn.state, action, *result.replies)
            cost += self._rollout(copy, history, self.config.horizon, name)
        return copy.reward(), cost


def play_oracle(environment: Environment, _: Sequence[Message], steps: int, __: str) -> Cost:
    """Optimal play from here; raises `ValueError` where the environment has no oracle."""
    taken = 0
    while taken < steps:
        view = environment.oracle()
        if view is None:
            raise ValueError("the environment has no oracle to play on with")
        if view.action is None:
            break
        taken += 1
        if environment.step(view.action).done:
            break
    return Cost(environment_steps=taken)
