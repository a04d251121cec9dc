import msgspec

from pivotune.core.types import Message, Task, ToolCall, Trajectory, Turn
from pivotune.turns.candidates import CandidateConfig, choose_candidates, is_expert

BASE = Turn("t#0", "t", Task("t", "d"), 0, (Message("user", "a b"),), (), Message("assistant", "c"))


def with_(**changes):
    return msgspec.structs.replace(BASE, **changes)


def test_every_turn_left_out_has_a_reason():
    turns = [
        BASE,
        with_(id="u#0"),
        with_(id="v#0", expert=Message("assistant", "d")),
        with_(id="w#0", meta={"tool_error": True}),
        with_(id="y#0", expert=Message("assistant", "", (ToolCall("go", None, '{"to": '),))),
        with_(id="x#0", state=(Message("user", "a b c d e"),)),
    ]
    found = choose_candidates(
        turns,
        count_tokens=lambda messages, turn: sum(len(m.content.split()) for m in messages),
        max_prompt_tokens=4,
    )
    assert [turn.id for turn in found.turns] == ["t#0", "v#0"]
    assert found.dropped == {
        "exact duplicate": 1,
        "the call ended in a tool error": 1,
        "the expert's arguments are no JSON object": 1,
        "prefix over the limit": 1,
    }


def test_failed_trajectories_are_experts_only_when_asked_for():
    def trajectory(reward):
        return Trajectory("t", "d", Task("t", "d"), (), (), reward)

    assert is_expert(trajectory(None), CandidateConfig())
    assert is_expert(trajectory(1.0), CandidateConfig())
    assert not is_expert(trajectory(0.0), CandidateConfig())
    assert is_expert(trajectory(0.0), CandidateConfig(keep_failed=True))
