import json
import math
from dataclasses import replace

import msgspec
import pytest
import torch

from pivotune.core.errors import DataError, ModelError, NumericsError, StoreError
from pivotune.core.types import Cost
from pivotune.models.policy import load_policy
from pivotune.train.losses import LossConfig
from pivotune.train.objective import Collected, Materials
from pivotune.train.objectives.likelihood import Likelihood, LikelihoodConfig
from pivotune.train.trainer import VALIDATED, TrainConfig, Validation, learning_rate, train
from train.toy import RandomGroups, sentence, small_policy

CONFIG = TrainConfig(
    steps=6, learning_rate=1e-2, warmup_steps=2, checkpoint_every=2, token_budget=60
)


class Stop(Exception):
    pass


def lines(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def timeless(run_dir):
    timed = ("seconds_train", "seconds_spent", "tokens_per_second")
    return [{k: v for k, v in line.items() if k not in timed} for line in lines(run_dir)]


def weights(folder):
    return (folder / "last" / "weights.safetensors").read_bytes()


def moments(folder):
    return (folder / "last" / "optimiser.safetensors").read_bytes()


def likelihood(*trees):
    return Likelihood(Materials(draw=lambda step: trees), LikelihoodConfig())


def stop_at(step):
    def on_step(metrics):
        if metrics["step"] == step:
            raise Stop

    return on_step


def run(tmp_path, name, config=CONFIG, **more):
    policy = small_policy()
    objective = more.pop("objective", None) or RandomGroups(policy)
    return train(policy, objective, config, tmp_path / name, **more), policy


def test_likelihood_falls(tmp_path):
    config = msgspec.structs.replace(CONFIG, steps=30, token_budget=1000)
    train(small_policy(), likelihood(sentence("s", range(12), 4)), config, tmp_path)
    losses = [line["ce"] for line in lines(tmp_path)[1:]]
    assert losses[-1] < 0.1 < 3 < losses[0]


@pytest.mark.parametrize(("path", "beta"), [("tree", 0.1), ("plain", 0.0)])
def test_six_steps_are_three_and_three_byte_for_byte(tmp_path, path, beta):
    config = msgspec.structs.replace(CONFIG, path=path, loss=LossConfig(beta=beta))
    run(tmp_path, "whole", config)
    run(tmp_path, "parts", msgspec.structs.replace(config, steps=3))
    _, policy = run(tmp_path, "parts", config)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert weights(parts) == weights(whole)
    assert moments(parts) == moments(whole)
    assert timeless(parts) == timeless(whole)
    assert load_policy(parts / "final").hash == load_policy(whole / "final").hash == policy.hash


@pytest.mark.parametrize("killed_at", [1, 3, 4, 6])
def test_killed_at_any_step_the_run_ends_the_same(tmp_path, killed_at):
    run(tmp_path, "whole")
    with pytest.raises(Stop):
        run(tmp_path, "killed", on_step=stop_at(killed_at))
    policy = small_policy()
    objective = RandomGroups(policy)
    train(policy, objective, CONFIG, tmp_path / "killed")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    assert timeless(tmp_path / "killed") == timeless(tmp_path / "whole")
    assert objective.seen == list(range(6))


def test_a_run_can_be_killed_before_its_first_checkpoint(tmp_path):
    run(tmp_path, "whole")
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "metrics.jsonl").write_text('{"step":0}\n{"step":1}\n{"st')
    run(tmp_path, "killed")
    assert timeless(killed) == timeless(tmp_path / "whole")


def test_a_finished_run_trains_no_more(tmp_path):
    first, _ = run(tmp_path, "run")
    again, _ = run(tmp_path, "run", on_step=stop_at(1))
    assert again.costs == first.costs


def test_metrics_and_costs(tmp_path):
    config = msgspec.structs.replace(CONFIG, loss=LossConfig(beta=0.1))
    result, policy = run(tmp_path, "run", config)
    log = lines(tmp_path / "run")
    assert [line["step"] for line in log] == list(range(7))
    first, last = log[1], log[-1]
    assert first["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert first["clip_fraction"] == 0
    assert abs(first["kl"]) < 1e-6 < last["kl"]
    assert 0 < first["entropy"] < math.log(260)
    assert first["gradient_norm"] > 0
    assert first["reward_mean"] == 0.0
    assert last["cost"]["sampled_tokens"] == 42
    assert result.costs["collect"].sampled_tokens == 42
    assert result.costs["train"].trained_tokens == sum(x["tokens_computed"] for x in log[1:])
    assert result.costs["train"].seconds > 0
    assert result.reference_hash == small_policy().hash != policy.hash


def test_no_reference_is_kept_where_beta_is_zero(tmp_path):
    result, _ = run(tmp_path, "run")
    assert result.reference_hash is None
    assert "kl" not in lines(tmp_path / "run")[1]


def test_a_step_without_trees_leaves_the_weights(tmp_path):
    policy = small_policy()
    before = policy.hash
    result = train(policy, likelihood(), CONFIG, tmp_path)
    assert policy.hash == before
    assert result.costs["train"].trained_tokens == 0
    assert [line.get("updates") for line in lines(tmp_path)] == [None] + [0] * 6


def test_zero_advantages_leave_the_weights_exactly(tmp_path):
    policy = small_policy()
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    nothing = RandomGroups(policy, change=lambda s: replace(s, advantages=0 * s.advantages))
    train(policy, nothing, CONFIG, tmp_path)
    for name, value in policy.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_sampler_and_trainer_must_agree(tmp_path):
    policy = small_policy()
    with pytest.raises(NumericsError, match="first ratio is not 1") as caught:
        train(policy, RandomGroups(policy, shift=0.1), CONFIG, tmp_path)
    assert caught.value.where.startswith("0/")
    assert policy.hash == small_policy().hash


def test_a_wrong_temperature_is_found(tmp_path):
    policy = small_policy()
    wrong = RandomGroups(policy, change=lambda signal: replace(signal, temperature=1.0))
    with pytest.raises(NumericsError, match="first ratio is not 1"):
        train(policy, wrong, CONFIG, tmp_path)


def test_groups_of_different_temperature_start_at_ratio_one(tmp_path):
    policy = small_policy()
    warm, cold = RandomGroups(policy, temperature=1.3), RandomGroups(policy, temperature=0.6)

    class Both:
        state, load_state = warm.state, warm.load_state

        def collect(self, step):
            return Collected([*warm.collect(step).trees, *cold.collect(step).trees])

    train(policy, Both(), CONFIG, tmp_path)
    assert lines(tmp_path)[1]["ratio_max"] == pytest.approx(1.0, abs=1e-5)


def test_importance_cap_allows_a_sampler_that_differs(tmp_path):
    policy = small_policy()
    config = msgspec.structs.replace(CONFIG, loss=LossConfig(importance_cap=2.0))
    train(policy, RandomGroups(policy, shift=-0.1), config, tmp_path)
    assert lines(tmp_path)[1]["ratio_mean"] == 1.0


def test_a_reference_with_the_same_hash_must_have_kl_zero(tmp_path):
    policy = small_policy()

    class Broken:
        hash = policy.hash
        model = small_policy(seed=1).model

    config = msgspec.structs.replace(CONFIG, loss=LossConfig(beta=0.1))
    with pytest.raises(NumericsError, match="KL to the reference"):
        train(policy, RandomGroups(policy), config, tmp_path, reference=Broken())


def test_another_reference_may_be_given(tmp_path):
    policy, other = small_policy(), small_policy(seed=1)
    config = msgspec.structs.replace(CONFIG, loss=LossConfig(beta=0.1))
    result = train(policy, RandomGroups(policy), config, tmp_path, reference=other)
    assert result.reference_hash == other.hash
    assert lines(tmp_path)[1]["kl"] > 0.01


def test_unrecorded_log_probabilities_mean_the_policy_at_the_start_of_the_step(tmp_path):
    config = msgspec.structs.replace(CONFIG, inner_epochs=2, minibatches=2)
    for name, recorded in (("recorded", True), ("unrecorded", False)):
        policy = small_policy()
        train(policy, RandomGroups(policy, recorded=recorded), config, tmp_path / name)
    one, other = lines(tmp_path / "recorded"), lines(tmp_path / "unrecorded")
    for a, b in zip(one[1:], other[1:], strict=True):
        assert a["updates"] == 4
        assert a["ratio_max"] == pytest.approx(b["ratio_max"], rel=1e-2)
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-2, abs=1e-4)
    assert one[1]["ratio_max"] > 1.001


def test_the_best_policy_is_kept(tmp_path):
    scores = {0: 0.1, 2: 0.5, 4: 0.9, 6: 0.9}
    hashes = {}
    policy = small_policy()

    def evaluate(step):
        hashes[step] = policy.hash
        return Validation(scores[step], Cost(rollout_turns=3), {"extra": 1.0})

    config = msgspec.structs.replace(CONFIG, evaluate_every=2)
    result = train(
        policy, RandomGroups(policy), config, tmp_path, evaluate=evaluate, keep_validated=True
    )
    assert (result.best_step, result.best_score) == (4, 0.9)
    assert result.policy == tmp_path / "best"
    assert load_policy(result.policy).hash == hashes[4]
    assert load_policy(tmp_path / "final").hash == hashes[6]
    assert {x["step"]: x["validation"] for x in lines(tmp_path) if "validation" in x} == scores
    assert result.costs["validate"].rollout_turns == 12
    kept = {int(each.name): load_policy(each).hash for each in (tmp_path / VALIDATED).iterdir()}
    assert kept == {step: hashes[step] for step in (2, 4, 6)}


def test_the_policy_of_the_beginning_may_be_the_best(tmp_path):
    policy = small_policy()
    start = policy.hash
    result = train(
        policy, RandomGroups(policy), CONFIG, tmp_path, evaluate=lambda step: Validation(-step)
    )
    assert result.best_step == 0
    assert load_policy(result.policy).hash == start


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    broken = small_policy()
    with torch.no_grad():
        next(broken.model.parameters())[3] = float("nan")
    config = msgspec.structs.replace(CONFIG, path="plain")
    with pytest.raises(NumericsError, match="loss is not finite") as caught:
        train(broken, likelihood(sentence("s", range(5), 2)), config, tmp_path)
    assert caught.value.where == "s"


def test_a_tree_that_cannot_be_trained_is_named(tmp_path):
    with pytest.raises(DataError, match="vocabulary"):
        train(small_policy(), likelihood(sentence("s", [1, 999], 1)), CONFIG, tmp_path)


def test_weights_too_coarse_to_train_are_refused(tmp_path):
    policy = small_policy()
    policy.model.to(torch.bfloat16)
    with pytest.raises(ModelError, match="must be float32"):
        train(policy, likelihood(), CONFIG, tmp_path)


def test_bfloat16_autocast_trains_float32_weights(tmp_path):
    config = msgspec.structs.replace(CONFIG, precision="bfloat16", token_budget=1000)
    policy = small_policy()
    train(policy, likelihood(sentence("s", range(12), 4)), config, tmp_path)
    losses = [line["ce"] for line in lines(tmp_path)[1:]]
    assert losses[-1] < losses[0]
    assert {each.dtype for each in policy.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("path", ["tree", "plain"])
def test_activations_computed_again_change_no_weight(tmp_path, path):
    kept = msgspec.structs.replace(CONFIG, steps=2, path=path)
    again = msgspec.structs.replace(kept, recompute=True)
    loss = LossConfig(beta=0.1)
    _, first = run(tmp_path, "kept", msgspec.structs.replace(kept, loss=loss))
    _, second = run(tmp_path, "again", msgspec.structs.replace(again, loss=loss))
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-7)


def test_another_config_does_not_go_on_in_the_folder(tmp_path):
    run(tmp_path, "run")
    with pytest.raises(StoreError, match="other settings"):
        run(tmp_path, "run", msgspec.structs.replace(CONFIG, learning_rate=0.5))


def test_learning_rate_warms_up_and_holds_or_falls():
    constant = TrainConfig(steps=10, learning_rate=1.0, warmup_steps=4)
    assert [learning_rate(i, constant) for i in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    cosine = msgspec.structs.replace(constant, schedule="cosine")
    assert learning_rate(7, cosine) == pytest.approx(0.5)
    assert learning_rate(9, cosine) == pytest.approx(0.5 * (1 + math.cos(math.pi * 5 / 6)))


def test_only_the_actions_tokens_are_in_the_loss(tmp_path):
    """A prompt of three, an action of two, its last token the stop token that also pads."""
    policy = small_policy()
    tree = sentence("t", [5, 6, 7, 9, 257], 3)
    short = sentence("u", [5, 257], 1)
    logits = policy.model(torch.tensor([[5, 6, 7, 9, 257]])).logits.log_softmax(-1)[0]
    other = policy.model(torch.tensor([[5, 257]])).logits.log_softmax(-1)[0]
    expected = -(logits[2, 9] + logits[3, 257] + other[0, 257]).item() / 3
    config = msgspec.structs.replace(CONFIG, token_budget=1000)
    train(policy, likelihood(tree, short), config, tmp_path)
    first = lines(tmp_path)[1]
    assert first["ce_tokens"] == 3
    assert first["loss"] == pytest.approx(expected, rel=1e-5)
