"""The server sampler against a scripted endpoint that behaves like one of several kinds."""

import subprocess
import sys

import pytest

from loopback import Loopback, Reply
from pivotune.core.errors import ModelError, SamplerError
from pivotune.core.protocols import Sampler, SampleRequest
from pivotune.core.types import Message, ParseOutcome, ToolSpec
from pivotune.models.chat import ChatFormat
from pivotune.models.server import ServerConfig, ServerSampler
from tiny_models import byte_tokenizer

STATE = (Message("user", "put a mug on the desk"),)
TOOLS = (ToolSpec("go", "walk", {"type": "object", "properties": {"to": {"type": "string"}}}),)
CALL = '<tool_call>go{"to": "desk 1"}</tool_call>'
CHAT = ChatFormat(byte_tokenizer())
STOP = CHAT.stop_ids[0]


def request(**changes):
    base = {
        "messages": STATE,
        "tools": TOOLS,
        "n": 3,
        "temperature": 1.0,
        "seed": 7,
        "max_tokens": 60,
        "expects_call": True,
        "name": "trace-1#4",
    }
    return SampleRequest(**{**base, **changes})


def completions(script=lambda body, row: CALL, *, strict=(), most=99, ids=True):
    """An endpoint that takes token ids; it refuses the parameters in `strict`."""

    def answer(asked):
        if asked.path == "/v1/models":
            return {"data": [{"id": "tiny", "max_model_len": 1024}]}
        body = asked.body
        if unknown := [key for key in strict if key in body]:
            return Reply(f"unknown parameter {unknown[0]}".encode(), 400)
        choices = []
        for row in range(min(body.get("n", 1), most)):
            text = script(body, row)
            tokens = [*CHAT.encode(text), STOP]
            choice = {"index": row, "text": text, "finish_reason": "stop"}
            if ids and body.get("return_token_ids"):
                choice["token_ids"] = tokens
            if body.get("logprobs"):
                values = [-0.5] * len(tokens)
                choice["logprobs"] = {"tokens": ["?"] * len(tokens), "token_logprobs": values}
            choices.append(choice)
        return {"choices": choices, "usage": {"prompt_tokens": 50, "completion_tokens": 30}}

    return Loopback(answer)


def chats(message, *, finish="stop", logprobs=None):
    """An endpoint that renders and parses itself."""

    def answer(asked):
        if asked.path == "/v1/models":
            return {"data": [{"id": "hosted"}]}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}
        return {"choices": [choice], "usage": {"prompt_tokens": 50, "completion_tokens": 30}}

    return Loopback(answer)


def open_sampler(server, chat=CHAT, **options) -> ServerSampler:
    return ServerSampler(ServerConfig(url=server.url, **options), chat, backoff_s=0.001)


def test_prompts_go_out_as_our_own_ids_and_sampled_ids_come_back():
    with completions() as server:
        sampler: Sampler = open_sampler(server)
        (rows,) = sampler.sample([request()])
        sent = server.requests[-1].body
    assert sent["prompt"] == CHAT.render(STATE, TOOLS)
    assert (sent["n"], sent["top_p"], sent["top_k"], sent["stop_token_ids"]) == (3, 1, -1, [STOP])
    assert len(rows) == 3
    for row in rows:
        assert row.outcome is ParseOutcome.OK
        assert row.message.tool_calls[0].arguments == {"to": "desk 1"}
        assert row.prompt_ids == tuple(CHAT.render(STATE, TOOLS))
        assert row.token_ids == (*CHAT.encode(CALL), STOP)
        assert row.logprobs == (-0.5,) * len(row.token_ids)
    assert sampler.abilities.token_ids
    assert sampler.context_limit == 1024
    assert sampler.count(STATE, TOOLS) == len(rows[0].prompt_ids)


def test_logprobs_of_another_temperature_are_not_kept():
    with completions() as server:
        (rows,) = open_sampler(server).sample([request(temperature=0.6)])
    assert rows[0].token_ids
    assert rows[0].logprobs == ()


@pytest.mark.parametrize(
    ("strict", "said"),
    [
        (("top_k",), "its own top-k and top-p cannot be turned off"),
        (("top_k", "logprobs"), "gives no token ids, no log-probabilities"),
        (("top_k", "logprobs", "seed"), "no log-probabilities, no seeds"),
    ],
)
def test_what_an_endpoint_does_not_take_is_found_out_and_said(strict, said):
    with completions(strict=strict) as server:
        sampler = open_sampler(server)
        (rows,) = sampler.sample([request()])
    assert said in "\n".join(sampler.findings)
    assert [row.outcome for row in rows] == [ParseOutcome.OK] * 3
    assert all(row.token_ids == () for row in rows)
    assert (rows[0].prompt_length, rows[0].length) == (len(CHAT.render(STATE, TOOLS)), 10)


def test_an_endpoint_that_gives_one_answer_at_a_time_is_asked_n_times_with_n_seeds():
    with completions(lambda body, row: f"seed {body.get('seed')}", most=1) as server:
        sampler = open_sampler(server)
        (rows,) = sampler.sample([request()])
        again = open_sampler(server).sample([request()])[0]
    assert "several answers a request" in "\n".join(sampler.findings)
    assert len({row.text for row in rows}) == 3
    assert rows == again


def test_a_greedy_answer_is_asked_for_once():
    with completions(lambda body, row: f"n {body.get('n', 1)}") as server:
        (rows,) = open_sampler(server).sample([request(temperature=0.0)])
    assert [row.text for row in rows] == ["n 1"] * 3


def test_a_busy_endpoint_is_asked_again():
    inner, refused = completions(), set()

    def flaky(asked):
        """Every request is refused once; its seed tells it from the others."""
        seed = asked.body.get("seed")
        if seed in refused or seed is None:
            return inner.script(asked)
        refused.add(seed)
        return Reply(b"busy", 503)

    with Loopback(flaky) as server:
        groups = open_sampler(server, concurrency=4).sample([request(seed=i) for i in range(6)])
    assert [len(rows) for rows in groups] == [3] * 6
    assert len(refused) == 1 + 6


def test_an_endpoint_that_stays_down_is_named_and_the_run_goes_on_later():
    inner = completions()

    def dies(asked):
        return inner.script(asked) if asked.number < 2 else Reply(b"gone", 500)

    with Loopback(dies) as server:
        sampler = open_sampler(server)
        with pytest.raises(SamplerError, match="finished work is kept"):
            sampler.sample([request()])


def test_an_answer_of_another_form_is_asked_for_again_and_a_lasting_one_is_shown():
    inner, refused = completions(), []

    def odd(asked):
        """An error with status 200, once."""
        if asked.number < 2 or refused:
            return inner.script(asked)
        refused.append(asked)
        return {"error": {"message": "upstream timed out"}}

    with Loopback(odd) as server:
        (rows,) = open_sampler(server).sample([request()])
    assert (len(rows), len(refused)) == (3, 1)

    def broken(asked):
        return inner.script(asked) if asked.number < 2 else {"choices": [None], "why": "tired"}

    with Loopback(broken) as server:
        sampler = open_sampler(server)
        with pytest.raises(SamplerError, match=r"0 of 3(.|\n)*tired(.|\n)*finished work is kept"):
            sampler.sample([request()])


@pytest.mark.parametrize("data", [7, True, "x", [None], [{"id": 3}], {"id": "tiny"}])
def test_a_list_of_models_of_another_form(data):
    inner = completions()

    def answer(asked):
        return {"data": data} if asked.path == "/v1/models" else inner.script(asked)

    with Loopback(answer) as server:
        assert open_sampler(server, model="tiny").model == "tiny"
        with pytest.raises(ModelError, match="0 models are served"):
            open_sampler(server)


@pytest.mark.parametrize("value", [-(10**400), -1e300, 0.5, "x", None, True])
def test_log_probabilities_that_are_none(value):
    entries = [{"token": "token_id:5", "logprob": value}]
    with chats({"content": "ok"}, logprobs={"content": entries}) as server:
        (rows,) = open_sampler(server, None).sample([request(n=1)])
    assert (rows[0].token_ids, rows[0].logprobs) == ((5,), ())


def test_a_prompt_over_the_context_is_refused_by_the_turns_name():
    with completions() as server:
        sampler = open_sampler(server, context_limit=40)
        with pytest.raises(SamplerError, match="trace-1#4: the prompt leaves no room"):
            sampler.sample([request()])


def test_calls_that_the_endpoint_parsed():
    function = {"name": "go", "arguments": '{"to": "desk 1"}'}
    body = {"content": None, "tool_calls": [{"id": "c1", "function": function}]}
    with chats(body, finish="tool_calls") as server:
        sampler = open_sampler(server, None)
        (rows,) = sampler.sample([request()])
        sent = server.requests[-1].body
    assert sent["messages"] == [{"role": "user", "content": "put a mug on the desk"}]
    assert sent["tools"][0]["function"]["name"] == "go"
    assert len(rows) == 3
    assert rows[0].outcome is ParseOutcome.OK
    assert rows[0].message.tool_calls[0].arguments == {"to": "desk 1"}
    assert (rows[0].prompt_length, rows[0].length) == (50, 30)
    assert "32768 tokens assumed" in "\n".join(sampler.findings)


@pytest.mark.parametrize(
    ("body", "finish", "outcome"),
    [
        ({"content": "on my way"}, "stop", ParseOutcome.NO_CALL),
        ({"content": CALL}, "stop", ParseOutcome.OK),
        ({"content": '<tool_call>{"name": "go"'}, "stop", ParseOutcome.MALFORMED),
        ({"content": "and then I wo"}, "length", ParseOutcome.TRUNCATED),
        ({"content": "no"}, "content_filter", ParseOutcome.TRUNCATED),
        ({"content": None}, "stop", ParseOutcome.EMPTY),
        (
            {"tool_calls": [{"function": {"name": "go", "arguments": '{"to": 1, "to": 2}'}}]},
            "tool_calls",
            ParseOutcome.MALFORMED,
        ),
    ],
)
def test_every_answer_of_a_chat_has_an_outcome(body, finish, outcome):
    with chats(body, finish=finish) as server:
        (rows,) = open_sampler(server, None).sample([request(n=1)])
    assert rows[0].outcome is outcome


def test_ids_among_the_logprobs_are_taken():
    entries = [{"token": "token_id:5", "logprob": -0.25}, {"token": "x", "id": 9, "logprob": -1.0}]
    with chats({"content": "ok"}, logprobs={"content": entries}) as server:
        (rows,) = open_sampler(server, None).sample([request(n=1)])
    assert (rows[0].token_ids, rows[0].logprobs) == ((5, 9), (-0.25, -1.0))


@pytest.mark.parametrize("wrong", [10**400, -1, True, "5"])
def test_token_ids_that_are_none(wrong):
    inner = completions()

    def answer(asked):
        said = inner.script(asked)
        for choice in said.get("choices", []):
            choice["token_ids"] = [wrong]
        return said

    with Loopback(answer) as server:
        (rows,) = open_sampler(server).sample([request(n=1)])
    assert (rows[0].token_ids, rows[0].text) == ((), CALL)


def test_the_model_is_chosen_or_asked_for():
    served = {"data": [{"id": "a"}, {"id": "b"}]}
    choice = {"index": 0, "text": "", "finish_reason": "stop"}
    answer = {"choices": [choice, choice | {"index": 1}]}
    with Loopback(lambda r: served if r.path == "/v1/models" else answer) as server:
        with pytest.raises(ModelError, match=r"which model is meant\?(.|\n)*one of a, b"):
            open_sampler(server)
        with pytest.raises(ModelError, match="does not serve"):
            open_sampler(server, model="c")
        assert open_sampler(server, model="b").model == "b"


def test_the_key_goes_into_the_header_and_nowhere_else(monkeypatch):
    monkeypatch.setenv("MY_KEY", "s3cret-value")
    with completions() as server:
        sampler = open_sampler(server, key_env="MY_KEY")
        (rows,) = sampler.sample([request()])
        assert all(r.headers["Authorization"] == "Bearer s3cret-value" for r in server.requests)
    assert "s3cret" not in repr((sampler.config, rows, sampler.findings, sampler.policy_hash))


def test_no_torch_is_loaded():
    code = "import sys, pivotune.models.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
