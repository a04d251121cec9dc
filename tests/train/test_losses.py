import math

import pytest
import torch

from pivotune.train.losses import (
    FlatTargets,
    FlatTokens,
    LossConfig,
    LossSums,
    clipped_surrogate,
    importance_weight,
    kl_estimate,
    micro_batch_loss,
    named_forward_kl,
    sequence_mean,
)

PI = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REF = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)


def tokens(**given):
    """Policy-gradient tokens unless told otherwise; every list has one entry a token."""
    count = len(next(iter(given.values())))
    base = {
        "pg_weights": [1.0 / count] * count,
        "ce_weights": [0.0] * count,
        "advantages": [0.0] * count,
        "sampled": [math.nan] * count,
    }
    tensors = {name: torch.tensor(value) for name, value in {**base, **given}.items()}
    return FlatTokens(**{"rows": torch.zeros(count, dtype=torch.long), **tensors})


def expectation_gradient(kind):
    """d/dlogits of the expected estimate at samples of pi, the samples held fixed."""
    logits = PI.log().requires_grad_()
    estimate = kl_estimate(torch.log_softmax(logits, 0), REF.log(), kind)
    (PI * estimate).sum().backward()
    return logits.grad


def divergence_gradient(divergence):
    logits = PI.log().requires_grad_()
    divergence(torch.softmax(logits, 0)).backward()
    return logits.grad


def reverse_kl(p):
    return (p * (p / REF).log()).sum()


def forward_kl(p):
    return (REF * (REF / p).log()).sum()


def test_estimators_at_one_token():
    # x = log ref - log pi = log 2
    pi, ref = torch.tensor([math.log(0.25)]), torch.tensor([math.log(0.5)])
    x = math.log(2)
    assert kl_estimate(pi, ref, "k1").item() == pytest.approx(-x)
    assert kl_estimate(pi, ref, "k2").item() == pytest.approx(x * x / 2)
    assert kl_estimate(pi, ref, "k3").item() == pytest.approx(2 - 1 - x)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_estimate_the_reverse_kl(kind):
    expected = 0.5 * math.log(2.5) + 0.3 * math.log(1.5) + 0.2 * math.log(1 / 3)
    assert (PI * kl_estimate(PI.log(), REF.log(), kind)).sum().item() == pytest.approx(expected)


def test_gradient_of_k1_is_zero_in_expectation():
    torch.testing.assert_close(expectation_gradient("k1"), torch.zeros(3, dtype=torch.float64))


def test_gradient_of_k2_is_the_reverse_kls():
    torch.testing.assert_close(expectation_gradient("k2"), divergence_gradient(reverse_kl))


def test_gradient_of_k3_is_the_forward_kls():
    # the forward KL's gradient in the logits is pi - ref
    torch.testing.assert_close(expectation_gradient("k3"), PI - REF)
    torch.testing.assert_close(expectation_gradient("k3"), divergence_gradient(forward_kl))


def test_cross_entropy_under_the_teacher_is_the_forward_kl_and_not_the_reverse():
    logits = PI.log().requires_grad_()
    flat = tokens(pg_weights=[0.0] * 3, ce_weights=REF.tolist())
    micro_batch_loss(torch.log_softmax(logits, 0), flat, LossConfig())[0].backward()
    torch.testing.assert_close(logits.grad, PI - REF, atol=1e-7, rtol=0)
    assert not torch.allclose(logits.grad, divergence_gradient(reverse_kl), atol=1e-3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 1.0, -1.28, 0.0),  # clipped above at 1 + 0.28
        (1.5, -1.0, 1.5, 1.0),  # a bad action that became likelier is pushed back in full
        (0.5, 1.0, -0.5, -1.0),
        (0.5, -1.0, 0.8, 0.0),  # clipped below at 1 - 0.2
        (1.25, 1.0, -1.25, -1.0),  # inside the wider upper side
    ],
)
def test_the_clip_is_asymmetric(ratio, advantage, loss, slope):
    w = torch.tensor([ratio], requires_grad=True)
    value = clipped_surrogate(w, torch.tensor([advantage]), 0.2, 0.28)
    value.sum().backward()
    assert value.item() == pytest.approx(loss)
    assert w.grad.item() == pytest.approx(slope)


def test_ratio_one_gives_the_plain_policy_gradient():
    logprobs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    flat = tokens(advantages=[1.0, -0.5, 2.0])
    loss, sums = micro_batch_loss(logprobs, flat, LossConfig())
    loss.backward()
    assert loss.item() == pytest.approx(-2.5 / 3)
    torch.testing.assert_close(logprobs.grad, -torch.tensor([1.0, -0.5, 2.0]) / 3)
    assert sums.ratio / sums.tokens == 1.0
    assert sums.clipped == 0


def test_equal_rewards_give_exactly_zero_gradient():
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    flat = tokens(advantages=[0.0, 0.0], sampled=[-1.5, -1.0])
    micro_batch_loss(logprobs, flat, LossConfig())[0].backward()
    assert logprobs.grad.tolist() == [0.0, 0.0]


def test_clip_fraction_counts_tokens_without_gradient():
    sampled = [-1.0] * 4
    now = torch.log(torch.tensor([1.5, 1.5, 0.5, 0.5])) - 1.0
    flat = tokens(advantages=[1.0, -1.0, 1.0, -1.0], sampled=sampled)
    now.requires_grad_()
    loss, sums = micro_batch_loss(now, flat, LossConfig())
    loss.backward()
    assert sums.clipped == 2
    assert (now.grad == 0).tolist() == [True, False, False, True]
    assert sums.ratio_max == pytest.approx(1.5)
    assert sums.ratio / sums.tokens == pytest.approx(1.0)


def test_a_huge_ratio_gives_no_nan():
    logprobs = torch.tensor([-0.01, -0.01], requires_grad=True)
    flat = tokens(advantages=[1.0, -1.0], sampled=[-200.0, -200.0])
    loss, _ = micro_batch_loss(logprobs, flat, LossConfig())
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()


def test_sequence_ratio_is_the_geometric_mean_of_its_row():
    config = LossConfig(ratio="sequence", clip_low=10.0, clip_high=10.0)
    logprobs = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    flat = tokens(
        advantages=[1.0, 1.0, 1.0],
        sampled=[-1.2, -0.9, -1.5],
        pg_weights=[1.0, 1.0, 1.0],
        rows=[0, 0, 1],
    )
    loss, _ = micro_batch_loss(logprobs, flat, config)
    loss.backward()
    first, second = math.exp((0.2 - 0.1) / 2), math.exp(0.5)
    assert loss.item() == pytest.approx(-(2 * first + second))
    torch.testing.assert_close(logprobs.grad, -torch.tensor([first, first, second]))


def test_sequence_mean_leaves_other_tokens_out():
    values = torch.tensor([1.0, 3.0, 100.0, 7.0])
    mask = torch.tensor([True, True, False, True])
    found = sequence_mean(values, torch.tensor([0, 0, 0, 1]), mask)
    assert found.tolist() == [2.0, 2.0, 2.0, 7.0]


def test_importance_weight_is_cut_above_only():
    old = torch.log(torch.tensor([4.0, 0.5, 1.0]))
    sampled = torch.tensor([0.0, 0.0, math.nan])
    torch.testing.assert_close(importance_weight(old, sampled, 2.0), torch.tensor([2.0, 0.5, 1.0]))


def test_importance_cap_takes_the_ratio_to_the_trainers_own_policy():
    logprobs = torch.log(torch.tensor([0.5])).requires_grad_()
    flat = tokens(advantages=[1.0], sampled=[math.log(0.4)])
    loss, sums = micro_batch_loss(logprobs, flat, LossConfig(importance_cap=2.0))
    loss.backward()
    assert sums.ratio_max == 1.0
    assert loss.item() == pytest.approx(-1.25)
    assert logprobs.grad.item() == pytest.approx(-1.25)


def test_kl_term_adds_beta_times_the_estimate():
    logprobs = torch.log(torch.tensor([0.25]))
    flat = tokens(advantages=[0.0], reference=[math.log(0.5)])
    loss, sums = micro_batch_loss(logprobs, flat, LossConfig(beta=0.1))
    assert loss.item() == pytest.approx(0.1 * (1 - math.log(2)))
    assert sums.kl == pytest.approx(1 - math.log(2))


def test_cross_entropy_weights_may_have_any_sign():
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    flat = tokens(pg_weights=[0.0, 0.0], ce_weights=[0.5, -0.25])
    loss, sums = micro_batch_loss(logprobs, flat, LossConfig())
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * 1 - 0.25 * 2)
    assert logprobs.grad.tolist() == [-0.5, 0.25]
    assert (sums.ce_tokens, sums.ce) == (2, 3.0)


def test_sums_add_over_micro_batches():
    added = LossSums(1, 2.0, 2.0, 0, 0.5) + LossSums(3, 3.0, 1.5, 1, 0.25, 4, 8.0)
    assert added == LossSums(4, 5.0, 2.0, 1, 0.75, 4, 8.0)


def divergence(teacher, student):
    """Over a whole vocabulary, with plain loops."""
    return sum(p * math.log(p / q) for p, q in zip(teacher, student, strict=True) if p > 0)


def test_forward_kl_of_named_tokens_and_a_tail():
    teacher, student = [0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]
    whole = named_forward_kl(torch.tensor([student]).log(), torch.tensor([teacher]))
    assert float(whole) == pytest.approx(divergence(teacher, student), rel=1e-5)
    named = named_forward_kl(torch.tensor([student[:2]]).log(), torch.tensor([teacher[:2]]))
    merged = divergence([0.5, 0.3, 0.2], [0.1, 0.2, 0.7])
    assert float(named) == pytest.approx(merged, rel=1e-5)
    assert merged < divergence(teacher, student)
    # A probability of 0 fills up a row, whatever token stands there.
    filled = named_forward_kl(
        torch.tensor([[*student[:2], 0.9]]).log(), torch.tensor([[0.5, 0.3, 0.0]])
    )
    assert float(filled) == pytest.approx(merged, rel=1e-5)


def test_the_gradient_of_forward_kl_is_student_minus_teacher():
    logits = torch.tensor([[0.2, -0.4, 1.0, 0.1]], requires_grad=True)
    teacher = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    named_forward_kl(logits.log_softmax(-1), teacher).sum().backward()
    expected = logits.detach().softmax(-1) - teacher
    torch.testing.assert_close(logits.grad, expected, atol=1e-5, rtol=1e-4)


def test_matched_tokens_have_their_weights():
    targets = FlatTargets(torch.tensor([0.5, 0.0]), torch.tensor([[0.5, 0.3], [1.0, 0.0]]))
    student = torch.tensor([[0.1, 0.2], [0.3, 0.3]]).log()
    zeros = torch.zeros(2)
    tokens = FlatTokens(
        zeros, zeros, zeros, torch.full((2,), torch.nan), torch.zeros(2, dtype=int), targets=targets
    )
    loss, sums = micro_batch_loss(torch.zeros(2), tokens, LossConfig(), student)
    merged = divergence([0.5, 0.3, 0.2], [0.1, 0.2, 0.7])
    assert float(loss) == pytest.approx(0.5 * merged, rel=1e-5)
    assert (sums.forward_kl_tokens, sums.forward_kl) == (1, pytest.approx(merged, rel=1e-5))
