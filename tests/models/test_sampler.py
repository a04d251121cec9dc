"""The sampler against transformers, against a fresh forward, and against itself."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from scipy import stats

from pivotune.core.errors import NumericsError, SamplerError
from pivotune.core.protocols import Sampler, SampleRequest, ScoreRequest
from pivotune.core.types import Completion, Message
from pivotune.models.cached_attention import attend, attend_by_matmul
from pivotune.models.cached_engine import CachedEngine
from pivotune.models.policy import Policy
from pivotune.models.rows import Row, draw_tokens, row_uniforms
from pivotune.models.sampler import COUNTED_PROMPTS, TorchSampler
from tiny_models import FAMILIES, tiny_policy

ENGINES = ["auto", "plain"]


def state(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


def request(text: str = "hello", **changes: Any) -> SampleRequest:
    base = {
        "messages": state(text),
        "tools": (),
        "n": 1,
        "temperature": 1.0,
        "seed": 7,
        "max_tokens": 12,
    }
    return SampleRequest(**{**base, **changes})


def fresh_logits(policy: Policy, prompt: Sequence[int], action: Sequence[int]) -> torch.Tensor:
    """(action, vocabulary) by one plain forward over everything."""
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*prompt, *action]])).logits[0]
    return logits[len(prompt) - 1 : -1].float()


def assert_logprobs_fresh(policy: Policy, row: Completion, tolerance: float = 1e-4) -> None:
    logits = fresh_logits(policy, row.prompt_ids, row.token_ids)
    logprobs = (logits / (row.temperature or 1.0)).log_softmax(-1)
    expected = logprobs.gather(1, torch.tensor(row.token_ids)[:, None]).squeeze(1)
    assert np.allclose(row.logprobs, expected.numpy(), atol=tolerance)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_greedy_equals_generate(family: str, engine: Any) -> None:
    policy = tiny_policy(family)
    sampler: Sampler = TorchSampler(policy, engine=engine)
    texts = ["hello", "a longer question than that one", "x", "hello"]
    results = sampler.sample([request(t, temperature=0.0, n=2, max_tokens=20) for t in texts])
    for rows in results:
        prompt = torch.tensor([rows[0].prompt_ids])
        with torch.no_grad():
            full = policy.model.generate(  # type: ignore[operator]
                prompt, do_sample=False, max_new_tokens=20, eos_token_id=[*policy.chat.stop_ids]
            )
        expected = tuple(full[0, prompt.shape[1] :].tolist())
        assert [row.token_ids for row in rows] == [expected, expected]
        assert_logprobs_fresh(policy, rows[0])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_sampled_logprobs_equal_a_fresh_forward(family: str, engine: Any) -> None:
    policy = tiny_policy(family)
    sampler = TorchSampler(policy, engine=engine)
    requests = [
        request("one", n=3, temperature=0.7),
        request("two and a half, which is longer", n=5, temperature=1.3, max_tokens=40),
        request("three", n=1, max_tokens=1),
    ]
    for rows in sampler.sample(requests):
        for row in rows:
            assert_logprobs_fresh(policy, row)
            assert (row.finish == "stop") == (row.token_ids[-1] in policy.chat.stop_ids)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_does_not_depend_on_the_batch(engine: Any) -> None:
    sampler = TorchSampler(tiny_policy(), engine=engine)
    (alone,) = sampler.sample([request("hello", n=4, max_tokens=30)])
    crowd = [request(f"question {i} " * (i + 1), n=3, seed=i, max_tokens=9 + i) for i in range(5)]
    together = sampler.sample([*crowd, request("hello", n=4, max_tokens=30)])[-1]
    assert [row.token_ids for row in together] == [row.token_ids for row in alone]
    assert len({row.token_ids for row in alone}) == 4
    (fewer,) = sampler.sample([request("hello", n=2, max_tokens=30)])
    assert [row.token_ids for row in fewer] == [row.token_ids for row in alone[:2]]


@pytest.mark.parametrize("engine", ENGINES)
def test_scores_equal_a_fresh_forward(engine: Any) -> None:
    policy = tiny_policy()
    sampler = TorchSampler(policy, engine=engine)
    action = tuple(policy.chat.encode("go to desk<|im_end|>"))
    requests = [
        ScoreRequest(state("hello"), (), action, temperature=0.8, top_k=3),
        ScoreRequest(state("hello"), (), action[:4]),
        ScoreRequest(state("something else"), (), action[:1]),
    ]
    for scores, asked in zip(sampler.score(requests), requests, strict=True):
        prompt = policy.chat.render(asked.messages, ())
        logits = fresh_logits(policy, prompt, asked.token_ids) / asked.temperature
        logprobs = logits.log_softmax(-1)
        expected = [logprobs[i, token].item() for i, token in enumerate(asked.token_ids)]
        assert np.allclose(scores.logprobs, expected, atol=1e-4)
        if asked.top_k:
            best = logprobs.topk(3)
            assert np.allclose(scores.top_logprobs, best.values.numpy(), atol=1e-4)
            assert scores.top_ids == tuple(map(tuple, best.indices.tolist()))


def test_a_prompt_that_was_counted_is_sampled_as_it_is_now() -> None:
    """A history that grew after it was counted is another prompt, also as the same list."""
    sampler = TorchSampler(tiny_policy())
    history = list(state("hello"))
    first = sampler.count(history, ())
    grown = [*history, Message("assistant", "go"), Message("user", "and now?")]
    for messages in (history, grown, [*state("hello")], history):
        ((row,),) = sampler.sample([msgspec.structs.replace(request(), messages=tuple(messages))])
        assert row.prompt_ids == tuple(sampler.policy.chat.render(messages, ()))
        assert sampler.count(messages, ()) == len(row.prompt_ids)
    history += grown[-2:]
    assert sampler.count(history, ()) > first
    for i in range(2 * COUNTED_PROMPTS):
        sampler.count(state(f"word {i}"), ())
    ((row,),) = sampler.sample([msgspec.structs.replace(request(), messages=tuple(history))])
    assert row.prompt_ids == tuple(sampler.policy.chat.render(history, ()))


def test_new_weights_answer_at_once() -> None:
    policy = tiny_policy()
    sampler = TorchSampler(policy)
    before = sampler.policy_hash
    ((first,),) = sampler.sample([request(temperature=0.0, session="s")])
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(0.7)
    ((second,),) = sampler.sample([request(temperature=0.0, session="s")])
    assert second.policy_hash != before == first.policy_hash
    assert_logprobs_fresh(policy, second)


def test_no_requests_and_no_rows() -> None:
    sampler = TorchSampler(tiny_policy())
    assert sampler.sample([]) == []
    assert sampler.score([]) == []
    assert sampler.sample([request(n=0)]) == [()]


def test_a_prompt_over_the_context_names_the_request() -> None:
    sampler = TorchSampler(tiny_policy(max_position_embeddings=64))
    with pytest.raises(SamplerError, match="request 1: the prompt leaves no room"):
        sampler.sample([request("short"), request("long " * 40)])
    ((row,),) = sampler.sample([request("x" * 20, max_tokens=500)])
    assert len(row.prompt_ids) + len(row.token_ids) <= 64


def test_an_error_names_the_turn_that_was_sampled() -> None:
    sampler = TorchSampler(tiny_policy(max_position_embeddings=64))
    with pytest.raises(SamplerError, match="trace-1#3: the prompt leaves no room"):
        sampler.sample([request("long " * 40, name="trace-1#3")])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_action_ends_at_a_text(engine: Any) -> None:
    sampler = TorchSampler(tiny_policy(), engine=engine)
    asked = request(n=4, max_tokens=40)
    (free,) = sampler.sample([asked])
    row = max(free, key=lambda each: len(each.token_ids))
    text = sampler.policy.chat.decode(row.token_ids)
    stop = next(text[i : i + 2] for i in range(8, len(text) - 1) if "\ufffd" not in text[i : i + 2])
    (ended,) = sampler.sample([request(n=4, max_tokens=40, stop=("no such text", stop))])
    for before, after in zip(free, ended, strict=True):
        assert before.token_ids[: len(after.token_ids)] == after.token_ids
        whole = sampler.policy.chat.decode(before.token_ids)
        assert after.text == whole.partition(stop)[0]
        if stop in whole:
            assert after.finish == "stop"
            assert sampler.policy.chat.decode(after.token_ids).endswith(stop)
            assert stop not in sampler.policy.chat.decode(after.token_ids[:-1])


def test_an_action_that_does_not_fit_is_not_scored() -> None:
    sampler = TorchSampler(tiny_policy(max_position_embeddings=64))
    with pytest.raises(SamplerError, match="request 0"):
        sampler.score([ScoreRequest(state("x"), (), tuple(range(64)))])


def test_draws_follow_the_distribution() -> None:
    probabilities = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    count = 4000
    rows = [Row((0,), 1, 1.0, row_uniforms(11, i, 1)) for i in range(count)]
    logits = torch.tensor(np.log(probabilities), dtype=torch.float32).repeat(count, 1)
    draw_tokens(logits, rows, frozenset())
    observed = np.bincount([row.tokens[0] for row in rows], minlength=5)
    assert stats.chisquare(observed, probabilities * count).pvalue > 0.01


def test_streams_are_a_rows_own() -> None:
    assert row_uniforms(1, 0, 4).tolist() == row_uniforms(1, 0, 8)[:4].tolist()
    streams = [row_uniforms(seed, row, 4)[0] for seed in (1, 2) for row in (0, 1)]
    assert len(set(streams)) == 4


def turns(count: int) -> list[tuple[Message, ...]]:
    """States of one growing conversation, each a prefix of the next."""
    states = [state("put a mug on the desk")]
    for i in range(count - 1):
        reply = Message("assistant", f"go to place {i}")
        states.append((*states[-1], reply, Message("user", f"You see {i} mugs.")))
    return states


def counting(policy: Policy) -> list[int]:
    """Token counts of every forward from here on."""
    counts: list[int] = []
    embeddings: Any = policy.model.get_input_embeddings()  # type: ignore[operator]
    embeddings.register_forward_pre_hook(lambda module, args: counts.append(args[0].numel()))
    return counts


def test_turns_of_one_trajectory_are_computed_once() -> None:
    policy = tiny_policy()
    sampler = TorchSampler(policy)
    requests = [
        request(n=3, messages=messages, seed=i, max_tokens=8) for i, messages in enumerate(turns(5))
    ]
    separate = [sampler.sample([one])[0] for one in requests]
    counts = counting(policy)
    together = sampler.sample(requests)
    assert counts[0] == sampler.count(requests[-1].messages, ())
    assert max(counts[1:]) <= 15
    for shared, own in zip(together, separate, strict=True):
        assert [row.token_ids for row in shared] == [row.token_ids for row in own]
        for row in shared:
            assert_logprobs_fresh(policy, row)


def test_prompts_with_a_common_beginning_compute_it_once() -> None:
    policy = tiny_policy()
    sampler = TorchSampler(policy)
    system = Message("system", "You live in a house with many rooms. " * 4)
    requests = [
        request(messages=(system, Message("user", text)), max_tokens=4)
        for text in ("first", "second one", "third", "forth and last")
    ]
    counts = counting(policy)
    results = sampler.sample(requests)
    lengths = [len(rows[0].prompt_ids) for rows in results]
    assert counts[0] < max(lengths) + 4 * 60
    for (row,) in results:
        assert_logprobs_fresh(policy, row)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_continues_as_if_fresh(engine: Any) -> None:
    policy = tiny_policy()
    sampler, fresh = TorchSampler(policy, engine=engine), TorchSampler(policy, engine="plain")
    histories = [state("one task"), state("another, longer task"), state("third")]
    for step in range(4):
        requests = [
            request(messages=history, seed=step, max_tokens=5 + 3 * i, session=f"episode {i}")
            for i, history in enumerate(histories)
        ]
        rows = [row for (row,) in sampler.sample(requests)]
        expected = [row for (row,) in fresh.sample(requests)]
        assert [row.token_ids for row in rows] == [row.token_ids for row in expected]
        for row in rows:
            assert_logprobs_fresh(policy, row)
        histories = [
            (*history, row.message, Message("user", f"You see {step}."))
            for history, row in zip(histories, rows, strict=True)
        ]
    sampler.end_session("episode 1")
    sampler.end_session("no such session")
    requests = [request(messages=h, session=f"episode {i}") for i, h in enumerate(histories)]
    for (row,), (own,) in zip(sampler.sample(requests), fresh.sample(requests), strict=True):
        assert row.token_ids == own.token_ids


def test_a_session_computes_only_what_is_new() -> None:
    policy = tiny_policy()
    sampler = TorchSampler(policy)
    history = state("a long description of the room " * 5)
    said = Message("assistant", "look")
    sampler.sample([request(messages=history, session="s", max_tokens=3)])
    counts = counting(policy)
    longer = (*history, said, Message("user", "A desk."))
    sampler.sample([request(messages=longer, session="s", max_tokens=1)])
    new = sampler.count(longer, ()) - sampler.count(history, ())
    assert counts == [new]
    other = (Message("user", "something else"),)
    ((row,),) = sampler.sample([request(messages=other, session="s")])
    assert_logprobs_fresh(policy, row)


def test_a_small_budget_changes_nothing() -> None:
    policy = tiny_policy()
    requests = [
        request(f"question {i} " * (1 + i % 3), n=3, seed=i, max_tokens=4 + i, session=name)
        for i, name in enumerate(["", "a", "", "b", "", "c"])
    ]
    large = TorchSampler(policy).sample(requests)
    for budget in (1, 200):
        small = TorchSampler(policy, token_budget=budget).sample(requests)
        for some, others in zip(small, large, strict=True):
            assert [row.token_ids for row in some] == [row.token_ids for row in others]
    scoring = [
        ScoreRequest(one.messages, (), rows[0].token_ids)
        for one, rows in zip(requests, large, strict=True)
    ]
    for scores, rows in zip(
        TorchSampler(policy, token_budget=1).score(scoring), large, strict=True
    ):
        assert np.allclose(scores.logprobs, rows[0].logprobs, atol=1e-4)


def test_a_corrupted_cache_is_noticed() -> None:
    """The control: the comparison with a fresh forward fails when keys are wrong."""
    policy = tiny_policy()
    sampler = TorchSampler(policy)
    history = state("a task")
    ((row,),) = sampler.sample([request(messages=history, session="s")])
    engine = sampler._engine
    assert isinstance(engine, CachedEngine)
    with torch.inference_mode():
        engine._store.arena.data[0, 0, 0, :, 3] += 1.0
    longer = (*history, row.message, Message("user", "What now?"))
    ((row,),) = sampler.sample([request(messages=longer, session="s")])
    with pytest.raises(AssertionError):
        assert_logprobs_fresh(policy, row)


def test_models_that_the_cache_does_not_support_take_the_plain_path() -> None:
    sliding = tiny_policy("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1)
    sampler = TorchSampler(sliding)
    assert "sliding_attention" in sampler.engine_name
    ((row,),) = sampler.sample([request("a prompt longer than the window")])
    assert_logprobs_fresh(sliding, row)
    assert TorchSampler(tiny_policy()).engine_name == "own cache, prompts once"


def test_weights_that_are_not_numbers_are_noticed() -> None:
    policy = tiny_policy()
    with torch.no_grad():
        next(policy.model.parameters()).fill_(float("nan"))
    with pytest.raises(NumericsError, match=r"trace-1#3, token 0: .*not finite"):
        TorchSampler(policy).sample([request(name="trace-1#3")])


def test_a_model_in_training_samples_without_dropout_and_goes_on_training() -> None:
    policy = tiny_policy()
    policy.model.train()
    ((row,),) = TorchSampler(policy).sample([request()])
    assert policy.model.training
    assert_logprobs_fresh(policy, row)


@pytest.mark.parametrize("masked", [False, True])
def test_both_kernels_give_the_same_attention(masked: bool) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 2, n, 16) for n in (4, 9, 9))
    mask = None
    if masked:
        lengths = torch.tensor([9, 1, 5])[:, None, None, None]
        mask = torch.zeros(3, 1, 1, 9).masked_fill(torch.arange(9) >= lengths, float("-inf"))
    flash = attend(query, key, value, 0.3, mask)
    matmul = attend_by_matmul(query, key, value, 0.3, mask)
    for one, other in zip(flash, matmul, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_bfloat16_stays_near_a_fresh_forward() -> None:
    policy = tiny_policy()
    policy.model.to(torch.bfloat16)
    (rows,) = TorchSampler(policy).sample([request(n=4)])
    for row in rows:
        assert_logprobs_fresh(policy, row, tolerance=0.25)
