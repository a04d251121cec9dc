"""Traces without a recipe, from the command line to the report, against a scripted endpoint."""

import json

import pytest

from cli.test_errors import run
from loopback import Loopback, Reply
from pivotune.core.store import read_json
from pivotune.pipeline.summary import Summary

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOLS = [{"type": "function", "function": {"name": "forecast", "parameters": SCHEMA}}]
CITIES = ("Oslo", "Lima", "Bern", "Kyiv", "Rome", "Graz")


def call(city, **more):
    function = {"name": "forecast", "arguments": json.dumps({"city": city, **more})}
    return {"id": "c1", "type": "function", "function": function}


def trace(city, reward):
    """A tau-bench row: a call, its result, an answer."""
    said = [
        {"role": "system", "content": "You know the weather."},
        {"role": "user", "content": f"Weather in {city}?"},
        {"role": "assistant", "content": None, "tool_calls": [call(city)]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    return {"task_id": city, "reward": reward, "info": {}, "traj": said, "trial": 0}


@pytest.fixture
def traces(tmp_path):
    path = tmp_path / "logs"
    path.mkdir()
    rows = [trace(city, float(i < 4)) for i, city in enumerate(CITIES)]
    (path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def endpoint(answer):
    """A chat endpoint: `answer(city, seed)` is a city to call for, or a text."""

    def script(request):
        if request.path == "/v1/models":
            return {"data": [{"id": "weather-1"}]}
        body = request.body
        if body["messages"][-1]["content"] == "Hello":
            said = {"content": "Hi."}
        else:
            city = body["messages"][-1]["content"].split()[-1].rstrip("?")
            found = answer(city, body.get("seed", 0))
            said = found if isinstance(found, dict) else {"tool_calls": [call(found)]}
        choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 12}}

    return Loopback(script)


def test_a_folder_a_server_and_nothing_else_end_in_a_table_and_a_report(
    monkeypatch, capsys, tmp_path, traces
):
    with endpoint(lambda city, seed: city if seed % 2 else "Paris") as server:
        code, said = run(
            *(monkeypatch, capsys, "profile", traces, "--server", server.url),
            *("--samples", 6, "--run", tmp_path / "run"),
        )
    assert code == 0
    assert "4 of 6 succeeded" in said
    assert "calls without tool schemas: 6" in said
    assert "the trajectory failed: 2" in said
    assert "model weather-1; prompts rendered by the endpoint" in said
    assert "pivots of 4 turns" in said
    assert "100 % ok" in said.replace("\u00a0", " ").replace("\u202f", " ")
    summary = read_json(tmp_path / "run" / "summary.json", Summary)
    assert summary.pivots[0].profiled == 4
    assert summary.cost["profile"].prompt_tokens == 4 * 40
    assert summary.cost["profile"].sampled_tokens == 4 * 6 * 12
    assert "forecast" in (tmp_path / "run" / "report.html").read_text()


def test_without_pivots_there_is_a_report_that_says_why(monkeypatch, capsys, tmp_path, traces):
    broken = {"content": '<tool_call>{"name": "forecast", '}
    with endpoint(lambda city, seed: broken) as server:
        arguments = ("profile", traces, "--server", server.url, "--run", tmp_path / "run")
        code, said = run(monkeypatch, capsys, *arguments, "--samples", 3)
        again, _ = run(monkeypatch, capsys, *arguments, "--samples", 3)
    assert (code, again) == (20, 20)
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    for place in (said, page):
        plain = place.replace("\u00a0", " ").replace("\u202f", " ")
        assert "0 pivots of 4 profiled turns: 4 always fail" in plain
        assert "100 % malformed" in plain
        assert "What to do: 100 % of the samples could not be read as an action" in plain


def test_failed_runs_and_schemas_only_when_asked_for(monkeypatch, capsys, tmp_path, traces):
    with endpoint(lambda city, seed: city if seed % 2 else "Paris") as server:
        code, said = run(
            *(monkeypatch, capsys, "profile", traces, "--server", server.url, "--failed"),
            *("--tools", "infer", "--limit", 5, "--samples", 6, "--run", tmp_path / "run"),
        )
        sent = server.requests[-1].body
    assert code == 0
    assert "without tool schemas" not in said
    assert "not drawn: 1" in said
    assert "pivots of 5 turns" in said
    assert sent["tools"][0]["function"]["parameters"]["required"] == ["city"]


def test_schemas_from_a_file(monkeypatch, capsys, tmp_path, traces):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    code, said = run(
        *(monkeypatch, capsys, "import", traces, "--tools", tmp_path / "tools.json"),
        *("--run", tmp_path / "run"),
    )
    assert code == 0
    assert "without tool schemas" not in said
    first = json.loads((tmp_path / "run" / "trajectories.jsonl").read_text().splitlines()[0])
    assert first["tools"][0]["parameters"] == SCHEMA


def test_a_dialect_is_explained_and_can_be_named(monkeypatch, capsys, tmp_path, traces):
    _, said = run(monkeypatch, capsys, "import", traces, "--run", tmp_path / "a")
    assert "[tau_bench: has `task_id` and a list `traj`]" in said
    code, said = run(
        *(monkeypatch, capsys, "import", traces, "--dialect", "openai_chat"),
        *("--run", tmp_path / "b"),
    )
    assert code == 11
    assert "row that is not openai_chat" in said
    code, said = run(
        *(monkeypatch, capsys, "import", traces, "--dialect", "klingon", "--run", tmp_path / "c")
    )
    assert code == 11
    assert "unknown dialect" in said


def test_what_is_missing_or_wrong_is_said(monkeypatch, capsys, tmp_path, traces):
    code, said = run(monkeypatch, capsys, "profile", traces)
    assert code == 10
    assert "which model is to be profiled?" in said
    code, said = run(monkeypatch, capsys, "profile", tmp_path / "nowhere", "--model", "x")
    assert code == 10
    assert "no such file or folder" in said
    code, said = run(
        *(monkeypatch, capsys, "profile", traces, "--server", "localhost:1", "--run"),
        *(tmp_path / "run",),
    )
    assert code == 10
    assert "not an address" in said


def test_a_killed_profile_goes_on_and_samples_nothing_twice(monkeypatch, capsys, tmp_path, traces):
    asked = []

    def answer(city, seed):
        asked.append(city)
        return city if seed % 2 else "Paris"

    with endpoint(answer) as server:
        inner = server.script
        arguments = (monkeypatch, capsys, "profile", traces, "--server", server.url)
        # One at a time: nobody waits for requests in flight, and the next run must not meet them.
        more = ("--samples", 6, "profile.portion=2", "server.concurrency=1")
        more = (*more, "--run", tmp_path / "run")
        server.script = lambda request: Reply(b"gone", 410) if len(asked) >= 12 else inner(request)
        code, said = run(*arguments, *more)
        assert code == 17
        assert "410" in said
        server.script = inner
        code, said = run(*arguments, *more)
    assert code == 0
    stored = (tmp_path / "run" / "profiles" / "tool_call.jsonl").read_text()
    assert [json.loads(line)["turn_id"] for line in stored.splitlines()] == [
        f"task-{city}-trial-0#0" for city in CITIES[:4]
    ]
    assert sorted(asked[:24]) == sorted(6 * list(CITIES[:4]))
