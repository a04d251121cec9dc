"""A scoring model's value of the action, at or above a threshold.

The scores come from an endpoint that serves a reward model: it is given the history and the
action as messages, and answers with numbers, of which the last one, that of the action's last
token, is the value (`POST /pooling` as vLLM has it). Any other scorer is a function of yours.
"""

import math
from collections.abc import Callable
from typing import Any

from pivotune.core.crowd import Crowd
from pivotune.core.endpoint import Endpoint, EndpointConfig, EndpointError
from pivotune.core.errors import RecipeError
from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, Cost, JsonObject, Message, Turn, Verdict, content_hash
from pivotune.verify.actions import reject_broken
from pivotune.verify.judge import show_action, used_tokens

Score = Callable[[Turn, Message], float]
"""The value of an action at a turn; it raises where there is none."""


class ProcessRewardConfig(EndpointConfig, frozen=True, forbid_unknown_fields=True):
    """`threshold` is in the model's own units: `verify selftest` shows where experts lie.

    `path` is asked under `url`. `model` is the reward model's name there.
    """

    model: str = ""
    path: str = "pooling"
    threshold: float = 0.5


class ProcessRewardVerifier:
    """Reward 1 at the threshold or above, else 0; the part `value` is the score itself.

    The expert action is not looked at: an action that is better than the expert's is accepted.
    """

    name = "process_reward"
    needs_environment = False

    def __init__(
        self, config: ProcessRewardConfig | None = None, score: Score | None = None
    ) -> None:
        self.config = config or ProcessRewardConfig()
        if score is None and not self.config.model:
            raise RecipeError(
                "model: which model gives the scores?",
                where="verifier process_reward",
                fix="set url and model under [verifiers.process_reward] in the recipe",
            )
        self._score = score
        config = self.config
        self._crowd = None if score else Crowd(Endpoint(config, "verifier process_reward"))
        self.at_once = self._crowd.most if self._crowd else 1
        what = (config.url, config.model, config.path, config.threshold)
        self.version = f"1-{content_hash(*what)[:8]}"

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        if broken := reject_broken(completion):
            return broken
        if self._score is not None:
            return self._judge(self._score(turn, completion.message), Cost(judge_calls=1))
        assert self._crowd is not None
        try:
            answered = self._crowd.post(self.config.path, self._body(turn, completion.message))
        except EndpointError as error:
            cost = Cost(judge_calls=error.attempts)
            return Verdict(None, f"the reward model failed: {error}", cost=cost)
        cost = Cost(judge_calls=answered.attempts, judge_tokens=used_tokens(answered.body))
        value = read_value(answered.body)
        if value is None:
            return Verdict(None, "the reward model's answer holds no number", cost=cost)
        return self._judge(value, cost)

    def _judge(self, value: float, cost: Cost) -> Verdict:
        if not math.isfinite(value):
            return Verdict(None, f"the reward model gave {value}", cost=cost)
        reward = float(value >= self.config.threshold)
        side = "at or above" if reward else "below"
        reason = f"value {value:.4g}, {side} {self.config.threshold:g}"
        return Verdict(reward, reason, {"value": value}, cost)

    def _body(self, turn: Turn, action: Message) -> JsonObject:
        messages = [
            {"role": message.role, "content": show_action(message)}
            for message in (*turn.state, action)
        ]
        return {"model": self.config.model, "messages": messages}


def read_value(body: Any) -> float | None:
    """The last number of `data[0].data`, or of `data[0].score`; None where there is none."""
    try:
        first = body["data"][0]
        value = first["score"] if "score" in first else first["data"]
        while isinstance(value, list):
            value = value[-1]
        known = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if known else None
    except (KeyError, IndexError, TypeError, OverflowError):
        return None
