"""What names stand for, also those that are not ours."""

from pivotune.report.data import MethodCurves
from pivotune.report.names import METHODS, VERIFIERS, say_briefly, say_verifier, who_is_who
from pivotune.train.objectives import OBJECTIVES
from pivotune.verify.build import VERIFIERS as BUILT


def test_a_verifier_is_named_only_where_it_judges_actions() -> None:
    curves = (
        MethodCurves("a", "sft", {}, verifier="tool_call"),
        MethodCurves("b", "local_grpo", {}, verifier="progress"),
        MethodCurves("c", "my:own", {}, verifier="x"),
    )
    says = dict(who_is_who(curves))
    assert says["a"] == "imitates the expert's actions"
    assert says["b"].endswith(
        "acceptable is any action that brings the task nearer to its end (verifier progress)"
    )
    assert says["c"] == "trained by the objective my:own"
    assert say_briefly("b", curves) == "b (practises single turns, the pivots)"
    assert say_briefly("c", curves) == "c"
    assert say_briefly("base", curves) == "base"


def test_what_is_explained_exists() -> None:
    assert set(METHODS) <= set(OBJECTIVES)
    assert set(VERIFIERS) <= {*BUILT, "progress"}
    assert say_verifier("mine") == "what the verifier mine accepts"
