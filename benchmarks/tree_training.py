"""Forward and backward over pivot groups: trees against one plain row per completion.

    python benchmarks/tree_training.py

Both sides are this project's own passes over the same groups and weights, in processor seconds
of one thread, taken in turns; medians. The ceiling is the ratio of the tokens that have to be
computed: G (P + C) rows against P + G C in a tree. Plain rows go through in micro-batches of at
most 8,192 tokens, trees one group at a time. The last line is JSON for the setting that comes
least close to its ceiling; the aim is 80 % of it.
"""

import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal

from pivotune.models.threads import limit_threads

limit_threads()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from pivotune.models.forward import token_logprobs  # noqa: E402
from pivotune.models.linear import speed_up_linears  # noqa: E402
from pivotune.models.trees import (  # noqa: E402
    Segment,
    TokenTree,
    context_signal,
    policy_gradient_signal,
)

ROW_BUDGET = 8_192
ROUNDS = 3
ACTION = 32
SIZES = {
    "1 M": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "head_dim": 32},
    "5 M": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6, "head_dim": 64},
}


@dataclass(frozen=True)
class Outcome:
    """Medians of one setting, in processor seconds."""

    setting: str
    tree: float
    plain: float
    ceiling: float

    @property
    def ratio(self) -> float:
        return self.plain / self.tree

    @property
    def share(self) -> float:
        return self.ratio / self.ceiling


def build_model(size: str) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        **SIZES[size],
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=2_048,
        max_position_embeddings=4_096,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).train()
    speed_up_linears(model)  # as every policy does
    return model


def build_group(prompt: int, count: int) -> TokenTree:
    rng = np.random.default_rng(prompt + count)
    trunk = Segment(rng.integers(0, 2_048, prompt), context_signal(prompt))
    branches = [
        Segment(
            rng.integers(0, 2_048, ACTION),
            policy_gradient_signal(1.0, np.zeros(ACTION, np.float32), temperature=1.0, row=row),
            0,
            prompt,
        )
        for row in range(count)
    ]
    return TokenTree(f"P={prompt} G={count}", (trunk, *branches))


def row_batches(tree: TokenTree) -> list[TokenTree]:
    """The group as groups of so many branches that their rows keep within the budget."""
    trunk, *branches = tree.segments
    size = max(1, ROW_BUDGET // (len(trunk.ids) + ACTION))
    starts = range(0, len(branches), size)
    return [TokenTree(tree.id, (trunk, *branches[i : i + size])) for i in starts]


def seconds(model: Any, trees: list[TokenTree], path: Literal["tree", "plain"]) -> float:
    start = time.process_time()
    for tree in trees:
        torch.autograd.backward(token_logprobs(model, [tree], path=path).logprobs.sum())
    taken = time.process_time() - start
    model.zero_grad()
    return taken


def compare(size: str, prompt: int, count: int) -> Outcome:
    model, tree = build_model(size), build_group(prompt, count)
    seconds(model, [tree], "tree")
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        tree_time = statistics.median(seconds(model, [tree], "tree") for _ in range(3))
        times.append((tree_time, seconds(model, row_batches(tree), "plain")))
    trees, rows = zip(*times, strict=True)
    return Outcome(
        f"{size} parameters, float32, one thread, {tree.id} C={ACTION}",
        statistics.median(trees),
        statistics.median(rows),
        tree.row_token_count / tree.token_count,
    )


def main() -> None:
    print(f"{'setting':<56} {'tree':>8} {'plain':>8} {'ratio':>6} {'ceiling':>8} {'share':>6}")
    outcomes = []
    for size in SIZES:
        for prompt in (512, 2_048):
            for count in (8, 16):
                outcome = compare(size, prompt, count)
                outcomes.append(outcome)
                print(
                    f"{outcome.setting:<56} {outcome.tree:7.3f}s {outcome.plain:7.3f}s"
                    f" {outcome.ratio:6.2f} {outcome.ceiling:8.2f} {outcome.share:6.0%}",
                    flush=True,
                )
    least = min(outcomes, key=lambda outcome: outcome.share)
    line = {
        "name": "tree_training",
        "ours": round(least.tree, 4),
        "theirs": round(least.plain, 4),
        "ratio": round(least.ratio, 2),
        "unit": "processor seconds",
        "setting": f"{least.setting}; ceiling {least.ceiling:.2f}",
    }
    json.dump(line, sys.stdout)
    print()


if __name__ == "__main__":
    main()
