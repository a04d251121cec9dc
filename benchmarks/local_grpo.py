"""One local-GRPO step against TRL's `GRPOTrainer`: sampling, log-probabilities, backward, AdamW.

    pip install -e '.[trl]' && python benchmarks/local_grpo.py [--quick]

Both sides load the same random Qwen3 model of 5 M parameters (float32), take the same 4 prompts,
sample G completions of at most 32 tokens at temperature 1, score them with the same function of
the token ids and make one AdamW step, without KL and with beta 0.01. Every measurement is a
process of its own with one thread: processor seconds a step and peak memory above what the
process held after its imports. Medians of three steps after a warm-up step; TRL's steps over
prompts of 2,048 take a minute and more, so there it is one step, the first. Our micro-batch is
one group, and every setting is measured once more with activations computed again (`recompute`);
TRL has gradient checkpointing off (faster here) and the micro-batch that makes one step over 4 x 8
rows of 512 fastest, found first. `ceiling` is the ratio of the tokens of the training pass alone.
`--quick` takes P=512 and G=8 only.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from pivotune.models.threads import limit_threads

limit_threads()

import numpy as np  # noqa: E402

PROMPTS = 4
ACTION = 32
LEARNING_RATE = 1e-5
TRL_ROWS = (1, 2, 4, 8, 32)
SETTINGS = tuple(product((512, 2_048), (8, 16), (0.0, 0.01)))


def reward_of(token_ids: Sequence[int]) -> float:
    """Anything that differs within a group."""
    return float(sum(token_ids) % 97) / 96


def prompt_texts(length: int) -> list[str]:
    letters = np.random.default_rng(length).integers(97, 123, (PROMPTS, length))
    return ["".join(map(chr, row)) for row in letters]


def build_model(folder: Path) -> None:
    """A random model, and a tokenizer with one token a byte."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        chat_template="{% for message in messages %}{{ message.content }}{% endfor %}",
    )
    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=2_048,
        max_position_embeddings=4_096,
        tie_word_embeddings=True,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)


def run_ours(
    model: Path, prompt: int, group: int, beta: float, steps: int, *, recompute: bool = False
) -> list[float]:
    """Processor seconds of each step."""
    from pivotune.core.protocols import Environment
    from pivotune.core.types import Completion, Message, Task, Turn, Verdict
    from pivotune.models.policy import load_policy
    from pivotune.models.sampler import TorchSampler
    from pivotune.train.losses import LossConfig
    from pivotune.train.objective import Materials
    from pivotune.train.objectives.local_grpo import LocalGrpo, LocalGrpoConfig
    from pivotune.train.trainer import TrainConfig, train

    class TokenSum:
        name = version = "token-sum"
        needs_environment = False

        def verify(self, _turn: Turn, done: Completion, _at: Environment | None) -> Verdict:
            return Verdict(reward_of(done.token_ids), "token sum")

    policy = load_policy(model, device="cpu")
    # Like TRL's, it is there before memory is measured.
    reference = load_policy(model, device="cpu") if beta else None
    task = Task("random", "random")
    turns = [
        Turn(str(i), str(i), task, 0, (Message("user", text),), (), Message("assistant", "a"))
        for i, text in enumerate(prompt_texts(prompt))
    ]
    materials = Materials(sampler=TorchSampler(policy), turns=turns, verifier=TokenSum())
    objective = LocalGrpo(materials, LocalGrpoConfig(batch=PROMPTS, group=group, max_tokens=ACTION))
    config = TrainConfig(
        steps=steps,
        learning_rate=LEARNING_RATE,
        warmup_steps=0,
        checkpoint_every=steps,
        token_budget=prompt + group * ACTION,
        recompute=recompute,
        loss=LossConfig(beta=beta),
    )
    start_measuring()
    stamps = [time.process_time()]
    with tempfile.TemporaryDirectory() as folder:
        train(
            policy,
            objective,
            config,
            Path(folder),
            reference=reference,
            on_step=lambda _metrics: stamps.append(time.process_time()),
        )
    # The last step also writes the checkpoint and the policy.
    return [after - before for before, after in pairwise(stamps[:-1])]


def run_trl(
    model: Path, prompt: int, group: int, beta: float, steps: int, rows: int
) -> list[float]:
    """Processor seconds of each step."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    stamps: list[float] = []

    class Stamps(TrainerCallback):
        def on_step_end(self, *_args: Any, **_more: Any) -> None:
            stamps.append(time.process_time())

    def reward(completion_ids: list[list[int]], **_more: Any) -> list[float]:
        return [reward_of(ids) for ids in completion_ids]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=PROMPTS * group // rows,
            num_generations=group,
            max_completion_length=ACTION,
            max_steps=steps,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            beta=beta,
            temperature=1.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_steps=1_000,
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=str(model),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompt_texts(prompt)}),
            processing_class=AutoTokenizer.from_pretrained(model),
            callbacks=[Stamps()],
        )
        start_measuring()
        stamps.append(time.process_time())
        trainer.train()
    return [after - before for before, after in pairwise(stamps)]


BASELINE: list[int] = []


def start_measuring() -> None:
    """Models and libraries are loaded: what the process holds now is not counted."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    BASELINE.append(pages * resource.getpagesize())


def measure_here(arguments: argparse.Namespace) -> None:
    """One side of one setting; the result as a line of JSON."""
    common = (arguments.model, arguments.prompt, arguments.group, arguments.beta, arguments.steps)
    if arguments.side == "trl":
        steps = run_trl(*common, arguments.rows)
    else:
        steps = run_ours(*common, recompute=arguments.side == "recompute")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - BASELINE[0]
    print(json.dumps({"seconds": statistics.median(steps[1:] or steps), "bytes": peak}))


def measure(
    side: str, model: Path, prompt: int, group: int, beta: float, *, steps: int, rows: int = 0
) -> Any:
    """Seconds a step and peak bytes, from a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--model", str(model)]
    for name, value in (("prompt", prompt), ("group", group), ("beta", beta), ("rows", rows)):
        command += [f"--{name}", str(value)]
    done = subprocess.run(
        [*command, "--steps", str(steps)], stdout=subprocess.PIPE, check=True, env=os.environ
    )
    return json.loads(done.stdout.splitlines()[-1])


def find_rows(model: Path) -> int:
    """TRL's fastest micro-batch, from one step each."""
    swept = {rows: measure("trl", model, 512, 8, 0.0, steps=1, rows=rows) for rows in TRL_ROWS}
    print("TRL's micro-batch, one step over 4 x 8 rows of 512")
    for rows, found in swept.items():
        print(
            f"{rows:9d} rows {found['seconds']:7.1f} s {found['bytes'] / 1e6:7.0f} MB", flush=True
        )
    return min(swept, key=lambda rows: swept[rows]["seconds"])


def compare_all(model: Path, settings: Sequence[tuple[int, int, float]]) -> None:
    rows = find_rows(model)
    head = ("P", "G", "beta", "side", "ours", "TRL", "ratio", "ceiling", "ours MB", "TRL MB")
    print("".join(f"{word:>10}" for word in (*head, "memory")))
    results = []
    for prompt, group, beta in settings:
        steps = 4 if prompt == 512 else 1
        theirs = measure("trl", model, prompt, group, beta, steps=steps, rows=rows)
        ceiling = group * (prompt + ACTION) / (prompt + group * ACTION)
        for side in ("ours", "recompute"):
            # Our last step also writes the policy and is left out.
            ours = measure(side, model, prompt, group, beta, steps=5)
            ratio = theirs["seconds"] / ours["seconds"]
            if side == "ours":
                results.append((ratio, prompt, group, beta, ours, theirs))
            print(
                f"{prompt:10d}{group:10d}{beta:10.2f}{side:>10}{ours['seconds']:9.2f}s"
                f"{theirs['seconds']:9.2f}s{ratio:10.1f}{ceiling:10.1f}"
                f"{ours['bytes'] / 1e6:10.0f}{theirs['bytes'] / 1e6:10.0f}"
                f"{ours['bytes'] / theirs['bytes']:10.0%}",
                flush=True,
            )
    ratio, prompt, group, beta, ours, theirs = min(results, key=lambda each: each[0])
    line = {
        "name": "local_grpo",
        "ours": round(ours["seconds"], 3),
        "theirs": round(theirs["seconds"], 3),
        "ratio": round(ratio, 2),
        "unit": "processor seconds a step",
        "setting": f"lowest ratio of all: P={prompt} G={group} C={ACTION} beta={beta}, 4 prompts,"
        f" 5 M parameters, float32, one thread, TRL micro-batch of {rows} rows",
    }
    print(json.dumps(line))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--side", choices=["ours", "recompute", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    for name in ("prompt", "group", "rows", "steps"):
        parser.add_argument(f"--{name}", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--beta", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        measure_here(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        build_model(Path(folder))
        compare_all(Path(folder), SETTINGS[:2] if arguments.quick else SETTINGS)


if __name__ == "__main__":
    main()
