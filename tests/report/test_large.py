import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource, sys, time
from report.sample_report import full_report
from pivotune.report.page import build_page
data = full_report(turns=100_000)
start = time.process_time()
page = build_page(data)
seconds = time.process_time() - start
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, len(page))
"""


@pytest.mark.slow
def test_a_hundred_thousand_turns_fit_in_a_minute_and_a_gigabyte() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, megabytes, characters = map(float, done.stdout.split())
    assert seconds < 60
    assert megabytes < 1024
    assert characters < 2_000_000
