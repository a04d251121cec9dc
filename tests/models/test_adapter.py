import math

import pytest
import torch
from torch import nn

from pivotune.core.errors import ModelError
from pivotune.core.protocols import SampleRequest
from pivotune.core.types import Message
from pivotune.models.adapter import adapted_model, frozen_copy, is_adapted, merged_model
from pivotune.models.policy import load_policy
from pivotune.models.sampler import TorchSampler
from tiny_models import tiny_model, tiny_policy

pytest.importorskip("peft")
RANK = 4
IDS = torch.arange(1, 12)[None]


def factors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def moved(model: nn.Module) -> nn.Module:
    """The model with random values in every factor, as after training."""
    torch.manual_seed(5)
    with torch.no_grad():
        for each in factors(model).values():
            each.normal_(std=0.2)
    return model


@torch.no_grad()
def logits(model: nn.Module) -> torch.Tensor:
    return model(IDS).logits


def test_an_adapter_changes_nothing_until_it_is_trained():
    model = tiny_model("llama")
    before = logits(model)
    adapted = adapted_model(model, RANK, seed=1)
    assert torch.equal(logits(adapted), before)
    assert not adapted.training


def test_only_the_factors_of_every_linear_layer_but_the_head_are_trained():
    model = tiny_model("llama")
    linear = [
        each
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear) and "lm_head" not in name
    ]
    expected = sum(RANK * (each.in_features + each.out_features) for each in linear)
    found = factors(adapted_model(model, RANK, seed=1))
    assert len(linear) == 2 * 7
    assert sum(each.numel() for each in found.values()) == expected
    assert all("lora_" in name for name in found)


def test_a_seed_decides_the_factors_and_no_other_random_choice():
    models = [tiny_model("llama") for _ in range(3)]
    torch.manual_seed(3)
    following = torch.rand(4)
    torch.manual_seed(3)
    first, again, other = (
        factors(adapted_model(model, RANK, seed))
        for model, seed in zip(models, (1, 1, 2), strict=True)
    )
    assert torch.equal(torch.rand(4), following)
    for name, each in first.items():
        assert torch.equal(each, again[name])
        assert torch.equal(each, other[name]) == ("lora_B" in name)


def test_merging_adds_the_scaled_product_and_leaves_the_adapted_model():
    adapted = moved(adapted_model(tiny_model("llama"), RANK, seed=1))
    before = logits(adapted)
    merged = merged_model(adapted)
    assert not is_adapted(merged)
    assert torch.allclose(logits(merged), before, atol=1e-5)
    assert not torch.allclose(logits(tiny_model("llama")), before, atol=0.1)
    layer = adapted.get_base_model().model.layers[1].mlp.up_proj
    product = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    expected = tiny_model("llama").model.layers[1].mlp.up_proj.weight + 2 * product
    assert torch.allclose(merged.model.layers[1].mlp.up_proj.weight, expected, atol=1e-6)
    assert is_adapted(adapted)
    assert torch.equal(logits(adapted), before)


def test_a_model_without_an_adapter_is_merged_as_it_is():
    model = tiny_model("llama")
    assert merged_model(model) is model


def test_an_adapted_policy_is_written_out_as_an_ordinary_model(tmp_path):
    policy = tiny_policy("llama")
    start = policy.hash
    policy.add_adapter(RANK, seed=1)
    assert policy.hash != start
    moved(policy.model)
    policy.mark_changed()
    policy.save(tmp_path / "out")
    loaded = load_policy(tmp_path / "out")
    assert not is_adapted(loaded.model)
    assert len(list(loaded.model.named_parameters())) == len(
        list(tiny_model("llama").named_parameters())
    )
    assert torch.allclose(logits(loaded.model), logits(policy.model), atol=1e-5)


def test_an_adapted_policy_samples_as_its_merged_model_does(tmp_path):
    policy = tiny_policy("llama")
    policy.add_adapter(RANK, seed=1)
    moved(policy.model)
    policy.mark_changed()
    policy.save(tmp_path / "out")
    request = SampleRequest(
        messages=(Message("user", "hello"),), tools=(), n=3, temperature=1.0, seed=1, max_tokens=8
    )
    samplers = TorchSampler(policy), TorchSampler(load_policy(tmp_path / "out"))
    assert samplers[0].engine_name == samplers[1].engine_name
    ours, theirs = (sampler.sample([request])[0] for sampler in samplers)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.token_ids == other.token_ids
        assert mine.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_frozen_copy_shares_what_is_not_trained():
    adapted = adapted_model(tiny_model("llama"), RANK, seed=1)
    before = logits(adapted)
    copy = frozen_copy(adapted)
    moved(adapted)
    assert torch.equal(logits(copy), before)
    assert not factors(copy)
    trained = set(factors(adapted))
    for (name, mine), (_, theirs) in zip(
        adapted.named_parameters(), copy.named_parameters(), strict=True
    ):
        assert (mine.data_ptr() == theirs.data_ptr()) == (name not in trained)


def test_a_frozen_copy_of_a_plain_model_is_its_own():
    model = tiny_model("llama")
    before = logits(model)
    copy = frozen_copy(model)
    with torch.no_grad():
        model.model.norm.weight.mul_(math.pi)
    assert torch.equal(logits(copy), before)


def test_a_rank_of_nothing_is_refused():
    with pytest.raises(ModelError, match="rank of at least 1"):
        adapted_model(tiny_model("llama"), 0, seed=1)
