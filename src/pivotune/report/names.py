"""Methods and verifiers in words that need no paper: what a name on the page stands for."""

from collections.abc import Sequence

from pivotune.report.data import MethodCurves
from pivotune.report.text import show_line

METHODS = {
    "sft": "imitates the expert's actions",
    "rejection_sft": "imitates those of the base's own tries that were acceptable",
    "local_grpo": "practises single turns, the pivots: of several tries at each, the better ones "
    "become more likely",
    "episode_grpo": "plays whole tasks several times, and the better attempts become more likely",
    "gigpo": "plays whole tasks several times; the better attempts become more likely, and the "
    "better actions in equal situations",
    "skill_grpo": "plays whole tasks with a written hint; the better attempts become more likely",
    "opd": "plays whole tasks, and a teacher rates every word",
    "opsd": "plays whole tasks, and the model itself, told a good action, rates every word",
    "pivot_opd": "plays whole tasks; where a mistake mattered, a teacher shows the better action",
    "mixed": "several ways at once",
}
VERIFIERS = {
    "strict": "the expert's own action, letter by letter",
    "tool_name": "any call of the tool that the expert calls",
    "tool_call": "the expert's own action, however it is written",
    "schema": "any call that the tool accepts",
    "command": "any command that means the same as the expert's",
    "effect": "any action that leaves the world as the expert's does",
    "progress": "any action that brings the task nearer to its end",
    "outcome": "any action from which the task is then solved",
    "judge": "what another model approves of",
}
JUDGED = ("local_grpo", "rejection_sft")
"""Methods whose actions a verifier judges one by one."""


def say_briefly(method: str, curves: Sequence[MethodCurves]) -> str:
    """A method's name, and in brackets the first clause of what it does where that is known."""
    objective = next((each.objective for each in curves if each.method == method), "")
    clause = METHODS.get(objective, "").partition(":")[0].partition(";")[0]
    return f"{show_line(method)} ({clause})" if clause else show_line(method)


def who_is_who(curves: Sequence[MethodCurves]) -> list[tuple[str, str]]:
    """Every method's name and what it does."""
    return [(show_line(each.method), _says(each)) for each in curves]


def _says(curve: MethodCurves) -> str:
    known = METHODS.get(curve.objective)
    if known is None:
        return f"trained by the objective {show_line(curve.objective)}"
    if curve.objective not in JUDGED or not curve.verifier:
        return known
    return f"{known}; acceptable is {say_verifier(curve.verifier)}"


def say_verifier(name: str) -> str:
    """What a verifier accepts, with its name."""
    shown = show_line(name, 40)
    known = VERIFIERS.get(name)
    return f"{known} (verifier {shown})" if known else f"what the verifier {shown} accepts"
