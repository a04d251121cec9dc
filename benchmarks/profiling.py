"""Profiling a trajectory of 10 turns and 2,000 tokens, K = 8 samples a turn.

    python benchmarks/profiling.py [rounds]

Ours: all turns in one call, so that the trajectory is computed once and 80 rows branch from it.
Beside it its two parts alone: the prompt once, and the decoding steps of the 80 rows. Theirs:
transformers' `generate` with its defaults, once for every turn and sample; one sample of each
turn is timed and counted K times. A Qwen3 model of 5 M parameters with random weights, 32 new
tokens, one thread. Processor seconds, taken in turns; medians. The last line is JSON.
"""

import json
import statistics
import sys
import time
from typing import Any

from pivotune.models.threads import limit_threads

limit_threads()

import torch  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from pivotune.models.cached_engine import CachedEngine  # noqa: E402
from pivotune.models.linear import speed_up_linears  # noqa: E402
from pivotune.models.rows import Ids, Row, row_uniforms  # noqa: E402

TURNS, TURN_TOKENS, SAMPLES, NEW, VOCABULARY = 10, 200, 8, 32, 2_048


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


def build_prompts() -> list[Ids]:
    """The prompt of every turn, each the beginning of the next."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (TURNS * TURN_TOKENS,), generator=generator).tolist()
    return [tuple(ids[: TURN_TOKENS * (turn + 1)]) for turn in range(TURNS)]


def ours(model: Any, prompts: list[Ids], *, samples: int, new: int) -> float:
    rows = [
        Row(prompt, new, 1.0, row_uniforms(turn, sample, new))
        for turn, prompt in enumerate(prompts)
        for sample in range(samples)
    ]
    engine = CachedEngine(model, None)
    start = time.process_time()
    engine.generate(rows, frozenset())
    return time.process_time() - start


def theirs(model: Any, prompts: list[Ids]) -> float:
    """Seconds of `generate` for one sample of every turn, times K."""
    start = time.process_time()
    for prompt in prompts:
        with torch.inference_mode():
            model.generate(
                torch.tensor([prompt]),
                do_sample=True,
                top_k=0,
                max_new_tokens=NEW,
                pad_token_id=0,
            )
    return SAMPLES * (time.process_time() - start)


def main(rounds: int) -> None:
    model, their_model, prompts = build_model(), build_model(), build_prompts()
    speed_up_linears(model)  # as every policy does
    ours(model, prompts, samples=1, new=2)
    whole, prompt_once, first_tokens, per_sample = [], [], [], []
    for _ in range(rounds):
        whole.append(ours(model, prompts, samples=SAMPLES, new=NEW))
        first_tokens.append(ours(model, prompts, samples=SAMPLES, new=1))
        prompt_once.append(ours(model, prompts[-1:], samples=1, new=1))
        per_sample.append(theirs(their_model, prompts))
    total = statistics.median(whole)
    decoding = statistics.median(w - f for w, f in zip(whole, first_tokens, strict=True))
    least = statistics.median(prompt_once) + decoding
    generate = statistics.median(per_sample)
    print(f"profiled in {total:.2f} s; prompt once and decoding alone {least:.2f} s")
    print(f"{total / least:.2f} times its parts (aim: at most 1.2)")
    line = {
        "name": "profiling",
        "ours": round(total, 3),
        "theirs": round(generate, 3),
        "ratio": round(generate / total, 2),
        "unit": "processor seconds",
        "setting": f"{TURNS} turns, {TURNS * TURN_TOKENS} tokens, K={SAMPLES}, C={NEW}, "
        f"5 M parameters, float32, one thread; {total / least:.2f} times its parts",
    }
    json.dump(line, sys.stdout)
    print()


if __name__ == "__main__":
    main(*([int(text) for text in sys.argv[1:]] or [3]))
