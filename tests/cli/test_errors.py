"""Bad input on the command line: one clear message each, an exit code of its own, no traceback."""

import json
import resource

import pytest

from pivotune.cli import main as cli

GOOD = {
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ]
}


def run(monkeypatch, capsys, *arguments):
    """Exit code and what was printed to the error stream and the output."""
    monkeypatch.setattr("sys.argv", ["pivotune", *map(str, arguments)])
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err + printed.out
    return code, " ".join((printed.err + printed.out).split())


def row(*messages):
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in messages]})


TRACES = {
    "empty file": ("", "empty file"),
    "broken JSON": ('{"messages": [', "traces.jsonl:1"),
    "no assistant turn": (row(("user", "a")), "assistant"),
    "unknown role": (row(("user", "a"), ("wizard", "b"), ("assistant", "c")), "wizard"),
    "tool result without a call": (row(("user", "a"), ("tool", "b"), ("assistant", "c")), "call"),
}


@pytest.mark.parametrize("kind", TRACES)
def test_traces_that_cannot_be_used(monkeypatch, capsys, tmp_path, kind):
    text, message = TRACES[kind]
    path = tmp_path / "traces.jsonl"
    path.write_text(text)
    code, printed = run(
        *(monkeypatch, capsys, "import", f"traces.path={path}", "--run", tmp_path / "run")
    )
    assert code == 11
    assert message in printed


def test_one_broken_line_is_counted_and_the_rest_is_kept(monkeypatch, capsys, tmp_path):
    lines = [json.dumps(GOOD)] * 6 + ['{"messages": oops}'] + [json.dumps(GOOD)] * 3
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(lines))
    folder = tmp_path / "run"
    code, printed = run(monkeypatch, capsys, "import", f"traces.path={path}", "--run", folder)
    assert code == 0
    assert "traces.jsonl:7" in printed
    assert len((folder / "trajectories.jsonl").read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["plan", "none.toml"], 10, "recipe not found"),
        (["plan", "profile.sampels=3"], 10, "did you mean 'samples'"),
        (["plan", "traces.domain=chess"], 10, "unknown domain"),
        (["plan", "model=no/where/at/all", "traces.games=2"], 12, "no/where"),
        (["import", "traces.path=no-such-file.jsonl"], 11, "no-such-file.jsonl"),
        (["select", "--redo", "selekt"], 10, "no such stage"),
    ],
)
def test_settings_that_cannot_be_used(monkeypatch, capsys, tmp_path, arguments, code, message):
    found, printed = run(monkeypatch, capsys, *arguments, "--run", tmp_path / "run")
    assert found == code
    assert message in printed


def test_a_full_disk_is_one_message_and_the_run_goes_on_afterwards(monkeypatch, capsys, tmp_path):
    folder = tmp_path / "run"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        code, printed = run(monkeypatch, capsys, "import", "traces.games=30", "--run", folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 15
    assert "finished work is kept" in printed
    assert run(monkeypatch, capsys, "import", "traces.games=30", "--run", folder)[0] == 0
    assert len((folder / "trajectories.jsonl").read_text().splitlines()) == 30


def test_version_and_help(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version")[0] == 0
    code, printed = run(monkeypatch, capsys, "--help")
    assert code == 0
    assert all(name in printed for name in ("run", "plan", "profile", "select", "report"))
