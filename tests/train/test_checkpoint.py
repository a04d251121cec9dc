import pytest
import torch

from pivotune.core.errors import StoreError
from pivotune.core.types import Cost
from pivotune.train.checkpoint import (
    TrainState,
    load_checkpoint,
    load_state,
    recover_folder,
    replace_folder,
    save_checkpoint,
    trained_parameters,
)
from tiny_models import tiny_model

STATE = TrainState(3, "settings", {"seen": [1, 2]}, {"train": Cost(trained_tokens=5)}, 2, 0.5)


def trained(seed=0, steps=2):
    model = tiny_model(hidden_size=16, num_hidden_layers=1, seed=seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(steps):
        model(torch.arange(5)[None]).logits.square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return model, optimiser


def write(text):
    return lambda folder: (folder / "file").write_text(text)


def test_a_checkpoint_holds_weights_moments_and_state(tmp_path):
    model, optimiser = trained()
    save_checkpoint(tmp_path / "last", model, optimiser, STATE)
    other, fresh = trained(seed=1, steps=0)
    assert load_state(tmp_path / "last") == STATE
    load_checkpoint(tmp_path / "last", other, fresh)
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    for mine, theirs in pairs:
        assert torch.equal(mine, theirs)
        for name, value in optimiser.state[mine].items():
            assert torch.equal(value, fresh.state[theirs][name])
    assert sorted(path.suffix for path in (tmp_path / "last").iterdir()) == [
        ".json",
        ".safetensors",
        ".safetensors",
    ]


def test_only_trained_parameters_are_stored(tmp_path):
    model, optimiser = trained(steps=0)
    kept = "model.norm.weight"
    for name, each in model.named_parameters():
        each.requires_grad_(name == kept)
    save_checkpoint(tmp_path / "last", model, optimiser, STATE)
    assert list(trained_parameters(model)) == [kept]
    assert (tmp_path / "last" / "weights.safetensors").stat().st_size < 500


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    model, optimiser = trained()
    save_checkpoint(tmp_path / "last", model, optimiser, STATE)
    other = tiny_model(hidden_size=32)
    with pytest.raises(StoreError, match="another model"):
        load_checkpoint(tmp_path / "last", other, torch.optim.AdamW(other.parameters()))


def test_a_damaged_checkpoint_is_named(tmp_path):
    model, optimiser = trained()
    save_checkpoint(tmp_path / "last", model, optimiser, STATE)
    (tmp_path / "last" / "weights.safetensors").write_bytes(b"torn")
    with pytest.raises(StoreError, match="damaged checkpoint"):
        load_checkpoint(tmp_path / "last", model, optimiser)


def test_no_checkpoint(tmp_path):
    assert load_state(tmp_path / "last") is None


def test_a_full_disk_leaves_the_old_folder(tmp_path):
    replace_folder(tmp_path / "a", write("old"))

    def full(folder):
        (folder / "file").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        replace_folder(tmp_path / "a", full)
    assert (tmp_path / "a" / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("killed", ["while writing", "after moving the old one", "before clean-up"])
def test_killed_while_replacing(tmp_path, killed):
    """The three states that a kill can leave behind."""
    folder, old, part = (tmp_path / name for name in ("a", ".a.old", ".a.part"))
    for path, text in {
        "while writing": [(folder, "old"), (part, "torn")],
        "after moving the old one": [(old, "old"), (part, "new")],
        "before clean-up": [(folder, "new"), (old, "old")],
    }[killed]:
        path.mkdir()
        write(text)(path)
    recover_folder(folder)
    expected = "new" if killed == "before clean-up" else "old"
    assert (folder / "file").read_text() == expected
    replace_folder(folder, write("next"))
    assert (folder / "file").read_text() == "next"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
