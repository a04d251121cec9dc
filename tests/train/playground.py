"""A game of a few turns in bytes, and what the trees of a step train, token by token."""

from functools import lru_cache

import msgspec
import numpy as np

from pivotune.core.errors import ReplayMismatch
from pivotune.core.protocols import OracleView, StepResult
from pivotune.core.types import Message, Task
from pivotune.models.parse import parse_action
from pivotune.models.sampler import TorchSampler
from pivotune.models.trees import path_ids
from pivotune.train.objective import Materials
from train.toy import small_policy

LENGTH = 3


class ByteGame:
    """Every action should begin with an even character; won when most do.

    The oracle's remaining steps grow by one with every odd action. Answers tell the parity.
    """

    tools = ()

    def reset(self, task):
        self.task, self.turns, self.even, self.odd = task, 0, 0, 0
        return (Message("user", task.id),)

    def step(self, action):
        good = is_even(action.content)
        self.turns, self.even, self.odd = self.turns + 1, self.even + good, self.odd + (not good)
        reply = Message("user", "even" if good else "odd")
        return StepResult((reply,), done=self.turns >= LENGTH)

    def clone(self):
        other = ByteGame()
        other.__dict__.update(self.__dict__)
        return other

    def reward(self):
        return float(self.even > self.odd)

    def restore(self, turn):
        replies = self.reset(turn.task)
        for message in turn.state:
            if message.role == "assistant":
                replies = self.step(message).replies
            elif message not in replies:
                raise ReplayMismatch("another answer")

    def oracle(self):
        return OracleView(LENGTH - self.turns + 2 * self.odd, Message("assistant", "b"), ("b", "d"))


def is_even(text):
    return bool(text) and ord(text[0]) % 2 == 0


class Finishing(TorchSampler):
    """Takes an action that the token limit cut for a whole one: random policies never stop."""

    def sample(self, requests):
        return [tuple(map(finished, each)) for each in super().sample(requests)]


def finished(completion):
    parsed = parse_action(completion.text, finish="stop", expects_call=None)
    return msgspec.structs.replace(
        completion, message=parsed.message, outcome=parsed.outcome, finish="stop"
    )


@lru_cache
def untrained():
    """A policy that no test trains."""
    return small_policy()


def tasks(count=4):
    return [Task(f"g{i}", "toy") for i in range(count)]


def materials(policy=None, **more):
    policy = policy or untrained()
    given = {
        "seed": 3,
        "chat": policy.chat,
        "sampler": Finishing(policy),
        "tasks": tasks(),
        "make_environment": lambda task: ByteGame(),
        "steps": 10,
    }
    return Materials(**{**given, **more})


SMALL = {"batch": 3, "group": 4, "max_tokens": 2}


def trained_tokens(trees):
    """Sorted (prefix, token, advantage, weight, likelihood weight, behaviour, temperature)."""
    found = []
    for tree in trees:
        for number, segment in enumerate(tree.segments):
            ids, signal = path_ids(tree, number).tolist(), segment.signal
            before = len(ids) - len(segment.ids)
            for i in np.flatnonzero(signal.live):
                values = (
                    signal.advantages[i],
                    signal.pg_weights[i],
                    signal.ce_weights[i],
                    signal.behaviour[i],
                    signal.temperature,
                )
                found.append((tuple(ids[: before + i]), ids[before + i], *map(float, values)))
    return sorted(found)


def played_tokens(episode, advantages, temperature=1.0):
    """The same of an episode's actions, by loops over what was recorded."""
    found = []
    for turn, given in zip(episode.turns, advantages, strict=True):
        said = turn.completion
        for i, token in enumerate(said.token_ids):
            prefix = said.prompt_ids + said.token_ids[:i]
            advantage = float(np.float32(given[i] if np.ndim(given) else given))
            behaviour = float(np.float32(said.logprobs[i]))
            found.append((prefix, token, advantage, 1.0, 0.0, behaviour, temperature))
    return found


def same_trees(left, right):
    """Whether two lists of trees are equal bit for bit."""
    if [tree.id for tree in left] != [tree.id for tree in right]:
        return False
    return all(
        np.array_equal(a.ids, b.ids)
        and (a.parent, a.attach, a.signal.row, a.signal.temperature)
        == (b.parent, b.attach, b.signal.row, b.signal.temperature)
        and np.array_equal(a.signal.pg_weights, b.signal.pg_weights)
        and np.array_equal(a.signal.advantages, b.signal.advantages)
        and np.array_equal(a.signal.behaviour, b.signal.behaviour, equal_nan=True)
        and np.array_equal(a.signal.ce_weights, b.signal.ce_weights)
        for x, y in zip(left, right, strict=True)
        for a, b in zip(x.segments, y.segments, strict=True)
    )
