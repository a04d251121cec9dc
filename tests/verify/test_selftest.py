import itertools
from typing import Any

import pytest

from conftest import shared_data
from pivotune.core.types import Completion, Turn, Verdict
from pivotune.ingest import read_trajectories, split_turns
from pivotune.verify import build_verifier
from pivotune.verify.perturb import CHANGING, PRESERVING
from pivotune.verify.selftest import selftest
from verify.helpers import calls, say, tool, turn

SPEC = tool(
    required=("path",),
    path={"type": "string"},
    command={"type": "string"},
    count={"type": "integer"},
    bit={"type": "integer"},
    mode={"enum": ["fast", "slow"], "default": "fast"},
)
ARGUMENTS = {"path": "src/a/models.py", "command": "ls -la docs", "count": 12, "bit": 1}
TURNS = [
    turn(calls(("f", ARGUMENTS), ("g", {"x": 1})), SPEC, tool("g", x={"type": "integer"})),
    turn(say("go to desk 1"), SPEC),
]


class Says:
    """Answers with the rewards given, in turn."""

    name, version, needs_environment = "says", "1", False

    def __init__(self, *rewards: float | None) -> None:
        self._rewards = itertools.cycle(rewards)

    def verify(self, turn: Turn, completion: Completion, environment: Any) -> Verdict:
        return Verdict(next(self._rewards), "said so")


def test_every_kind_applies_somewhere_and_changes_the_action() -> None:
    for name, kind in (PRESERVING | CHANGING).items():
        made = [(t, action) for t in TURNS if (action := kind(t)) is not None]
        assert made, name
        assert all(action != t.expert for t, action in made), name


def test_the_command_verifier_is_right_on_every_kind() -> None:
    report = selftest(TURNS, build_verifier("command"))
    wrong = {name: kind.examples for name, kind in report.kinds.items() if kind.wrong}
    assert wrong == {}
    assert set(report.kinds) == PRESERVING.keys() | CHANGING.keys()
    assert (report.expert.wrong, report.expert.pairs, report.agreement) == (0, 2, 1.0)


def test_known_blind_spots_are_found() -> None:
    names = selftest(TURNS, build_verifier("tool_name"))
    assert names.kinds["value"].wrong == 1
    assert names.kinds["wrong_tool"].wrong == 0
    assert names.false_reject_rate == 0.0
    strict = selftest(TURNS, build_verifier("strict"))
    assert strict.false_accept_rate == 0.0
    assert strict.false_reject_rate == 1.0
    assert strict.kinds["key_order"].examples[0].reason == "the calls are not the expert's text"
    assert any("key_order: 1 false rejects of 1" in line for line in strict.lines())


def test_what_exact_comparison_misses() -> None:
    """Of the rightly accepted, only the two experts' own actions are exactly equal."""
    report = selftest(TURNS, build_verifier("command"))
    preserving = sum(kind.pairs for kind in report.kinds.values() if kind.preserving)
    assert report.rightly_accepted == preserving + 2
    assert report.strict_misses == preserving


def test_repeatability_of_a_verifier_that_flips() -> None:
    """Answers 1 1 0 over three repeats: one pair of verdicts in three agrees."""
    report = selftest(TURNS[1:], Says(1.0, 1.0, 0.0), repeats=3)
    assert report.agreement == pytest.approx(1 / 3)
    assert selftest(TURNS, Says(1.0)).agreement == 1.0


def test_invalid_is_counted_apart() -> None:
    report = selftest(TURNS, Says(None))
    assert report.expert.invalid == 2
    assert report.expert.wrong == 0
    assert all(kind.invalid == kind.pairs and kind.wrong == 0 for kind in report.kinds.values())
    assert report.false_reject_rate == report.false_accept_rate == 0.0
    assert report.invalid == report.pairs > 20
    assert f"no verdict on {report.pairs} of {report.pairs} pairs" in report.lines()[0]


def test_an_expert_that_fails_its_own_verifier() -> None:
    missing = turn(calls(("f", {"count": 1})), SPEC)
    report = selftest([missing], build_verifier("tool_call"))
    assert report.expert.wrong == 1
    assert report.expert.examples[0].reason == "f.path: required, but missing"


def test_on_real_traces() -> None:
    """No false accept; the only false rejects are quoted commands, which `command` accepts."""
    reader = read_trajectories(shared_data() / "trajectories")
    turns = [turn for trajectory in reader for turn in split_turns(trajectory)]
    call = selftest(turns, build_verifier("tool_call"), repeats=1)
    assert {name: kind.wrong for name, kind in call.kinds.items() if kind.wrong} == {"quoting": 44}
    command = selftest(turns, build_verifier("command"), repeats=1)
    assert {name: kind.wrong for name, kind in command.kinds.items() if kind.wrong} == {}
    assert call.expert.wrong == command.expert.wrong == 0
