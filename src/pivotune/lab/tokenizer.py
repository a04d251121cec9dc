"""The lab's tokenizer: byte-level BPE over the mixture's own words, and its chat template.

What makes an action cheap: every digit is a token of its own, and the JSON around an argument
(`act{"command": "`) is one piece that merges into one token. Written as an ordinary Hugging
Face folder, so that nothing downstream knows where it comes from.
"""

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pivotune.core.store import write_atomic, write_json
from pivotune.core.types import Message, ToolSpec
from pivotune.domains.skills.hints import describe_action

PAD, END, ASSISTANT = "<|pad|>", "<|end|>", "<|assistant|>"
SPECIAL_TOKENS = (
    PAD,
    END,
    "<|tools|>",
    "<|system|>",
    "<|user|>",
    ASSISTANT,
    "<|tool|>",
    "<tool_call>",
    "</tool_call>",
)
CONTEXT = 2048

_PIECES = "|".join(
    (
        r' ?\w+\{"\w+": "?',  # a call up to its first value
        r'"?, "\w+": "?',  # up to the next value
        r'"?\}',  # its end
        r" ?\p{L}+",
        r" ?\p{N}",
        r" ?[^\s\p{L}\p{N}]+",
        r"\s+",
    )
)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Learn the merges; equal texts in equal order give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def message_texts(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Iterator[str]:
    """The texts that stand between special tokens when a conversation is rendered."""
    yield " ".join(f"{t.name}({', '.join(t.parameters.get('properties', {}))})" for t in tools)
    for message in messages:
        yield message.content
        for call in message.tool_calls:
            yield describe_action(Message("assistant", tool_calls=(call,)))


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    write_atomic(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    write_atomic(folder / "chat_template.jinja", chat_template().encode())
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": PAD,
            "eos_token": END,
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
        },
    )


def chat_template() -> str:
    """The text of the lab's Jinja chat template."""
    asset = resources.files("pivotune.lab").joinpath("assets/chat_template.jinja")
    return asset.read_text(encoding="utf-8")
