import msgspec
import pytest

from pivotune.core.types import Completion, Cost, Message, ParseOutcome, Task, Turn, Verdict
from pivotune.train.objectives.local_grpo import LocalGrpo, LocalGrpoConfig
from pivotune.train.refresh import RefreshConfig, Refresher
from pivotune.turns.rollout import Group
from train.playground import materials, same_trees

TASK = Task("t", "toy")
TURNS = [
    Turn(f"t{i}", "t", TASK, 0, (Message("user", str(i)),), (), Message("assistant"))
    for i in range(8)
]


def group(turn, rewards):
    said = Completion((1,), (2,), (0.0,), Message("assistant"), ParseOutcome.OK, "stop", 1.0, "p")
    verdicts = tuple(Verdict(reward, "") for reward in rewards)
    return Group(turn, (said,) * len(rewards), verdicts, Cost(rollout_turns=len(rewards)))


def refresher(**more):
    config = RefreshConfig(**{"window": 2, "turns": 8, "samples": 4, "most": 1, **more})
    return Refresher(config, TURNS[:2], TURNS, seed=0)


def test_it_is_time_when_a_whole_window_is_saturated():
    found = refresher(live_below=0.3, success_above=0.9)
    found.note(0.0, 0.5)
    assert not found.due  # one step is no window
    found.note(0.7, 0.5)
    assert not found.due
    found.note(0.0, 0.95)
    assert not found.due  # live 0.35, success 0.725
    found.note(0.5, 0.9)
    assert found.due  # success 0.925


def test_the_new_pool_is_mixed_and_not_too_easy_and_the_budget_is_charged():
    found = refresher()
    rewards = {
        0: [1, 1, 1, 1],
        1: [0, 0, 0, 0],
        2: [1, 0, 0, 0],
        3: [1, 1, 1, 0],
        4: [1, 0, None, 0],
    }

    def sample(turns, n, seed):
        assert n == 4
        return [group(turn, rewards.get(int(turn.id[1]), [1, 1, 1, 1])) for turn in turns]

    found.note(0.0, 0.0)
    found.note(0.0, 0.0)
    groups, cost = found.renew(sample, step=3)
    assert sorted(turn.id for turn in found.pool) == ["t2", "t4"]
    assert cost.rollout_turns == sum(len(each.verdicts) for each in groups) == 32
    assert not found.due
    found.note(0.0, 0.0)
    found.note(0.0, 0.0)
    assert not found.due  # at most one refresh here


def test_settings_without_a_meaning_are_refused():
    for bad in ({"window": 0}, {"turns": 0}, {"samples": 1}):
        with pytest.raises(msgspec.ValidationError, match="refresh: window and turns"):
            msgspec.convert(bad, RefreshConfig)


def test_the_pool_stays_where_nothing_qualifies():
    found = refresher()
    found.renew(lambda turns, n, seed: [group(turn, [1, 1]) for turn in turns], step=0)
    assert found.pool == TURNS[:2]


class Parity:
    """Turns 0 and 1 are always accepted; the others by the first byte."""

    name, version, needs_environment = "parity", "1", False

    def verify(self, turn, completion, environment):
        easy = turn.id in ("t0", "t1")
        return Verdict(float(easy or completion.token_ids[0] % 2 == 0), "")


def test_local_grpo_goes_on_with_other_pivots_and_resumes_exactly():
    given = materials(turns=TURNS[:2], candidates=TURNS, verifier=Parity())
    config = {
        "batch": 2,
        "group": 4,
        "max_tokens": 1,
        "refresh": {"window": 1, "samples": 4, "most": 1},
        "ptgs": {},
    }
    objective = LocalGrpo(given, msgspec.convert(config, LocalGrpoConfig))
    first, second = objective.collect(0), objective.collect(1)
    assert (first.trees, first.phases) == ([], {})
    assert set(second.phases) == {"refresh"}
    assert second.phases["refresh"].rollout_turns == 8 * 4
    assert second.metrics["pool"] >= 3
    pool = objective.state()["refresh"]["pool"]
    assert not {"t0", "t1"} & set(pool)
    other = LocalGrpo(given, msgspec.convert(config, LocalGrpoConfig))
    other.load_state(msgspec.json.decode(msgspec.json.encode(objective.state())))
    again, unbroken = other.collect(2), objective.collect(2)
    assert same_trees(again.trees, unbroken.trees)
    assert again.metrics == unbroken.metrics
