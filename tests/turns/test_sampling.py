import msgspec
import numpy as np
import pytest

from pivotune.core.errors import RecipeError
from pivotune.core.store import read_json, write_json
from pivotune.core.tally import DiscountedTally
from pivotune.core.types import Message, ParseOutcome, Profile, Sample, Task, Verdict
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.rollout import EpisodeLimits
from pivotune.turns.sampling import (
    PosteriorTemperatures,
    PtgsConfig,
    play_with_pilot,
    posterior,
    target_rate,
    tempered,
)
from turns.test_rollout import CountDown, act


def temperatures(steps=10, seed=0, reference=1.0, **config):
    return PosteriorTemperatures(PtgsConfig(**config), reference=reference, steps=steps, seed=seed)


def test_the_target_ramps_geometrically():
    config = PtgsConfig(target_start=0.25, target_end=0.5)
    assert target_rate(0, 5, config) == 0.25
    assert target_rate(2, 5, config) == pytest.approx(0.25 * 2**0.5)
    assert target_rate(4, 5, config) == target_rate(9, 5, config) == 0.5
    assert target_rate(0, 1, config) == 0.25


@pytest.mark.parametrize(
    ("rate", "heat"), [(0.0, 1.0), (0.2, 0.5), (0.4, 0.0), (0.7, -0.5), (1.0, -1.0)]
)
def test_temperature_of_a_success_rate(rate, heat):
    assert tempered(rate, 0.4, 0.8, 1.5) == pytest.approx(0.8 * 1.5**heat)


def test_posterior_and_discounted_counts_by_hand():
    drawn = temperatures(discount=0.5)
    drawn.update("t", [1.0, 0.0, 0.0, None])  # 1 of 3
    drawn.update("t", [1.0, 1.0, 0.0])  # 2 of 3
    assert drawn.tallies["t"] == DiscountedTally(0.5 * 1 + 2, 0.5 * 2 + 1)
    assert posterior(drawn.tallies["t"], 0.25) == (0.5 + 2.5, 1.5 + 2.0)


def test_temperatures_stay_in_their_range_and_follow_outcomes():
    drawn = temperatures(reference=0.7, tau=1.5)
    for _ in range(40):
        drawn.update("easy", [1.0] * 8)
        drawn.update("hard", [0.0] * 8)
    found = [drawn.draw(["easy", "hard", "new"], step) for step in range(200)]
    every = [value for each in found for value in each.values()]
    assert 0.7 / 1.5 <= min(every) <= max(every) <= 0.7 * 1.5
    assert max(each["easy"] for each in found) < 0.7 < min(each["hard"] for each in found)


def test_an_unvisited_key_is_not_neutral_below_one_half():
    drawn = temperatures(steps=1, tau=1.3, target_start=0.25)
    values = list(drawn.draw([str(i) for i in range(4000)], 0).values())
    rng = np.random.default_rng(5)
    rates = rng.beta(0.5, 1.5, 200_000)
    h = np.where(rates <= 0.25, (0.25 - rates) / 0.25, (0.25 - rates) / 0.75)
    assert np.mean(values) == pytest.approx(np.mean(1.3**h), abs=0.01)
    assert np.mean(values) > 1.05


def test_tau_one_is_the_control():
    drawn = temperatures(tau=1.0, reference=0.9)
    drawn.update("a", [0.0] * 8)
    assert set(drawn.draw(["a", "b"], 3).values()) == {0.9}


def test_draws_depend_on_step_key_and_counts_only_and_resume_exactly(tmp_path):
    drawn = temperatures()
    for step in range(5):
        drawn.draw(["a"], step)
        drawn.update("a", [1.0, 0.0, 0.0])
    write_json(tmp_path / "state.json", drawn.state())
    other = temperatures()
    other.load_state(read_json(tmp_path / "state.json", dict))
    assert other.tallies == drawn.tallies
    assert other.draw(["b", "a"], 5) == drawn.draw(["b", "a"], 5)
    assert drawn.draw(["a"], 5) != drawn.draw(["a"], 6)
    assert temperatures(seed=1).draw(["a"], 0) != temperatures(seed=2).draw(["a"], 0)


def profile(name, rewards):
    samples = tuple(
        Sample((1,), (0.0,), Message("assistant"), ParseOutcome.OK, "stop", Verdict(r, ""))
        for r in rewards
    )
    return Profile(name, "", "", "", "", 1.0, 0, 8, 1, Verdict(1.0, ""), samples)


def test_pivots_start_with_their_profiles():
    drawn = temperatures()
    drawn.seed_from([profile("p", [1.0, 0.0, 0.0, None]), profile("q", [None])])
    assert drawn.tallies == {"p": DiscountedTally(1, 2)}


def test_settings_without_a_meaning_are_refused():
    for bad in ({"tau": 0.9}, {"discount": 0.0}, {"target_start": 0.0}, {"target_end": 1.0}):
        with pytest.raises(msgspec.ValidationError, match="ptgs"):
            msgspec.convert(bad, PtgsConfig)
    with pytest.raises(RecipeError, match="temperature above 0"):
        temperatures(reference=0.0)


def mixed_share(tau, success, tasks=120, steps=40, group=8):
    """Share of mixed groups over the last half of a run on a pool that does not learn."""
    rng = np.random.default_rng(7)
    drawn = temperatures(steps=steps, tau=tau)
    base = rng.beta(0.3, 1.2, tasks)
    mixed = []
    for step in range(steps):
        for key, heat in drawn.draw([str(i) for i in range(tasks)], step).items():
            won = rng.random(group) < success(base[int(key)], heat)
            drawn.update(key, won.astype(float).tolist())
            if step >= steps // 2:
                mixed.append(0 < won.sum() < group)
    return np.mean(mixed)


def moved_by_heat(rate, heat):
    """Hard tasks are solved more often when hot, easy ones less: what sampling alone can do."""
    odds = np.log((rate + 1e-3) / (1 - rate + 1e-3))
    return 1 / (1 + np.exp(-odds / heat**3))


def test_more_groups_are_mixed_where_heat_moves_success_and_fewer_where_it_only_hurts():
    assert mixed_share(1.5, moved_by_heat) > mixed_share(1.0, moved_by_heat) + 0.05

    def hurt(rate, heat):
        return rate / max(1.0, heat**6)

    assert mixed_share(1.5, hurt) < mixed_share(1.0, hurt)


def test_a_pilot_is_plain_sampling_and_the_rest_is_tempered():
    tasks = [Task(f"t{i}", "toy", payload={"steps": n}) for i, n in enumerate([2, 9])]

    def play(n, pilot):
        return play_with_pilot(
            ScriptedSampler(act),
            tasks,
            lambda task: CountDown(),
            n=n,
            pilot=pilot,
            target=0.4,
            config=PtgsConfig(tau=1.5),
            reference=1.0,
            seed=0,
            limits=EpisodeLimits(max_turns=3, max_tokens=8),
        )

    won, lost = play(10, 6)
    assert len(won) == len(lost) == 10
    assert {e.reward for e in won} == {1.0}
    heat = [{turn.completion.temperature for e in each for turn in e.turns} for each in (won, lost)]
    assert [len(each) for each in heat] == [2, 2]
    assert min(heat[0]) < 1.0 < max(heat[1])
    assert all(e.turns[0].completion.temperature == 1.0 for e in (*won[:6], *lost[:6]))
