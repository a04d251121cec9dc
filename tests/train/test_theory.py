"""The propositions behind pivots, on a tabular softmax in float64.

Our losses are checked against them: the same functions that train a policy are evaluated on
whole populations, with every action weighted by its probability.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pivotune.train.advantages import group_advantages
from pivotune.train.losses import FlatTokens, LossConfig, kl_estimate, micro_batch_loss

PI_0 = torch.tensor([0.35, 0.25, 0.2, 0.15, 0.05], dtype=torch.float64)
GRADED = torch.tensor([0.1, 0.9, 0.4, 0.0, 1.0], dtype=torch.float64)
ACCEPTED = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0], dtype=torch.float64)

distributions = st.lists(st.floats(0.05, 1.0), min_size=5, max_size=5).map(
    lambda w: torch.tensor(w, dtype=torch.float64) / sum(w)
)


def tilted(reward, beta, start=PI_0):
    """pi_beta, proportional to pi_0 exp(r / beta)."""
    return torch.softmax(start.log() + reward / beta, 0)


def variance(pi, reward):
    return float((pi * reward**2).sum() - (pi * reward).sum() ** 2)


PLAIN = LossConfig()


def population_loss_gradient(pi, advantages, config=PLAIN, reference=None):
    """Gradient in the logits of the surrogate over the whole action set, weights pi."""
    logits = pi.log().requires_grad_()
    tokens = FlatTokens(
        pg_weights=pi,
        ce_weights=torch.zeros_like(pi),
        advantages=advantages,
        sampled=pi.log(),
        rows=torch.arange(len(pi)),
        reference=reference,
    )
    micro_batch_loss(torch.log_softmax(logits, 0), tokens, config)[0].backward()
    return logits.grad


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.7, 0.1 + 0.2])
@pytest.mark.parametrize("size", [2, 6, 8])
def test_proposition_3_1_equal_rewards_move_nothing(reward, size):
    group = group_advantages([reward] * size)
    assert group.values.tolist() == [0.0] * size
    pi = torch.full((size,), 1.0 / size, dtype=torch.float64)
    assert not population_loss_gradient(pi, torch.from_numpy(group.values)).any()


def test_proposition_3_1_only_a_kl_term_still_moves_weights():
    zero = torch.zeros(5, dtype=torch.float64)
    reference = torch.softmax(torch.arange(5, dtype=torch.float64), 0)
    config = LossConfig(beta=0.5, kl="k3")
    moved = population_loss_gradient(PI_0, zero, config, reference.log())
    torch.testing.assert_close(moved, 0.5 * (PI_0 - reference))


@pytest.mark.parametrize("reward", [GRADED, ACCEPTED])
@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_theorem_3_2_reward_falls_with_beta_by_variance_over_beta_squared(reward, beta):
    def value(b):
        return float((tilted(reward, b) * reward).sum())

    h = 1e-5
    slope = -(value(beta + h) - value(beta - h)) / (2 * h)
    assert slope == pytest.approx(variance(tilted(reward, beta), reward) / beta**2, rel=1e-7)


@pytest.mark.parametrize("reward", [GRADED, ACCEPTED])
@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_theorem_3_2_population_score_of_our_loss(reward, beta):
    """The surrogate with normalised advantages falls along the path at sqrt(Var) / beta^2."""
    pi = tilted(reward, beta)
    std = math.sqrt(variance(pi, reward))
    advantages = (reward - (pi * reward).sum()) / std
    gradient = population_loss_gradient(pi, advantages)
    path = -reward / beta**2  # d logits / d beta, up to a constant
    assert float(gradient @ path) == pytest.approx(std / beta**2, rel=1e-6)


@given(distributions)
def test_theorem_3_2_natural_gradient_has_the_rewards_deviation_as_fisher_norm(pi):
    fisher = torch.diag(pi) - torch.outer(pi, pi)
    gradient = pi * (GRADED - (pi * GRADED).sum())
    natural = torch.linalg.pinv(fisher, hermitian=True) @ gradient
    norm = math.sqrt(float(natural @ fisher @ natural))
    assert norm == pytest.approx(math.sqrt(variance(pi, GRADED)), rel=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_expected_group_gradient_over_all_groups(size):
    """Groups of our advantages average to (G-1)/G of the policy gradient where std is left out."""
    total = torch.zeros(5, dtype=torch.float64)
    for actions in np.ndindex(*[5] * size):
        group = group_advantages([float(GRADED[a]) for a in actions], scale="none")
        chance = float(PI_0[list(actions)].prod())
        for action, advantage in zip(actions, group.values, strict=True):
            score = torch.nn.functional.one_hot(torch.tensor(action), 5) - PI_0
            total += chance * advantage / size * score
    policy_gradient = PI_0 * (GRADED - (PI_0 * GRADED).sum())
    torch.testing.assert_close(total, (size - 1) / size * policy_gradient)


@given(distributions, st.floats(0.2, 5.0))
def test_theorem_3_3_acceptable_mass_in_closed_form(start, beta):
    rho = float((start * ACCEPTED).sum())
    e = math.exp(1 / beta)
    q = rho * e / ((1 - rho) + rho * e)
    best = tilted(ACCEPTED, beta, start)
    assert float((best * ACCEPTED).sum()) == pytest.approx(q)
    inside = ACCEPTED == 1
    torch.testing.assert_close(best[inside] / q, start[inside] / rho)
    torch.testing.assert_close(best[~inside] / (1 - q), start[~inside] / (1 - rho))


@given(distributions, distributions)
def test_theorem_3_3_it_is_the_only_kl_minimal_distribution_with_that_mass(start, other):
    best = tilted(ACCEPTED, 0.7, start)
    inside = ACCEPTED == 1
    q = float(best[inside].sum())
    rival = torch.where(
        inside, other * q / other[inside].sum(), other * (1 - q) / other[~inside].sum()
    )
    kl = float((rival * (rival / start).log()).sum())
    least = float((best * (best / start).log()).sum())
    assert kl >= least - 1e-12
    if float((rival - best).abs().max()) > 1e-3:
        assert kl > least


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_theorem_3_3_our_regularised_loss_stands_still_at_the_optimum(beta):
    """k2's gradient is the reverse KL's, so reward minus beta KL is stationary at pi_beta."""
    config = LossConfig(beta=beta, kl="k2")
    best = tilted(ACCEPTED, beta)
    zero = torch.zeros(5, dtype=torch.float64)
    gradient = population_loss_gradient(best, ACCEPTED, config, PI_0.log())
    torch.testing.assert_close(gradient, zero, atol=1e-12, rtol=0)
    elsewhere = population_loss_gradient(PI_0, ACCEPTED, config, PI_0.log())
    assert float(elsewhere.abs().max()) > 0.01


@given(distributions, distributions)
def test_k3_is_never_negative_and_estimates_the_reverse_kl(pi, ref):
    estimate = kl_estimate(pi.log(), ref.log(), "k3")
    assert bool((estimate >= 0).all())
    expected = float((pi * (pi / ref).log()).sum())
    assert float((pi * estimate).sum()) == pytest.approx(expected, abs=1e-12)
