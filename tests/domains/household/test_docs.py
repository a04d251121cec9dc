"""The programs in the documentation run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "household.md"


def test_the_programs_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(programs) == 2
    exec(compile("\n".join(programs), str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("-= Welcome to TextWorld, ALFRED! =-")
    assert "'optimal':" in printed
    assert len(Path("traces.jsonl").read_text().splitlines()) == 5
