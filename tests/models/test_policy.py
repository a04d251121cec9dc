from pathlib import Path

import pytest
import torch

from pivotune.core.errors import ModelError, RecipeError, TemplateError
from pivotune.core.types import Message
from pivotune.models.policy import Policy, load_chat, load_policy
from pivotune.models.threads import limit_threads
from tiny_models import byte_tokenizer, tiny_model, tiny_policy


def test_a_saved_policy_is_the_same_policy(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path / "model")
    again = load_policy(tmp_path / "model", device="cpu")
    assert again.hash == policy.hash
    state = (Message("user", "hello"),)
    assert again.chat.render(state, ()) == policy.chat.render(state, ())
    assert again.chat.stop_ids == policy.chat.stop_ids
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


def test_the_hash_follows_the_weights() -> None:
    policy = tiny_policy()
    before = policy.hash
    assert tiny_policy().hash == before
    weight = next(policy.model.parameters())
    with torch.no_grad():
        weight.add_(1.0)
    changed = policy.hash
    assert changed != before
    weight.data.sub_(1.0)
    policy.mark_changed()
    assert policy.hash != changed


@pytest.mark.parametrize("name", ["./none", "no/such/model", "none", "/none"])
def test_a_path_that_is_not_there(name: str) -> None:
    with pytest.raises(ModelError, match="no model at this path"):
        load_policy(name)


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model folder"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_policy(tmp_path)


def test_a_tokenizer_without_template(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    byte_tokenizer(None).save_pretrained(tmp_path)
    with pytest.raises(TemplateError, match="no chat template"):
        load_policy(tmp_path)


def test_more_tokens_than_embeddings(tmp_path: Path) -> None:
    tiny_model(vocabulary=250).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="258 tokens, 250 embeddings"):
        load_policy(tmp_path)


def test_an_unknown_dtype() -> None:
    with pytest.raises(ModelError, match="unknown dtype"):
        load_policy("x", dtype="int3")


def test_stop_ids_are_the_templates_and_the_models() -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = [5, 257]
    assert Policy(model, byte_tokenizer()).chat.stop_ids == (257, 5)


def test_one_thread_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIVOTUNE_THREADS", raising=False)
    assert limit_threads() == torch.get_num_threads() == 1
    monkeypatch.setenv("PIVOTUNE_THREADS", "many")
    with pytest.raises(RecipeError, match="number of threads"):
        limit_threads()


def test_the_chat_format_alone_is_that_of_the_policy(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path / "model")
    whole, alone = load_policy(tmp_path / "model"), load_chat(tmp_path / "model")
    messages = (Message("user", "hello"),)
    assert alone.render(messages, ()) == whole.chat.render(messages, ())
    assert set(alone.stop_ids) == set(whole.chat.stop_ids)
    with pytest.raises(ModelError, match=r"tokenizer cannot be loaded|no model at this path"):
        load_chat(tmp_path / "nothing")
