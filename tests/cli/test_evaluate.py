"""Models by themselves: from tallies, and played."""

from typer.testing import CliRunner

from pivotune.cli.main import app
from pivotune.core.errors import PivotuneError
from pivotune.core.scores import Evaluated
from pivotune.core.store import read_json


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["evaluate", *map(str, arguments)])


def evaluated(path):
    return read_json(path, dict[str, Evaluated])


def test_tallies_by_themselves(tmp_path):
    (tmp_path / "one.csv").write_text("task,c,n\na,2,4\nb,0,4\n")
    (tmp_path / "two.csv").write_text("task,c,n\na,4,4\nb,4,4\n")
    out = tmp_path / "out"
    shown = run(tmp_path / "one.csv", tmp_path / "two.csv", "--out", out)
    assert shown.exit_code == 0
    found = evaluated(out / "evaluate.json")
    assert list(found) == ["one", "two"]
    one = found["one"]
    assert one.success.value == 0.25
    # Two of four: the chance that a pair has one is 1 - 1/6, that of three or four is 1.
    assert [round(each, 9) for each in one.coverage.values] == [0.25, round(5 / 12, 9), 0.5, 0.5]
    assert [round(each, 9) for each in one.reliability.values[:2]] == [0.25, round(1 / 12, 9)]
    assert (one.classes.given_compute, one.classes.never) == (1, 1)
    assert found["two"].classes.always == 2
    row = next(line for line in shown.output.splitlines() if line.strip().startswith("one"))
    assert "25.0" in row
    assert "0 / 1 / 1" in row


def test_a_model_is_played_once_and_goes_on(tmp_path):
    asked = ("lab", "--suite", "skills:eval", "--tasks", 4, "--out", tmp_path)
    assert run(*asked).exit_code == 0
    first = (tmp_path / "outcomes" / "lab.jsonl").read_bytes()
    assert evaluated(tmp_path / "evaluate.json")["lab"].success.tasks == 4
    assert run(*asked, "--rollouts", 2).exit_code == 0
    second = (tmp_path / "outcomes" / "lab.jsonl").read_bytes()
    assert second.startswith(first)
    assert len(second.splitlines()) == 8
    assert len(evaluated(tmp_path / "evaluate.json")["lab"].coverage.values) == 2


def test_what_would_be_ignored_is_refused(tmp_path):
    (tmp_path / "one.csv").write_text("task,c,n\na,2,4\n")
    for arguments in (
        ("--suite", "skills:eval"),
        ("seed=1", "--rollouts", 2),
        (tmp_path / "one.csv", "seed=1"),
        (tmp_path / "one.csv", "--run", tmp_path / "run"),
        ("lab", "--rollouts", 0, "--out", tmp_path / "out"),
    ):
        failed = run(*arguments)
        assert isinstance(failed.exception, PivotuneError), arguments
    assert not (tmp_path / "run").exists()
