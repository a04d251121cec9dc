"""A tokenizer that has read a little of the mixture, shared by the tests of the lab."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from pivotune.lab.mixture import MixtureConfig, mixture_texts
from pivotune.lab.tokenizer import save_tokenizer, train_tokenizer
from pivotune.models.chat import ChatFormat


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(train_tokenizer(mixture_texts(MixtureConfig(), 15), 1024), folder)
    return folder


@pytest.fixture(scope="session")
def chat(tokenizer_folder: Path) -> ChatFormat:
    return ChatFormat(AutoTokenizer.from_pretrained(str(tokenizer_folder)))
