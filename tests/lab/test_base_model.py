from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from pivotune.core.store import read_json
from pivotune.domains.skills.suite import SKILLS
from pivotune.lab.base_model import BaseCard, BaseConfig, build_base, train_base
from pivotune.lab.measure import MeasureConfig
from pivotune.lab.mixture import MixtureConfig
from pivotune.models.fresh import ModelShape, fresh_policy
from pivotune.models.policy import load_policy

SMALL = BaseConfig(
    mixture=MixtureConfig(games=1, items=1, echo_steps=1),
    shape=ModelShape(hidden=16, layers=1, heads=2, kv_heads=1, intermediate=16),
    tokenizer_steps=3,
    steps=4,
    warmup_steps=1,
    checkpoint_every=1,
)


def weights(folder: Path) -> list[torch.Tensor]:
    return [each.detach() for each in load_policy(folder).model.parameters()]


def test_fresh_weights_depend_on_the_seed_only(tokenizer_folder: Path) -> None:
    state = torch.random.get_rng_state()
    one, same, other = (fresh_policy(SMALL.shape, tokenizer_folder, seed) for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert one.hash == same.hash != other.hash
    model: Any = one.model
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_a_build_that_was_stopped_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    def stop(metrics: dict[str, Any]) -> None:
        if metrics["step"] == 2:
            raise KeyboardInterrupt

    whole = train_base(tmp_path / "whole", SMALL, seed=5)
    with pytest.raises(KeyboardInterrupt):
        train_base(tmp_path / "cut", SMALL, seed=5, on_step=stop)
    cut = train_base(tmp_path / "cut", SMALL, seed=5)
    pairs = zip(weights(whole.policy), weights(cut.policy), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)


def test_the_shipped_model_is_what_the_defaults_build() -> None:
    folder = Path(str(files("pivotune"))) / "lab" / "assets" / "base"
    card = read_json(folder / "card.json", BaseCard)
    assert card.config == BaseConfig()
    assert card.seed == 0
    assert card.parameters == sum(each.numel() for each in weights(folder))
    assert sum(each.stat().st_size for each in folder.iterdir()) < 8_000_000
    assert 0.15 < card.measured.household["1.0"].won.share < 0.4
    assert min(found.share for found in card.measured.skills["1.0"].values()) >= 0.6
    assert len(card.measured.skills["1.0"]) == 8
    assert card.measured.hints.share > 0.9


def test_a_build_writes_a_model_with_its_card(tmp_path: Path) -> None:
    few = MeasureConfig(games=2, items=2, helpers=3, temperatures=(1.0,), skill_temperatures=(0.0,))
    card = build_base(tmp_path, SMALL, measure=few)
    assert read_json(tmp_path / "model" / "card.json", BaseCard) == card
    assert card.measured.household["1.0"].won.n == 2
    assert set(card.measured.skills["0.0"]) == set(SKILLS)
    assert card.measured.hints.n == 3
    assert sum(card.composition.values()) == pytest.approx(1.0, abs=0.01)
    assert set(card.composition) == {"echoes", "household", "hints", "judging", "skills"}
    assert card.parameters == sum(each.numel() for each in weights(tmp_path / "model"))
