"""The hand-labelled pairs, and every family's errors on them (the figures of the docs' page)."""

from collections import Counter

import pytest

from pivotune.domains.catalog import make_environment
from pivotune.turns.rollout import RestoredEnvironments
from pivotune.verify import as_completion, build_verifier
from pivotune.verify.pairs import FAMILIES, read_pairs, score_pairs

PAIRS = read_pairs()


def test_two_hundred_different_pairs_over_five_domains() -> None:
    assert len({pair.turn.id for pair in PAIRS}) == len(PAIRS) == 200
    domains = ["airline", "code", "household", "search", "terminal"]
    assert Counter(pair.domain for pair in PAIRS) == dict.fromkeys(domains, 40)
    assert sum(pair.same for pair in PAIRS) == 73
    assert all(pair.why for pair in PAIRS)
    texts = {repr((p.turn.trajectory_id, p.turn.expert, p.action)) for p in PAIRS}
    assert len(texts) == 200


ERRORS = {  # false rejects of 73, false accepts of 127, invalid
    "strict": (69, 0, 0),
    "tool_name": (0, 113, 0),
    "tool_call": (30, 5, 0),
    "schema": (11, 104, 0),
    "text": (6, 0, 179),
    "command": (21, 4, 0),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_errors_of_the_families(name: str) -> None:
    found = score_pairs(PAIRS, build_verifier(name))
    total = found["all"]
    assert (total.false_rejects, total.false_accepts, total.invalid) == ERRORS[name]
    assert total.same + total.different + total.invalid == 200
    assert len(total.wrong) == total.false_rejects + total.false_accepts
    parts = [found[domain] for domain in found if domain != "all"]
    assert sum(part.false_rejects for part in parts) == total.false_rejects


def test_known_blind_spots_by_name() -> None:
    """What `tool_call` and `command` wrongly accept: white space that is data."""
    both = {}
    for name in ("tool_call", "command"):
        wrong = score_pairs(PAIRS, build_verifier(name))["all"].wrong
        both[name] = {line.partition(":")[0] for line in wrong if " accepted (" in line}
    data = {"code-14", "code-19", "household-07", "household-30"}
    assert both == {"tool_call": data | {"terminal-12"}, "command": data}


def test_exact_comparison_of_program_text_mends_it() -> None:
    exact = {"name": "tool_call", "fields": {"create_file.text": {"compare": "exact"}}}
    code = score_pairs([p for p in PAIRS if p.domain == "code"], build_verifier(exact))["code"]
    assert code.false_accepts == 0


def test_every_expert_action_is_accepted_by_the_call_families() -> None:
    for name in ("strict", "tool_name", "tool_call", "command"):
        verifier = build_verifier(name)
        wrong = [
            pair.turn.id
            for pair in PAIRS
            if verifier.verify(pair.turn, as_completion(pair.turn.expert), None).reward != 1.0
        ]
        assert wrong == []


def test_execution_agrees_with_every_label() -> None:
    """The household pairs are carried out in their games: `effect` makes no mistake."""
    executable = [pair for pair in PAIRS if pair.executable]
    environments = RestoredEnvironments(make_environment)
    found = score_pairs(executable, build_verifier("effect"), environment_at=environments.at)
    assert found["household"].wrong == []
    assert (found["all"].same, found["all"].different, found["all"].invalid) == (8, 32, 0)
