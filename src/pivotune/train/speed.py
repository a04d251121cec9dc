"""How fast a policy trains on this machine, measured on trees like those of the run."""

import time
from collections.abc import Sequence

import torch

from pivotune.models.forward import token_logprobs
from pivotune.models.policy import Policy
from pivotune.models.trees import TokenTree


def training_rate(policy: Policy, trees: Sequence[TokenTree]) -> float:
    """Tokens a second of one forward and backward pass; the weights do not change."""
    start = time.perf_counter()
    torch.autograd.backward(token_logprobs(policy.model, trees).logprobs.sum())
    seconds = time.perf_counter() - start
    policy.model.zero_grad(set_to_none=True)
    return sum(tree.token_count for tree in trees) / seconds
