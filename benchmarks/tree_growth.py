"""How the cost of a training pass grows with the trunk and with the number of branches.

    python benchmarks/tree_growth.py [--quick]

Forward and backward of one group on a random Qwen3 model of 1 M parameters in float32, each size
in a process of its own with one thread: processor seconds (median of 3 after a warm-up) and peak
memory above what the process held with the model loaded. The exponents are least-squares slopes
in log-log: 1 is linear. The last line is JSON: `ours` is the exponent of time in the trunk's
length, `theirs` the 2 of an N x N mask. `--quick` stops at P = 4,096 and G = 16.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pivotune.models.threads import limit_threads

limit_threads()

import numpy as np  # noqa: E402

PROMPTS = (512, 1_024, 2_048, 4_096, 8_192, 16_384)
GROUPS = (2, 4, 8, 16, 32, 64)
ACTION = 32


def measure_here(prompt: int, group: int) -> None:
    """One size; seconds and bytes as a line of JSON."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from pivotune.models.forward import token_logprobs
    from pivotune.models.linear import speed_up_linears
    from pivotune.models.trees import (
        Segment,
        TokenTree,
        context_signal,
        policy_gradient_signal,
    )

    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=2_048,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    speed_up_linears(model)  # as every policy does
    rng = np.random.default_rng(0)
    signal = policy_gradient_signal(1.0, np.zeros(ACTION, np.float32), temperature=1.0, row=0)
    trunk = Segment(rng.integers(0, 2_048, prompt), context_signal(prompt))
    branches = [Segment(rng.integers(0, 2_048, ACTION), signal, 0, prompt) for _ in range(group)]
    tree = TokenTree("group", (trunk, *branches))
    held = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    times = []
    for _ in range(4):
        start = time.process_time()
        torch.autograd.backward(token_logprobs(model, [tree]).logprobs.sum())
        times.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 - held
    print(json.dumps({"seconds": statistics.median(times[1:]), "bytes": peak}))


def measure(prompt: int, group: int) -> tuple[float, float]:
    """Seconds and megabytes."""
    command = [sys.executable, __file__, str(prompt), str(group)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    print(
        f"P={prompt:6d} G={group:3d}  {found['seconds']:8.3f} s  {found['bytes'] / 1e6:8.0f} MB",
        flush=True,
    )
    return found["seconds"], found["bytes"] / 1e6


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def main(prompts: Sequence[int], groups: Sequence[int]) -> None:
    by_prompt = [measure(prompt, 8) for prompt in prompts]
    by_group = [measure(512, group) for group in groups]
    tokens = [512 + group * ACTION for group in groups]
    time_P, memory_P = (exponent(prompts, costs) for costs in zip(*by_prompt, strict=True))
    time_G, memory_G = (exponent(tokens, costs) for costs in zip(*by_group, strict=True))
    print(f"exponents in P (G=8): time {time_P:.2f}, memory {memory_P:.2f}")
    print(f"exponents in the tokens of P=512 + G x 32: time {time_G:.2f}, memory {memory_G:.2f}")
    line = {
        "name": "tree_growth",
        "ours": round(time_P, 3),
        "theirs": 2,
        "ratio": round(2 / time_P, 2),
        "unit": "exponent of time in the trunk's length",
        "setting": f"P={prompts[0]} to {prompts[-1]}, G=8, C=32, 1 M parameters, float32, one"
        f" thread; memory exponent {memory_P:.2f}",
    }
    print(json.dumps(line))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure_here(int(sys.argv[1]), int(sys.argv[2]))
    elif "--quick" in sys.argv:
        main(PROMPTS[:4], GROUPS[:4])
    else:
        main(PROMPTS, GROUPS)
