import msgspec
import numpy as np

from lab.test_base_model import SMALL
from pivotune.core.store import read_json
from pivotune.lab.measure import MeasureConfig
from pivotune.lab.mixture import draw_conversations, draw_mixture
from pivotune.lab.teacher import (
    TeacherCard,
    TeacherConfig,
    TeacherObjective,
    build_teacher,
    teacher_mixture,
)
from pivotune.models.fresh import fresh_policy
from pivotune.models.policy import load_policy


def test_a_teacher_is_the_base_trained_on_with_a_card(tokenizer_folder, tmp_path):
    base = fresh_policy(SMALL.shape, tokenizer_folder, 0)
    before = base.hash
    few = MeasureConfig(games=1, items=1, helpers=2, temperatures=(1.0,), skill_temperatures=(1.0,))
    config = TeacherConfig(SMALL, steps=2, warmup_steps=1, judged=1)
    card = build_teacher(tmp_path, base, config, measure=few)
    assert read_json(tmp_path / "model" / "card.json", TeacherCard) == card
    assert card.base_hash == before != load_policy(tmp_path / "model").hash
    assert card.measured.household["1.0"].won.n == 1


def test_a_teacher_sees_mistakes_and_is_not_taught_them():
    config = TeacherConfig(steps=5)
    mixture = teacher_mixture(config, seed=3)
    weights = [
        weight
        for step in range(config.steps)
        for each in draw_conversations(msgspec.structs.replace(mixture, items=0), step)
        if each.source == "household"
        for weight in each.action_weights
    ]
    assert set(weights) == {0.0, 1.0}
    assert 0.1 < np.mean(np.array(weights) == 0.0) < 0.7


def test_a_step_has_judged_games_besides(chat):
    config = TeacherConfig(SMALL, judged=3)
    trees = TeacherObjective(chat, config, seed=0).collect(1).trees
    judged = [tree for tree in trees if tree.id.startswith("judged ")]
    assert len(judged) == 3
    for tree in judged:
        (segment,) = tree.segments
        taught = chat.decode(segment.ids[segment.signal.ce_weights > 0].tolist())
        assert taught.startswith(("turn ", "no mistake"))
    mixture = draw_mixture(chat, teacher_mixture(config, seed=0), 1)
    assert [tree.id for tree in trees[:-3]] == [tree.id for tree in mixture]
    for ours, theirs in zip(trees, mixture, strict=False):
        np.testing.assert_array_equal(ours.segments[0].ids, theirs.segments[0].ids)
    others = TeacherObjective(chat, config, seed=0).collect(2).trees
    assert {tuple(tree.segments[0].ids) for tree in judged}.isdisjoint(
        tuple(tree.segments[0].ids) for tree in others
    )
