"""Training with an adapter: what is stored, what the reference is, and exact resuming."""

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from pivotune.models.policy import load_policy
from pivotune.train.losses import LossConfig
from pivotune.train.trainer import TrainConfig, train
from train.toy import RandomGroups, small_policy

pytest.importorskip("peft")
CONFIG = TrainConfig(
    steps=4,
    learning_rate=1e-2,
    warmup_steps=1,
    checkpoint_every=2,
    token_budget=60,
    loss=LossConfig(beta=0.1),
)


def adapted_policy():
    policy = small_policy()
    policy.add_adapter(2, seed=4)
    return policy


def test_only_factors_move_and_are_stored_and_the_export_is_merged(tmp_path):
    policy, start = adapted_policy(), small_policy()
    result = train(policy, RandomGroups(policy), CONFIG, tmp_path)
    assert result.reference_hash is not None
    stored = load_file(tmp_path / "last" / "weights.safetensors")
    assert stored
    assert all("lora_" in name for name in stored)
    kept = dict(start.model.named_parameters())
    moved = dict(load_policy(result.policy).model.named_parameters())
    assert moved.keys() == kept.keys()
    assert torch.equal(moved["model.embed_tokens.weight"], kept["model.embed_tokens.weight"])
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(moved[name], kept[name])
    assert torch.linalg.matrix_rank(moved[name] - kept[name], rtol=1e-4) == 2


def test_a_resumed_run_ends_with_the_same_factors(tmp_path):
    whole, half = adapted_policy(), adapted_policy()
    train(whole, RandomGroups(whole), CONFIG, tmp_path / "whole")
    train(half, RandomGroups(half), msgspec.structs.replace(CONFIG, steps=2), tmp_path / "parts")
    rest = adapted_policy()
    train(rest, RandomGroups(rest), CONFIG, tmp_path / "parts")
    files = [tmp_path / name / "last" / "weights.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert rest.hash == whole.hash
