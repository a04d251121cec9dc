import json

import pytest

from pivotune.core.errors import RecipeError, TemplateError
from pivotune.models.scripted import ScriptedSampler
from pivotune.pipeline.policies import open_profiled
from pivotune.pipeline.profiling import quick, training_candidates
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.traces import import_traces
from pivotune.turns.profile import ProfileConfig


class Said:
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


class Strict(ScriptedSampler):
    """Has a template that refuses histories with the word in them."""

    def __init__(self, word):
        super().__init__(lambda messages, tools, row: "ok")
        self.word = word

    def count(self, messages, tools):
        if any(self.word in message.content for message in messages):
            raise TemplateError("the chat template refuses this conversation", where="message 0")
        return super().count(messages, tools)


@pytest.fixture
def run(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}]}
        for text in ("one", "two", "three")
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    recipe = load_recipe(None, [f"traces.path={path}", "traces.validation_share=0.0"])
    opened = Run(RunFolder(tmp_path / "run", recipe), Said())
    import_traces(opened)
    return opened


def test_a_turn_that_the_template_refuses_is_left_out_by_row_and_turn(run):
    found = training_candidates(run, Strict("two"))
    assert [turn.state[0].content for turn in found.turns] == ["one", "three"]
    assert found.dropped == {"the chat template refuses it": 1}
    assert "traces.jsonl:2, turn 0, message 0" in run.watch.lines[-1]


def test_a_template_that_refuses_every_turn_stops_the_run(run):
    with pytest.raises(TemplateError, match=r"traces\.jsonl:1, turn 0, message 0: the chat templ"):
        training_candidates(run, Strict(""))


def test_an_endpoint_cannot_serve_this_runs_warm_start(tmp_path):
    settings = ["sampler=server", "server.url=http://127.0.0.1:1/v1", "warm_start.steps=2"]
    opened = Run(RunFolder(tmp_path, load_recipe(None, settings)), Said())
    with pytest.raises(RecipeError, match="does not serve a warm start"):
        open_profiled(opened)


def test_side_questions_of_a_quick_look_are_short():
    assert quick(64, ProfileConfig()) == 64
    assert quick(64, ProfileConfig(turns=40)) == 10
    assert quick(64, ProfileConfig(turns=3)) == 1
    assert quick(64, ProfileConfig(turns=4000)) == 64
