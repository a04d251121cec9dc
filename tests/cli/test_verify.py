import json

import pytest

from cli.test_errors import run
from conftest import shared_data
from loopback import Loopback
from pivotune.core.store import read_records, write_records
from pivotune.core.types import Message, Profile, Task, ToolCall, ToolSpec, Trajectory
from pivotune.ingest import split_turns
from pivotune.models.scripted import ScriptedSampler
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run_folder import RunFolder
from pivotune.turns.profile import ProfileConfig, profile_turns
from pivotune.verify import ToolNameVerifier

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
        },
    },
}


def traces(tmp_path, arguments='{"city": "Rome"}', **row):
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "How is the weather in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Sun."},
        {"role": "assistant", "content": "It is sunny."},
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps({"messages": messages, "tools": [TOOL], **row}) + "\n")
    return path


def test_selftest_says_rates_by_kind(monkeypatch, capsys, tmp_path):
    out = tmp_path / "report.json"
    arguments = ("verify", "selftest", traces(tmp_path), "--verifier", "tool_call", "--json", out)
    code, printed = run(monkeypatch, capsys, *arguments)
    assert code == 0
    assert "on 2 turns: false rejects 0.0%, false accepts 0.0%" in printed
    assert "explicit_default: 0 false rejects of 1" in printed
    report = json.loads(out.read_text())
    assert report["kinds"]["value"] == {
        "preserving": False,
        "pairs": 1,
        "wrong": 0,
        "invalid": 0,
        "examples": [],
    }


def test_selftest_finds_what_a_family_misses(monkeypatch, capsys, tmp_path):
    path = traces(tmp_path)
    code, printed = run(monkeypatch, capsys, "verify", "selftest", path, "--verifier", "tool_name")
    assert code == 0
    assert "value: 1 false accepts of 1" in printed
    assert 'weather({"city": "Romex"})' in printed


def test_selftest_counts_experts_that_fail(monkeypatch, capsys, tmp_path):
    path = traces(tmp_path, '{"days": 2}')
    _, printed = run(monkeypatch, capsys, "verify", "selftest", path, "--verifier", "tool_call")
    assert "expert actions that fail their own verifier: 1" in printed
    assert "weather.city: required, but missing" in printed


def test_selftest_of_a_judge_that_a_recipe_sets(monkeypatch, capsys, tmp_path):
    """A judge that answers yes and no by turns, asked in turn, does not repeat itself."""
    with Loopback(lambda r: json.dumps({"equivalent": r.number // 2 % 2 == 0})) as server:
        recipe = tmp_path / "r.toml"
        recipe.write_text(
            f'[verifiers.judge]\nurl = "{server.url}"\nmodel = "m"\nconcurrency = 1\n'
        )
        path = traces(tmp_path)
        arguments = ("verify", "selftest", path, recipe, "--verifier", "judge", "--turns", 1)
        code, printed = run(monkeypatch, capsys, *arguments)
    assert code == 0
    assert "judge 1-" in printed
    assert "two verdicts agree 100.0%" not in printed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--verifier", "tool_cal"), 14, "did you mean 'tool_call'"),
        (("--verifier", "judge"), 10, "which model"),
        (("--verifier", "tool_call", "no.such=1"), 10, "unknown key 'no'"),
        (("--verifier", "effect"), 11, "no environment here"),
        (("--verifier", "tool_call", "a.toml", "b.toml"), 10, "more than one recipe"),
    ],
)
def test_settings_that_make_no_sense(monkeypatch, capsys, tmp_path, arguments, code, said):
    path = traces(tmp_path)
    more = ("traces.domain=mine",)
    found, printed = run(monkeypatch, capsys, "verify", "selftest", path, *more, *arguments)
    assert found == code
    assert said in printed


def test_failed_runs_are_left_out(monkeypatch, capsys, tmp_path):
    path = traces(tmp_path, reward=0.0)
    base = ("verify", "selftest", path, "--verifier", "tool_call")
    code, printed = run(monkeypatch, capsys, *base)
    assert code == 11
    assert "no turn of a run that succeeded" in printed
    assert run(monkeypatch, capsys, *base, "candidates.keep_failed=true")[0] == 0


def test_pairs_print_the_rates(monkeypatch, capsys):
    code, printed = run(monkeypatch, capsys, "verify", "pairs", "--verifier", "effect")
    assert code == 0
    assert "effect household 0 of 8 0% 0 of 32 0% 0" in printed
    code, printed = run(monkeypatch, capsys, "verify", "pairs", "-v", "tool_call")
    assert "tool_call all 30 of 73 41% 5 of 127 4% 0" in printed
    assert "label: indentation is meaning in Python" in printed


def profiled(folder):
    """A run folder with one profiled turn: K = 4 of which one is equal to the expert's."""
    expert = Message("assistant", tool_calls=(ToolCall("go", {"to": "a"}, '{"to": "a"}'),))
    tools = (ToolSpec("go"),)
    trajectory = Trajectory("t", "x", Task("t", "x"), tools, (Message("user", "go"), expert))
    opened = RunFolder(folder, load_recipe(None, ["verifier=tool_name", "traces.domain=x"]))
    write_records(opened.trajectories, [trajectory])
    answers = ["a", "b", "c", "b"]

    def script(messages, tools, row):
        return "<tool_call>go" + json.dumps({"to": answers[row]}) + "</tool_call>"

    profile_turns(
        *(ScriptedSampler(script), split_turns(trajectory), ToolNameVerifier(), None),
        ProfileConfig(samples=4),
        seed=0,
        path=opened.profiles("tool_name"),
    )
    return opened


def test_stored_samples_are_judged_again(monkeypatch, capsys, tmp_path):
    folder = profiled(tmp_path / "run")
    code, printed = run(
        *(monkeypatch, capsys, "verify", "rescore", tmp_path / "run", "--verifier", "tool_call")
    )
    assert code == 0
    assert "tool_name: 1 turns, mean reward 1.000, 0 mixed" in printed
    assert "tool_call: 1 turns, mean reward 0.250, 1 mixed" in printed
    assert "of 4 samples 0 are newly accepted and 3 newly rejected" in printed
    (again,) = read_records(folder.profiles("tool_call"), Profile)
    (before,) = read_records(folder.profiles("tool_name"), Profile)
    assert again.rewards == (1.0, 0.0, 0.0, 0.0)
    assert [s.token_ids for s in again.samples] == [s.token_ids for s in before.samples]
    assert before.rewards == (1.0,) * 4


def test_rescoring_needs_a_run(monkeypatch, capsys, tmp_path):
    arguments = ("verify", "rescore", tmp_path, "--verifier", "tool_call")
    code, printed = run(monkeypatch, capsys, *arguments)
    assert code == 10
    assert "no run lies here" in printed


def test_selftest_on_real_traces(monkeypatch, capsys):
    path = shared_data() / "trajectories" / "tau_bench_airline"
    arguments = ("selftest", path, "traces.tools=infer", "-v", "tool_call", "--turns", 10)
    code, printed = run(monkeypatch, capsys, "verify", *arguments)
    assert code == 0
    assert "619 turns of failed runs left out" in printed
    assert "on 10 turns: false rejects 0.0%, false accepts 0.0%" in printed
