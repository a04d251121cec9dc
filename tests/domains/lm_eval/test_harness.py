"""An lm-eval task of our own making, so that no data have to be fetched."""

import json

import pytest
from msgspec.structs import replace

from pivotune.core.errors import DataError
from pivotune.core.protocols import ScoreRequest
from pivotune.core.types import Message, Task
from pivotune.domains.catalog import make_environment, suite_tasks
from pivotune.domains.lm_eval import harness
from pivotune.evaluate.suites import Suite, evaluate_suite, score_suite
from pivotune.models.policy import load_policy
from pivotune.models.sampler import TorchSampler
from pivotune.pipeline.recipe import Recipe

ROWS = [{"question": f"{i} + {i}?", "answer": str(2 * i)} for i in range(5)]
TASK = """
task: sums
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: {kind}
doc_to_text: "Q: {{{{question}}}}\\nA:"
{target}
generation_kwargs: {{until: ["\\n\\n"]}}
filter_list:
  - name: number
    filter: [{{function: regex, regex_pattern: "(-?[0-9]+)"}}, {{function: take_first}}]
metric_list:
  - {{metric: {metric}, aggregation: mean, higher_is_better: true}}
"""
WORDS = 'doc_to_target: "{{answer}}"'
CHOICE = 'doc_to_target: 1\ndoc_to_choice: ["no", "yes, it is"]'


@pytest.fixture
def write_task(tmp_path, monkeypatch):
    pytest.importorskip("lm_eval")
    monkeypatch.setenv(harness.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, ROWS)))

    def write(kind="generate_until", metric="exact_match"):
        harness._load.cache_clear()
        harness._documents.cache_clear()
        target = CHOICE if kind == "multiple_choice" else WORDS
        text = TASK.format(data=data, kind=kind, target=target, metric=metric)
        (tmp_path / "sums.yaml").write_text(text)

    return write


def test_a_task_is_asked_and_scored_by_its_own_filters(write_task):
    write_task()
    tasks = suite_tasks("lm_eval:sums", 99, 0)
    assert len(tasks) == 5
    for task in tasks:
        i = task.payload["index"]
        for said, reward in (
            (f"It is {2 * i}.", 1.0),
            (f"{2 * i}\n\nQ: 9 + 9?", 1.0),
            (f"{2 * i + 1}", 0.0),
            ("no idea", 0.0),
        ):
            environment = make_environment(task)
            (question,) = environment.reset(task)
            assert question.content == f"Q: {i} + {i}?\nA:"
            assert environment.reward() == 0.0
            assert environment.step(Message("assistant", said)).done
            assert environment.reward() == reward


def test_a_choice_is_the_likeliest_answer_by_the_task_s_own_metric(write_task):
    write_task("multiple_choice", metric="acc")
    tasks = suite_tasks("lm_eval:sums", 99, 0)
    assert len(tasks) == 5
    for task in tasks:
        # The right answer is that of index 1; the longer one costs more and less a character.
        for logprobs, reward in (([-2.0, -1.0], 1.0), ([-1.0, -2.0], 0.0)):
            environment = make_environment(task)
            (question,) = environment.reset(task)
            assert question.content.startswith("Q: ")
            assert [each.content for each in environment.choices()] == ["no", "yes, it is"]
            environment.choose(logprobs)
            assert environment.reward() == environment.clone().reward() == reward
    write_task("multiple_choice", metric="acc_norm")
    environment = make_environment(tasks[0])
    environment.reset(tasks[0])
    environment.choose([-1.0, -2.0])
    assert environment.reward() == 1.0


def test_a_choosing_suite_is_scored_by_a_policy(write_task, tmp_path):
    write_task("multiple_choice", metric="acc")
    policy = load_policy(Recipe().model_path)
    sampler = TorchSampler(policy)
    suite = Suite("lm_eval:sums", "out_of_domain", suite_tasks("lm_eval:sums", 5, 0))
    found = evaluate_suite(sampler, suite, make_environment, seed=0, path=tmp_path / "log.jsonl")
    for task, outcome in zip(suite.tasks, found, strict=True):
        state = make_environment(task).reset(task)
        ends = [
            policy.chat.render_action(state, (), Message("assistant", text))
            for text in ("no", "yes, it is")
        ]
        (no,), (yes,) = (
            sampler.score([ScoreRequest(state, (), tuple(action))]) for _, action in ends
        )
        likelier = sum(yes.logprobs[:-1]) > sum(no.logprobs[:-1])
        assert outcome.reward == float(likelier)
        assert outcome.cost.sampled_tokens == 0
        prompt, _ = ends[0]
        assert outcome.cost.prompt_tokens == len(prompt) + sum(len(ids) for _, ids in ends)
    assert score_suite(sampler, suite, make_environment, seed=0)[0] == sum(
        each.reward for each in found
    ) / len(found)
    with pytest.raises(DataError, match="the same answer every time"):
        evaluate_suite(
            sampler,
            replace(suite, rollouts=2),
            make_environment,
            seed=0,
            path=tmp_path / "again.jsonl",
        )


def test_what_cannot_be_had_or_played_is_told(write_task):
    write_task("loglikelihood")
    with pytest.raises(DataError, match="neither in words nor by choice"):
        suite_tasks("lm_eval:sums", 5, 0)
    write_task("multiple_choice", metric="brier_score")
    with pytest.raises(DataError, match="no accuracy among its metrics"):
        suite_tasks("lm_eval:sums", 5, 0)
    write_task("multiple_choice", metric="acc_mutual_info")
    with pytest.raises(DataError, match="cannot be asked in a conversation"):
        suite_tasks("lm_eval:sums", 5, 0)
    with pytest.raises(DataError, match="no such task"):
        suite_tasks("lm_eval:no_such_task_at_all", 5, 0)
    with pytest.raises(DataError, match="not an lm-eval question"):
        make_environment(Task("x", "lm_eval")).reset(Task("x", "lm_eval"))
