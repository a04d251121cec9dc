"""A tiny policy and an objective that samples from nothing, for the trainer's tests."""

from dataclasses import replace

import numpy as np
import torch

from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost
from pivotune.models.forward import token_logprobs
from pivotune.models.policy import Policy
from pivotune.models.trees import (
    Segment,
    TokenTree,
    context_signal,
    cross_entropy_signal,
    policy_gradient_signal,
)
from pivotune.train.objective import Collected
from tiny_models import tiny_policy


def small_policy(seed=0) -> Policy:
    return tiny_policy(seed=seed, hidden_size=16, intermediate_size=24, num_hidden_layers=1)


def sentence(name, ids, trained_from):
    weights = np.zeros(len(ids), np.float32)
    weights[trained_from:] = 1.0
    return TokenTree(name, (Segment(np.asarray(ids, np.int64), cross_entropy_signal(weights)),))


def with_signals(tree, change):
    """The tree with `change(signal)` in place of every branch's signal."""
    branches = [replace(each, signal=change(each.signal)) for each in tree.segments[1:]]
    return TokenTree(tree.id, (tree.segments[0], *branches))


class RandomGroups:
    """Groups of random actions with random rewards, their log-probs those of the policy."""

    def __init__(
        self,
        policy,
        *,
        groups=3,
        size=4,
        recorded=True,
        temperature=0.8,
        shift=0.0,
        change=lambda signal: signal,
    ):
        self.policy = policy
        self.groups = groups
        self.size = size
        self.recorded = recorded
        self.temperature = temperature
        self.shift = shift
        self.change = change
        self.seen = []

    def collect(self, step):
        self.seen.append(step)
        draw = np.random.default_rng(derive_seed("random groups", step))
        trees = [self._tree(f"{step}/{i}", draw) for i in range(self.groups)]
        if self.recorded:
            trees = [self._record(tree) for tree in trees]
        trees = [with_signals(tree, self.change) for tree in trees]
        return Collected(trees, {"reward_mean": float(step)}, Cost(sampled_tokens=7))

    def _tree(self, name, draw):
        prompt = draw.integers(0, 200, draw.integers(3, 9))
        branches = []
        for row in range(self.size):
            ids = draw.integers(0, 200, draw.integers(1, 6))
            signal = policy_gradient_signal(
                float(draw.normal()),
                np.full(len(ids), np.nan),
                temperature=self.temperature,
                row=row,
            )
            branches.append(Segment(ids, signal, 0, len(prompt)))
        return TokenTree(name, (Segment(prompt, context_signal(len(prompt))), *branches))

    def _record(self, tree):
        with torch.no_grad():
            found = token_logprobs(self.policy.model, [tree], path="plain").logprobs.numpy()
        place = 0
        for segment in tree.segments[1:]:
            count = len(segment.ids)
            segment.signal.behaviour[:] = found[place : place + count] + self.shift
            place += count
        return tree

    def state(self):
        return {"seen": self.seen}

    def load_state(self, state):
        self.seen = list(state["seen"])
