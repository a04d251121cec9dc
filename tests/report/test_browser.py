"""The page in a real Chromium: nothing overflows, nothing is refused, nothing is logged."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pivotune.report.page import build_page
from report.sample_report import full_report

WIDTHS = (390, 1280)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)

# The page forbids scripts, so an outer page of the test's own measures it from outside.
OUTER = """<!doctype html><title>test</title><p id="result">waiting</p>
{frames}
<script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument;
    const closed = page.documentElement.scrollWidth;
    page.querySelectorAll("details").forEach(each => {{ each.open = true; }});
    const wide = [...page.querySelectorAll("svg")].filter(
      each => each.getBoundingClientRect().right > page.documentElement.clientWidth + 1);
    return {{
      width: page.documentElement.clientWidth,
      closed: closed,
      open: page.documentElement.scrollWidth,
      sections: page.querySelectorAll("section").length,
      wide_drawings: wide.length,
      scripts: page.querySelectorAll("script").length,
      ran: frame.contentWindow.ran === true,
    }};
  }});
  document.getElementById("result").textContent = JSON.stringify(found);
}});
</script>"""


def find_chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs Chromium")
    return found


@pytest.fixture
def chromium() -> str:
    return find_chromium()


def measure(chromium: str, folder: Path, shown: str) -> tuple[list[dict[str, int]], str]:
    """What each width measured of a page, and what the browser logged."""
    page = html.escape(shown, quote=True)
    frames = "".join(
        f'<iframe width="{width}" height="900" style="border:0" srcdoc="{page}"></iframe>'
        for width in WIDTHS
    )
    outer = folder / "outer.html"
    outer.write_text(OUTER.format(frames=frames), encoding="utf-8")
    dom, log = visit(chromium, folder, outer.as_uri())
    result = re.search(r'<p id="result">(.*?)</p>', dom)
    assert result, log[-2000:]
    return json.loads(html.unescape(result.group(1))), log


def visit(chromium: str, folder: Path, address: str) -> tuple[str, str]:
    """The document after loading an address, and what the browser logged."""
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [chromium, *FLAGS, profile, "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.mark.reference
@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "x" * 100_000,
        "<script>ran = true</script><img src=x onerror='ran = true'>\u202eevil\x00",
    ],
    ids=["plain", "long", "hostile"],
)
def test_page_fits_phone_and_desk_and_runs_nothing(
    chromium: str, tmp_path: Path, text: str
) -> None:
    found, log = measure(chromium, tmp_path, build_page(full_report(text)))
    for width, page in zip(WIDTHS, found, strict=True):
        assert page["sections"] == 8
        assert page["width"] in range(width - 20, width + 1)
        assert page["closed"] <= page["width"]
        assert page["open"] <= page["width"]
        assert (page["wide_drawings"], page["scripts"], page["ran"]) == (0, 0, False)
    assert "CONSOLE" not in log
