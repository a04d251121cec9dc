"""A study's tables, on two seeds whose figures are small enough to be averaged in the head."""

from pivotune.core.estimate import Estimate
from pivotune.core.types import Cost
from pivotune.evaluate.levels import Reached
from pivotune.evaluate.recovery import RecoveryScore, TeacherScore
from pivotune.lab.study_tables import study_markdown
from pivotune.pipeline.costs import LevelCosts
from pivotune.pipeline.recovery import RecoveryResult
from pivotune.pipeline.summary import Score, Summary
from pivotune.report.data import MethodCurves, Series


def score(success, change):
    return Score(success, success, success, 10, change, change, change, {})


def recovery(rate, right):
    estimate = Estimate(rate, 0.0, 1.0, 4)
    return RecoveryResult(
        episodes=8,
        won=2,
        failed_with_mistake=0.5,
        first_turns=(3,),
        left_out={},
        scores={"grpo": RecoveryScore(estimate, 9.0, 6.0, 4, 32)},
        gold={"grpo": right},
        teachers={"grpo": TeacherScore(8, 5, 10, 0.4, 0.2, None, {}, Cost())},
    )


def summary(seed, success, curve, reached, found=None):
    return Summary(
        seed=seed,
        model="lab",
        in_domain={"base": score(0.2, 0.0), "grpo": score(success, success - 0.2)},
        out_of_domain={"base": score(0.9, 0.0), "grpo": score(0.88, -0.02)},
        pivots=[],
        cost={"train/grpo": Cost(rollout_turns=1000 * seed)},
        curves=(MethodCurves("grpo", "episode_grpo", {"validation": curve}),),
        recovery=found,
        level=LevelCosts(0.4, "grpo", {"grpo": reached}, {}),
    )


def cells(text, row):
    """The cells of the tables' rows with this name."""
    lines = [
        line for line in text.replace("\N{NO-BREAK SPACE}", " ").splitlines() if line[:1] == "|"
    ]
    found = [[each.strip() for each in line.strip("|").split("|")] for line in lines]
    return [each[1:] for each in found if each[0] == row]


def test_means_stand_beside_the_values_of_the_seeds():
    first = Series((0, 6), (0.2, 0.3))
    second = Series((0, 6, 12), (0.2, 0.5, 0.6))
    text = study_markdown(
        [
            summary(1, 0.3, first, None),
            summary(2, 0.5, second, Reached(6, Cost(600, 0, 5000, 0))),
        ]
    )
    scores, curve, level = cells(text, "grpo")
    assert scores[:3] == ["40.0 %", "+20.0", "+10.0 +30.0"]
    assert scores[3:] == ["88.0 %", "−2.0", "−2.0 −2.0", "1,500"]
    assert curve == ["20 %", "40 %", "60 %"]
    assert level == ["1 of 2", "6", "600", "5,000", "0"]
    assert cells(text, "base")[0][:3] == ["20.0 %", "±0.0", "±0.0 ±0.0"]
    assert "Recovery" not in text
    assert "Teachers" not in text


def test_a_level_that_was_never_reached_is_not_a_number():
    curve = Series((0,), (0.2,))
    text = study_markdown([summary(1, 0.3, curve, None)])
    assert cells(text, "grpo")[-1] == ["0 of 1", *["never"] * 4]


def test_recovery_and_teachers_are_there_once_measured():
    curve = Series((0,), (0.2,))
    text = study_markdown(
        [
            summary(1, 0.3, curve, None, recovery(0.25, 0.1)),
            summary(2, 0.3, curve, None, recovery(0.75, 0.3)),
        ]
    )
    _, _, recovered, teacher, _ = cells(text, "grpo")
    assert recovered == ["50.0 %", "25.0 % 75.0 %", "9.0", "6.0", "20.0 %", "64"]
    assert teacher == ["16", "10", "20", "40.0 % 40.0 %", "20.0 % 20.0 %", "undefined undefined"]
