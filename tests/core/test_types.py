import os
import subprocess
import sys
from pathlib import Path

import msgspec

import pivotune
from pivotune.core.errors import PivotuneError
from pivotune.core.ledger import Ledger
from pivotune.core.seeds import derive_seed
from pivotune.core.tally import DiscountedTally, Tally
from pivotune.core.types import Cost, Message, Profile, Sample, ToolCall, Verdict, content_hash


def test_import_loads_no_torch():
    code = (
        "import sys, pivotune, pivotune.core.types, pivotune.ingest, pivotune.verify, "
        "pivotune.turns.profile, pivotune.turns.pivots, pivotune.evaluate.suites, pivotune.report, "
        "pivotune.domains, pivotune.models, pivotune.models.scripted, pivotune.cli.main; "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'transformers')))"
    )
    source = str(Path(pivotune.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": source},
    )
    assert done.stdout.strip() == "[]"


def test_hashes_see_every_part_and_ignore_key_order():
    one = Message("assistant", tool_calls=(ToolCall("f", {"a": 1, "b": 2}),))
    two = Message("assistant", tool_calls=(ToolCall("f", {"b": 2, "a": 1}),))
    assert content_hash(one) == content_hash(two)
    assert content_hash(one) != content_hash(one, one)
    assert content_hash("a", "bc") != content_hash("ab", "c")


def test_structs_survive_a_round_trip():
    message = Message("assistant", "é", (ToolCall("f", {"n": 1}, '{"n": 1}'),), "why")
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_an_invalid_verdict_is_no_reward():
    from pivotune.core.types import ParseOutcome

    def sample(verdict):
        return Sample((1,), (0.0,), Message("assistant"), ParseOutcome.OK, "stop", verdict)

    profile = Profile(
        *("t", "p", "h", "v", "1", 1.0, 0, 8, 3, Verdict(1.0, "")),
        samples=(sample(Verdict(None, "timed out")), sample(Verdict(0.0, "no"))),
    )
    assert profile.rewards == (0.0,)
    assert profile.samples[0].verdict.invalid


def test_seeds_depend_on_every_part():
    seeds = {derive_seed(0, "a", 1), derive_seed(0, "a", 2), derive_seed(0, "b", 1)}
    assert len(seeds | {derive_seed(1, "a", 1), derive_seed(0, "a1")}) == 5
    assert derive_seed(0, "a", 1) == derive_seed(0, "a", 1) < 2**63


def test_costs_add_and_the_ledger_totals():
    ledger = Ledger()
    ledger.charge("profile", Cost(rollout_turns=8, sampled_tokens=80))
    ledger.charge("profile", Cost(rollout_turns=2, seconds=0.5))
    with ledger.timed("train"):
        pass
    assert ledger.costs["profile"] == Cost(rollout_turns=10, sampled_tokens=80, seconds=0.5)
    assert ledger.total().rollout_turns == 10
    assert ledger.costs["train"].seconds >= 0


def test_tallies():
    assert Tally().add(True).add(False).add(True) == Tally(2, 1)
    assert DiscountedTally(2, 2).add(3, 4, 0.5) == DiscountedTally(4.0, 2.0)


def test_errors_say_what_where_got_expected_and_what_to_do():
    error = PivotuneError("bad", where="f:3", got="x" * 300, expected="a y", fix="use y")
    text = str(error)
    assert text.startswith("f:3: bad\n")
    assert "(300 characters)" in text
    assert "expected: a y" in text
    assert "what to do: use y" in text
