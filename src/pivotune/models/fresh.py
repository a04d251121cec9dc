"""New policies with random weights, for models that are trained from nothing."""

import math
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from pivotune.models.policy import Policy
from pivotune.models.threads import limit_threads


class ModelShape(msgspec.Struct, frozen=True):
    """A Qwen3-architecture model with tied embeddings."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 384
    context: int = 2048
    rope_theta: float = 1000.0
    init_std: float = 0.06
    """The usual 0.02 is meant for wide models: narrow ones learn from it at half the speed."""
    embedding_std: float = 0.5
    """Large beside what the blocks add at first, so that deep layers still see which token it is:
    with 0.06 no model learnt to copy within five million tokens, with 0.5 half a million do."""
    block_scale: float = 0.3
    """Factor on the first weights of what each block adds to the stream."""


def fresh_policy(shape: ModelShape, tokenizer_folder: Path, seed: int) -> Policy:
    """Random weights that depend on the shape and the seed only."""
    limit_threads()
    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_folder))
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=shape.context,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        initializer_range=shape.init_std,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    _scale(model, shape)
    return Policy(model.eval(), tokenizer)


def _scale(model: Any, shape: ModelShape) -> None:
    """Put the first weights to scale; the last norm keeps the first logits at unit spread."""
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(shape.embedding_std / shape.init_std)
        model.model.norm.weight.fill_(1.0 / (shape.embedding_std * math.sqrt(shape.hidden)))
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(shape.block_scale)
            layer.mlp.down_proj.weight.mul_(shape.block_scale)
