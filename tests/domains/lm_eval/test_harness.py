"""An lm-eval task of our own making, so that no data have to be fetched."""

import json

import pytest

from pivotune.core.errors import DataError
from pivotune.core.types import Message, Task
from pivotune.domains.catalog import make_environment, suite_tasks
from pivotune.domains.lm_eval import harness

ROWS = [{"question": f"{i} + {i}?", "answer": str(2 * i)} for i in range(5)]
TASK = """
task: sums
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: {kind}
doc_to_text: "Q: {{{{question}}}}\\nA:"
doc_to_target: "{{{{answer}}}}"
{choice}
generation_kwargs: {{until: ["\\n\\n"]}}
filter_list:
  - name: number
    filter: [{{function: regex, regex_pattern: "(-?[0-9]+)"}}, {{function: take_first}}]
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""


@pytest.fixture
def write_task(tmp_path, monkeypatch):
    pytest.importorskip("lm_eval")
    monkeypatch.setenv(harness.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, ROWS)))

    def write(kind="generate_until"):
        harness._load.cache_clear()
        harness._documents.cache_clear()
        choice = 'doc_to_choice: ["0", "2"]' if kind == "multiple_choice" else ""
        (tmp_path / "sums.yaml").write_text(TASK.format(data=data, kind=kind, choice=choice))

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


def test_what_cannot_be_had_or_played_is_told(write_task):
    write_task("multiple_choice")
    with pytest.raises(DataError, match="not answered in words"):
        suite_tasks("lm_eval:sums", 5, 0)
    with pytest.raises(DataError, match="no such task"):
        suite_tasks("lm_eval:no_such_task_at_all", 5, 0)
    with pytest.raises(DataError, match="not an lm-eval question"):
        make_environment(Task("x", "lm_eval")).reset(Task("x", "lm_eval"))
