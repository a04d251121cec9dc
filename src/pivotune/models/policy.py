"""A policy: a causal language model of Hugging Face, its tokenizer and its chat format.

`load_policy` takes a model folder, a folder with one GGUF file in it, or a Hub name
("owner/name"), and says clearly what is wrong with anything else.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig
from transformers.utils import logging

from pivotune.core.errors import ModelError, StoreError
from pivotune.models.adapter import adapted_model, merged_model
from pivotune.models.chat import ChatFormat, Thinking
from pivotune.models.lean import keep_only_inputs
from pivotune.models.linear import speed_up_linears
from pivotune.models.threads import limit_threads
from pivotune.models.transcript import TranscriptFormat

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Prompts = Literal["template", "transcript"]
"""What makes the prompts: the model's own chat template, or the base-model harness."""
HASHED_VALUES = 1 << 16


class Policy:
    """The weights that act and are trained. `model` may be wrapped (an adapter)."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        thinking: Thinking = "keep",
        prompts: Prompts = "template",
    ) -> None:
        speed_up_linears(model)
        keep_only_inputs(model)
        self.model = model
        self.tokenizer = tokenizer
        self.chat = (
            TranscriptFormat(tokenizer, more_stop_ids=_eos_ids(model))
            if prompts == "transcript"
            else ChatFormat(tokenizer, more_stop_ids=_eos_ids(model), thinking=thinking)
        )
        self._hash: tuple[int, str] | None = None
        self._changes = 0

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def context_limit(self) -> int:
        """The longest sequence that the model was made for, in tokens."""
        return int(self.config.max_position_embeddings)

    @property
    def vocabulary(self) -> int:
        """Number of logits."""
        return int(self.config.vocab_size)

    @property
    def hash(self) -> str:
        """Identifies the weights: names, shapes and up to 65,536 evenly spaced values of each.

        Kept until a weight is written in place; after writing through `.data`, call
        `mark_changed`.
        """
        version = self._changes + sum(p._version for p in self.model.parameters())
        if self._hash is None or self._hash[0] != version:
            self._hash = (version, hash_weights(self.model))
        return self._hash[1]

    def mark_changed(self) -> None:
        """Say that the weights were changed in a way that torch does not count."""
        self._changes += 1

    def add_adapter(self, rank: int, seed: int) -> None:
        """Train LoRA factors of this rank from here on, the weights themselves stay."""
        self.model = adapted_model(self.model, rank, seed)
        self.mark_changed()

    def save(self, path: Path) -> None:
        """Write an ordinary Hugging Face folder: model, tokenizer, template. All or nothing.

        An adapter is merged into the weights that are written.
        """
        partial = path.with_name(path.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            merged_model(self.model).save_pretrained(partial)
            self.tokenizer.save_pretrained(partial)
            shutil.rmtree(path, ignore_errors=True)
            os.replace(partial, path)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise StoreError(
                f"the model cannot be written: {error.strerror or error}",
                where=str(path),
                fix="free space or choose another folder, then run again",
            ) from error


def load_policy(
    path_or_name: str | Path,
    *,
    dtype: str = "float32",
    device: str | None = None,
    thinking: Thinking = "keep",
    prompts: Prompts = "template",
) -> Policy:
    """Load a policy for inference and training; raises `ModelError` or `TemplateError`.

    `prompts` "transcript" is the base-model harness, for a model without a chat template.
    """
    limit_threads()
    logging.disable_progress_bar()
    if dtype not in DTYPES:
        raise ModelError("unknown dtype", got=dtype, expected=f"one of {', '.join(DTYPES)}")
    source, options = _locate(path_or_name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        if "gguf_file" in options:
            options["quantization_config"] = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=DTYPES[dtype], **options)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        raise ModelError(
            f"the model cannot be loaded: {_first_line(error)}",
            where=str(path_or_name),
            expected="a Hugging Face causal language model with its tokenizer",
        ) from error
    _check_vocabulary(model, tokenizer, str(path_or_name))
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model.eval()
    return Policy(model, tokenizer, thinking=thinking, prompts=prompts)


def load_chat(path_or_name: str | Path, *, thinking: Thinking = "keep") -> ChatFormat:
    """The chat format alone, without weights, for prompts that are answered elsewhere."""
    source, options = _locate(path_or_name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        raise ModelError(
            f"the tokenizer cannot be loaded: {_first_line(error)}",
            where=str(path_or_name),
            expected="the folder or hub name of the model that the endpoint serves",
            fix="or let the endpoint render the messages itself (server.chat=true)",
        ) from error
    try:
        eos = GenerationConfig.from_pretrained(source).eos_token_id
    except (OSError, ValueError):
        eos = None
    ends = eos if isinstance(eos, list) else [] if eos is None else [eos]
    return ChatFormat(tokenizer, more_stop_ids=ends, thinking=thinking)


def convert_gguf(path: Path, out: Path) -> None:
    """Turn a GGUF file (or a folder with one) into an ordinary folder with safetensors."""
    load_policy(path, device="cpu").save(out)


def hash_weights(model: nn.Module) -> str:
    """A 16-digit hash of a model's parameters; see `Policy.hash`."""
    digest = hashlib.blake2b(digest_size=8)
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        step = max(1, -(-flat.numel() // HASHED_VALUES))
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\0".encode())
        digest.update(flat[::step].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _locate(path_or_name: str | Path) -> tuple[str, dict[str, Any]]:
    """What transformers is given: a folder or a name, and its options."""
    path = Path(path_or_name).expanduser()
    where = str(path_or_name)
    if path.is_file() and path.suffix == ".gguf":
        return str(path.parent), {"gguf_file": path.name}
    if path.is_dir():
        if (path / "config.json").is_file():
            return str(path), {}
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return str(path), {"gguf_file": files[0].name}
        raise ModelError(
            "not a model folder: no config.json",
            where=where,
            got=f"{len(files)} GGUF files" if files else "a folder without a model",
            expected="config.json with weights and tokenizer, or exactly one .gguf file",
        )
    looks_like_path = path.is_absolute() or where.startswith((".", "~")) or where.count("/") != 1
    if looks_like_path or path.exists() or path.parent.is_dir():
        raise ModelError(
            "there is no model at this path" if not path.exists() else "not a model folder",
            where=where,
            expected='a model folder, a .gguf file, or a Hub name such as "owner/name"',
        )
    return where, {}


def _check_vocabulary(model: Any, tokenizer: Any, where: str) -> None:
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ModelError(
            "the tokenizer has more tokens than the model has embeddings",
            where=where,
            got=f"{len(tokenizer)} tokens, {rows} embeddings",
            fix="use the tokenizer that belongs to the model, or resize the embeddings and train",
        )


def _eos_ids(model: Any) -> tuple[int, ...]:
    """Every token that the model's own configuration lets end an answer."""
    generation = getattr(model, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    if found is None:
        found = getattr(model.config, "eos_token_id", None)
    if found is None:
        return ()
    return tuple(found) if isinstance(found, (list, tuple)) else (int(found),)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
