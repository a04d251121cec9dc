"""Tiny tokenizers and random models, built in the tests that need them."""

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pivotune.models.policy import Policy

CHATML = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role != 'system' or not loop.first %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}
{{- call.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def byte_tokenizer(
    template: str | None = CHATML, *, special: tuple[str, ...] = ("<|im_start|>", "<|im_end|>")
) -> PreTrainedTokenizerFast:
    """One token a byte and the special ones; the last of `special` is EOS."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=special[-1],
        pad_token=special[-1],
        extra_special_tokens=list(special[:-1]),
        chat_template=template,
    )


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
    "initializer_range": 0.2,
}
FAMILIES: dict[str, Any] = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
}


def tiny_model(family: str = "qwen3", *, vocabulary: int = 260, seed: int = 0, **more: Any) -> Any:
    """A random model; its weights are wide enough that distributions are far from uniform."""
    config_class, model_class, own = FAMILIES[family]
    config = config_class(**{**SIZES, "vocab_size": vocabulary, **own, **more})
    config.eos_token_id = config.pad_token_id = config.bos_token_id = None
    torch.manual_seed(seed)
    return model_class(config).eval()


def tiny_policy(family: str = "qwen3", *, seed: int = 0, **more: Any) -> Policy:
    return Policy(tiny_model(family, seed=seed, **more), byte_tokenizer())
