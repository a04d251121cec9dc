from pathlib import Path

import pytest

from pivotune.core.errors import DataError
from pivotune.core.tally import Tally
from pivotune.evaluate.tallies import read_tallies


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_and_json_lines_read_alike(tmp_path: Path) -> None:
    table = write(tmp_path, "a.csv", "﻿n,task,c,extra\n4,first,1,x\n8, two ,8,\n")
    lines = write(
        tmp_path, "a.jsonl", '{"task": "first", "c": 1, "n": 4}\n\n{"task":" two ","c":8.0,"n":8}\n'
    )
    expected = {"first": Tally(1, 3), " two ": Tally(8, 0)}
    assert read_tallies(table) == expected
    assert read_tallies(lines) == expected
    assert list(read_tallies(table)) == ["first", " two "]


def test_a_quoted_task_may_hold_commas_and_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'task,c,n\n"a, ""b""\nc",1,2\n')
    assert read_tallies(path) == {'a, "b"\nc': Tally(1, 1)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "no column task, c, n"),
        ("a.csv", "task,c\nx,1\n", "a.csv:1: no column n"),
        ("a.csv", "task,c,n\n", "no rows"),
        ("a.csv", "task,c,n\nx,5,4\n", "a.csv:2: impossible counts"),
        ("a.csv", "task,c,n\nx,0,0\n", "impossible counts"),
        ("a.csv", "task,c,n\nx,-1,4\n", "impossible counts"),
        ("a.csv", "task,c,n\nx,1.5,4\n", "c is not a whole number"),
        ("a.csv", "task,c,n\nx,nan,4\n", "c is not a whole number"),
        ("a.csv", "task,c,n\nx,inf,4\n", "c is not a whole number"),
        ("a.csv", "task,c,n\nx,1\n", "n is not a number"),
        ("a.csv", "task,c,n\nx,1,4\ny,1,4\nx,2,4\n", "a.csv:4: task 'x' appears twice"),
        ("a.csv", "task,c,n\n,1,4\n", "needs a name"),
        ("a.jsonl", '{"task":"x","c":1,"n":4}\n{"task"\n', "a.jsonl:2: not JSON"),
        ("a.jsonl", "[1]\n", "not a tally"),
        ("a.jsonl", '{"task":"x","c":true,"n":4}\n', "c is not a number"),
        ("a.jsonl", '{"task":null,"c":1,"n":4}\n', "needs a name"),
        ("a.jsonl", "", "no rows"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_tallies(write(tmp_path, name, text))


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_tallies(tmp_path / "none.csv")
