"""Sampling 64 prompts x 8 rows: the cached engine against transformers' `generate`.

    python benchmarks/sampling.py [--quick]

P = 512 prompt tokens, C = 32 new tokens, temperature 1, a Qwen3 model of 5 M parameters with
random weights, one thread. Both sides draw every row to its full length. `generate` gets each
prompt once with `num_return_sequences=8`, 16 prompts a call, with its dynamic and its static
cache. Processor seconds: the median of three for ours, one run for either cache, which takes
more than a minute. Before the times, greedy tokens are compared with `generate`'s, and the
log-probabilities of sampled rows with a fresh forward; a difference ends the benchmark. The last
line is JSON against the faster cache. `--quick` takes 16 prompts.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from pivotune.models.threads import limit_threads

limit_threads()

import torch  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from pivotune.models.cached_engine import CachedEngine  # noqa: E402
from pivotune.models.linear import speed_up_linears  # noqa: E402
from pivotune.models.rows import Ids, Row, row_uniforms  # noqa: E402

PROMPT, NEW, ROWS, PER_CALL, VOCABULARY = 512, 32, 8, 16, 2_048
CHECKED = 4


def build_model() -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=VOCABULARY,
        max_position_embeddings=4_096,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    return model


def build_prompts(count: int) -> list[Ids]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (count, PROMPT), generator=generator)
    return [tuple(line) for line in ids.tolist()]


def sample_ours(model: Any, prompts: Sequence[Ids], temperature: float = 1.0) -> list[Row]:
    rows = [
        Row(prompt, NEW, temperature, row_uniforms(index, row, NEW))
        for index, prompt in enumerate(prompts)
        for row in range(ROWS)
    ]
    CachedEngine(model, None).generate(rows, frozenset())
    return rows


def sample_theirs(model: Any, prompts: Sequence[Ids], **cache: str) -> None:
    for start in range(0, len(prompts), PER_CALL):
        with torch.inference_mode():
            model.generate(
                torch.tensor(prompts[start : start + PER_CALL]),
                do_sample=True,
                top_k=0,
                num_return_sequences=ROWS,
                max_new_tokens=NEW,
                pad_token_id=0,
                **cache,
            )


def check(ours: Any, theirs: Any, prompts: Sequence[Ids]) -> None:
    """The same distribution: equal greedy tokens, log-probabilities of a fresh forward."""
    with torch.inference_mode():
        ids = theirs.generate(
            torch.tensor(prompts), do_sample=False, max_new_tokens=NEW, pad_token_id=0
        )
    greedy = sample_ours(ours, prompts, temperature=0.0)[::ROWS]
    assert [row.tokens for row in greedy] == ids[:, PROMPT:].tolist(), "greedy tokens differ"
    difference = largest_difference(theirs, sample_ours(ours, prompts))
    print(
        f"greedy tokens of {len(prompts)} prompts are equal; {len(prompts) * ROWS} sampled rows:"
        f" largest difference from a fresh forward {difference:.1e}"
    )
    assert difference < 1e-4, "log-probabilities differ"


def largest_difference(model: Any, rows: Sequence[Row]) -> float:
    """Between the rows' log-probabilities and those of a fresh forward."""
    worst = 0.0
    for row in rows:
        ids = torch.tensor([(*row.prompt, *row.tokens)])
        with torch.inference_mode():
            logprobs = model(ids).logits[0, PROMPT - 1 : -1].log_softmax(-1)
        picked = logprobs.gather(1, torch.tensor(row.tokens)[:, None]).squeeze(1)
        worst = max(worst, (picked - torch.tensor(row.logprobs)).abs().max().item())
    return worst


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main(count: int) -> None:
    ours, theirs, prompts = build_model(), build_model(), build_prompts(count)
    speed_up_linears(ours)  # as every policy does
    check(ours, theirs, prompts[:CHECKED])
    times = {
        "ours": statistics.median(seconds(lambda: sample_ours(ours, prompts)) for _ in range(3)),
        "generate, dynamic cache": seconds(lambda: sample_theirs(theirs, prompts)),
        "generate, static cache": seconds(
            lambda: sample_theirs(theirs, prompts, cache_implementation="static")
        ),
    }
    rates = {name: count * ROWS * NEW / taken for name, taken in times.items()}
    for name, rate in rates.items():
        print(f"{name:<24} {rate:8.0f} tokens/s {rates['ours'] / rate:6.2f} times")
    fastest = max(rate for name, rate in rates.items() if name != "ours")
    line = {
        "name": "sampling",
        "ours": round(rates["ours"]),
        "theirs": round(fastest),
        "ratio": round(rates["ours"] / fastest, 2),
        "unit": "tokens per processor second",
        "setting": f"{count} x {ROWS}, P={PROMPT} C={NEW}, 5 M parameters, float32, one thread; "
        f"dynamic cache {rates['ours'] / rates['generate, dynamic cache']:.2f} times",
    }
    json.dump(line, sys.stdout)
    print()


if __name__ == "__main__":
    main(16 if "--quick" in sys.argv[1:] else 64)
