import msgspec
import pytest

from pivotune.core.errors import RecipeError
from pivotune.core.types import Message, Task, Trajectory, Turn, Verdict
from pivotune.train.objectives import load_objective
from pivotune.train.objectives.local_grpo import LocalGrpo, LocalGrpoConfig
from pivotune.train.objectives.mixed import Mixed, MixedConfig, part_of
from train.playground import SMALL, materials, same_trees, tasks, trained_tokens

TRAJECTORIES = [
    Trajectory(
        f"e{i}", domain, tasks(1)[0], (), (Message("user", f"q{i}"), Message("assistant", "yes"))
    )
    for i, domain in enumerate(["toy", "skills", "toy"])
]
SOURCES = {
    "games": {"objective": "episode_grpo", "settings": SMALL},
    "base": {"objective": "sft", "weight": 0.25, "domain": "skills", "settings": {"batch": 1}},
}


def given(**more):
    return materials(trajectories=TRAJECTORIES, load=load_objective, **more)


def mixed(sources, **more):
    return Mixed(given(**more), msgspec.convert({"sources": sources}, MixedConfig))


def test_sources_collect_as_they_would_alone_with_their_weights():
    found = mixed(SOURCES).collect(0)
    game = load_objective("episode_grpo")
    alone = game(part_of(given(), "games", ""), msgspec.convert(SMALL, game.Config)).collect(0)
    count = len(alone.trees)
    assert same_trees(found.trees[:count], alone.trees)
    (sft,) = found.trees[count:]
    assert sft.id == "e1"  # the only one of its domain
    assert {weight for *_, weight, _, _ in trained_tokens([sft])} == {0.25}
    assert found.metrics["games/reward_mean"] == alone.metrics["reward_mean"]
    assert found.cost == alone.cost


def test_the_state_is_that_of_all_sources():
    sources = {"a": {"objective": "episode_grpo", "settings": {**SMALL, "ptgs": {}}}}
    objective = mixed(sources)
    objective.collect(0)
    other = mixed(sources)
    other.load_state(objective.state())
    assert len(other.state()["a"]["ptgs"]) == 3
    assert same_trees(other.collect(1).trees, objective.collect(1).trees)


def test_a_source_keeps_to_its_domain_in_all_it_is_given():
    def turns(*domains):
        made = [Task(f"{domain} {i}", domain) for i, domain in enumerate(domains)]
        return [Turn(t.id, t.id, t, 0, (), (), Message("assistant")) for t in made]

    whole = given(
        turns=turns("toy", "skills"),
        solved=turns("skills", "toy", "toy"),
        candidates=turns("skills", "skills", "toy"),
    )
    own = part_of(whole, "a", "skills")
    assert [len(each) for each in (own.turns, own.solved, own.candidates)] == [1, 1, 2]
    assert [each.id for each in own.trajectories] == ["e1"]
    assert (own.tasks, own.replay) == ([], [])


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ({}, "needs sources"),
        ({"a": {"objective": "sft", "settings": {"batch": 0}}}, "batch starts at 1"),
        ({"a": {"objective": "episode_grpo", "settings": {"batch": 0}}}, "batch starts at 1"),
        ({"a": {"objective": "sft", "weight": 0.0}}, "weights are above 0"),
        ({"a": {"objective": "grpo"}}, "no such objective"),
        ({"a": {"objective": "sft", "settings": {"bach": 3}}}, "bach"),
        ({"a": {"objective": "sft", "settings": {"batch": "x"}}}, "source 'a'"),
    ],
)
def test_mixtures_that_cannot_be_meant(sources, problem):
    with pytest.raises(RecipeError, match=problem):
        mixed(sources)


class Picky:
    """Turn 0 and 1 are always accepted; the others by the first byte."""

    name, version, needs_environment = "picky", "1", False

    def verify(self, turn, completion, environment):
        easy = turn.id in ("t0", "t1")
        return Verdict(float(easy or completion.token_ids[0] % 2 == 0), "")


def test_dead_groups_are_replaced_within_the_bound():
    turns = [
        Turn(f"t{i}", "t", tasks(1)[0], 0, (Message("user", str(i)),), (), Message("assistant"))
        for i in range(6)
    ]
    pool = materials(turns=turns, verifier=Picky())

    def collect(rounds):
        settings = LocalGrpoConfig(batch=6, group=6, max_tokens=2, refill=rounds)
        return LocalGrpo(pool, settings).collect(0)

    assert collect(3).metrics["groups"] == 6  # nothing is left to take
    settings = [LocalGrpoConfig(batch=2, group=6, max_tokens=2, refill=r) for r in (0, 4)]
    small = [LocalGrpo(pool, each) for each in settings]
    for step in range(3):
        plain, filled = (each.collect(step) for each in small)
        live = [c.metrics["live_share"] * c.metrics["groups"] for c in (plain, filled)]
        assert plain.metrics["groups"] == 2
        assert live[1] == pytest.approx(2) or filled.metrics["groups"] == 6
        assert filled.cost.rollout_turns == 6 * filled.metrics["groups"]
        assert live[0] <= live[1]
