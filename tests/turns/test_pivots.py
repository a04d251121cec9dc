import pytest

from pivotune.core.errors import NoPivots
from pivotune.core.types import Message, ParseOutcome, Profile, Sample, Verdict
from pivotune.turns.pivots import SelectConfig, mean_histogram, profile_stats, select_pivots


def profile(turn_id, rewards, expert=1.0):
    samples = tuple(
        Sample((1,), (0.0,), Message("assistant"), ParseOutcome.OK, "stop", Verdict(reward, ""))
        for reward in rewards
    )
    head = (turn_id, "prefix", "policy", "v", "1", 1.0, 0, 8, 3, Verdict(expert, ""))
    return Profile(*head, samples=samples)


def chosen(rule, profiles, **options):
    return list(select_pivots(profiles, SelectConfig(rule=rule, **options), seed=0).turn_ids)


def test_the_four_rules():
    profiles = [
        profile("dead", [0.0] * 8),
        profile("solved", [1.0] * 8),
        profile("easy", [1.0] * 7 + [0.0]),
        profile("hard", [1.0] * 2 + [0.0] * 6),
        profile("graded", [0.2, 0.4], expert=0.5),
    ]
    assert chosen("random", profiles) == ["dead", "solved", "easy", "hard", "graded"]
    assert chosen("mixed", profiles) == ["easy", "hard", "graded"]
    assert chosen("adv", profiles) == ["hard", "graded"]
    assert chosen("gap", profiles, gap_above=0.3) == ["hard"]


def test_mixed_is_decided_by_max_and_min_never_by_a_variance():
    sums = profile("sums", [0.1 + 0.2] * 8)
    assert profile_stats(profile("sevens", [0.7] * 6)).mixed is False
    assert profile_stats(sums).mixed is False
    assert profile_stats(profile("one", [0.0] + [0.95] * 7)).mixed is True


def test_invalid_verdicts_leave_n():
    rewards = [None, 1.0, 0.0, None]
    stats = profile_stats(profile("t", rewards))
    assert (stats.n, stats.successes, stats.mean, stats.variance) == (2, 1, 0.5, 0.25)
    assert profile_stats(profile("t", [None])) is None


@pytest.mark.parametrize(
    ("rewards", "advice"),
    [([1.0] * 4, "harder traces"), ([0.0] * 4, "warm it up"), ([0.9, 1.0], "select.rule=mixed")],
)
def test_no_pivots_gives_histogram_advice_and_its_own_exit_code(rewards, advice):
    profiles = [profile(str(i), rewards) for i in range(3)]
    with pytest.raises(NoPivots, match=advice) as caught:
        select_pivots(profiles, SelectConfig(rule="adv"), seed=0)
    assert "0 pivots of 3" in str(caught.value)
    assert caught.value.exit_code == 20


def test_where_no_expert_passes_the_advice_is_about_the_verifier():
    with pytest.raises(NoPivots, match="0 pivots of 0 turns") as found:
        select_pivots([], SelectConfig(), 0)
    assert "no expert action passes its own verifier" in str(found.value)


def test_a_limit_draws_by_the_seed_and_is_counted():
    profiles = [profile(str(i), [0.0, 1.0]) for i in range(20)]
    selection = select_pivots(profiles, SelectConfig(rule="mixed", limit=5), seed=3)
    assert len(selection.turn_ids) == 5
    assert selection.counts["over the limit"] == 15
    assert selection == select_pivots(profiles, SelectConfig(rule="mixed", limit=5), seed=3)


def test_histogram_puts_one_into_the_last_bin():
    assert mean_histogram([profile("a", [1.0]), profile("b", [0.0, 0.25])], bins=4) == [1, 0, 0, 1]
