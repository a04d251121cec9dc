import subprocess
import sys

import pytest

from pivotune.core.errors import SamplerError
from pivotune.core.protocols import Sampler, SampleRequest
from pivotune.core.types import Message, ParseOutcome, ToolCall, ToolSpec
from pivotune.models.scripted import ScriptedSampler, hash_state

STATE = (Message("user", content="put a mug on the desk"),)
TOOLS = (ToolSpec("go"),)
CALL = Message("assistant", tool_calls=(ToolCall("go", {"to": "desk 1"}, '{"to": "desk 1"}'),))


def request(**changes: object) -> SampleRequest:
    base = {
        "messages": STATE,
        "tools": TOOLS,
        "n": 2,
        "temperature": 1.0,
        "seed": 0,
        "max_tokens": 50,
        "expects_call": True,
    }
    return SampleRequest(**{**base, **changes})  # type: ignore[arg-type]


def test_a_message_comes_back_as_it_was_given() -> None:
    sampler: Sampler = ScriptedSampler(lambda messages, tools, row: CALL)
    (rows,) = sampler.sample([request()])
    assert [row.message for row in rows] == [CALL, CALL]
    assert rows[0].outcome is ParseOutcome.OK
    assert len(rows[0].logprobs) == len(rows[0].token_ids)
    assert sampler.count(STATE, TOOLS) == len(rows[0].prompt_ids)


def test_an_answer_ends_at_a_text() -> None:
    sampler = ScriptedSampler(lambda messages, tools, row: "think\nObservation: made up")
    (rows,) = sampler.sample([request(n=1, stop=("\nObservation:",), expects_call=None)])
    assert (rows[0].text, rows[0].message.content, rows[0].finish) == ("think", "think", "stop")


def test_answers_by_state_and_row() -> None:
    sampler = ScriptedSampler.from_answers({hash_state(STATE, TOOLS): [CALL, "no idea"]})
    (rows,) = sampler.sample([request(n=3)])
    assert [row.outcome for row in rows] == [
        ParseOutcome.OK,
        ParseOutcome.NO_CALL,
        ParseOutcome.OK,
    ]
    with pytest.raises(SamplerError, match="no answer"):
        sampler.sample([request(messages=(*STATE, Message("user", content="again")))])


def test_the_token_limit_cuts() -> None:
    sampler = ScriptedSampler(lambda messages, tools, row: "one two three")
    ((row,),) = sampler.sample([request(n=1, max_tokens=3, expects_call=None)])
    assert (row.finish, row.outcome, len(row.token_ids)) == ("length", ParseOutcome.TRUNCATED, 3)
    ((row,),) = sampler.sample([request(n=1, max_tokens=4, expects_call=None)])
    assert (row.finish, row.outcome, row.text) == ("stop", ParseOutcome.OK, "one two three")


def test_a_prompt_over_the_context_is_refused() -> None:
    sampler = ScriptedSampler(lambda messages, tools, row: "x", context_limit=4)
    with pytest.raises(SamplerError, match="no room"):
        sampler.sample([request()])


def test_loads_no_torch() -> None:
    code = "import sys, pivotune.models.scripted; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
