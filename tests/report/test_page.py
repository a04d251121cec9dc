import hashlib
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from pivotune.core.estimate import Estimate
from pivotune.core.types import Cost
from pivotune.report.data import ReportData, StageCost
from pivotune.report.page import build_page
from pivotune.report.tables import LISTED_PIVOTS, markdown, table
from pivotune.report.text import show_line
from report.sample_report import full_report

HOSTILE = (
    "<script>alert(1)</script>\" onmouseover='alert(1)' x=\"{{ 7 * 7 }}",
    "</pre></details></style><img src=x onerror=alert(1)>{% include 'page.css' %}",
    "</title></svg><svg onload=alert(1)>$x^2$ \\frac{1}{2} & &amp; <!-- -->]]>",
    "\x00\x07\x1b[2J\u202eevil\u2066\ufeff\ud800 שלום עולם a\r\nb\rc\u2028d",
)


class Reader(HTMLParser):
    """Collects tags with their attributes' names, ids, links and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "action", "data"):
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def all_text(page: str) -> str:
    return " ".join("".join(Reader(page).text).split())


def test_page_is_one_file_that_runs_nothing_and_loads_nothing() -> None:
    page = plain_page()
    reader = Reader(page)
    names = Counter(tag for tag, _ in reader.tags)
    assert not {"script", "link", "iframe", "object", "img", "base", "form"} & names.keys()
    assert not [name for _, attrs in reader.tags for name in attrs if name.startswith("on")]
    assert all(link.startswith("#") for link in reader.links)
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert "default-src 'none'" in page
    assert not re.search(r"url\((?!#)|@import", page)
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_ids_are_unique_and_every_drawing_is_described() -> None:
    page = plain_page()
    reader = Reader(page)
    assert [name for name, n in Counter(reader.ids).items() if n > 1] == []
    drawings = re.findall(r"<svg[^>]*>", page)
    assert len(drawings) >= 8
    for drawing in drawings:
        labels = re.search(r'aria-labelledby="(\S+) (\S+)"', drawing)
        assert labels
        assert set(labels.groups()) <= set(reader.ids)
    assert page.count("<figure>") == page.count("The numbers</summary>") == len(drawings)


def test_colours_of_the_drawings_come_from_the_page() -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", plain_page(), re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}\b", drawings)
    variables = set(re.findall(r"var\(--([a-z0-9-]+)\)", drawings))
    style = re.search(r"<style>(.*?)</style>", plain_page(), re.DOTALL)
    assert style
    assert all(f"--{name}:" in style.group(1) for name in variables)


@cache
def plain_page() -> str:
    return build_page(full_report())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text(text: str) -> None:
    page = build_page(full_report(text))
    page.encode("utf-8")
    assert Counter(Reader(page).tags) == Counter(Reader(plain_page()).tags)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert " ".join(show_line(f"refused {text}", 200).split()) in all_text(page)


def test_a_line_of_a_megabyte_is_cut_with_a_count() -> None:
    page = build_page(full_report("x" * 1_000_000))
    assert len(page) < 600_000
    assert "more characters)" in page


def test_equal_data_give_equal_bytes_in_another_process(tmp_path: Path) -> None:
    script = (
        "import hashlib;from report.sample_report import full_report;"
        "from pivotune.report.page import build_page;"
        "print(hashlib.sha256(build_page(full_report()).encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    paths = f"{root / 'src'}:{root / 'tests'}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": paths, "PYTHONHASHSEED": "7", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    here = hashlib.sha256(plain_page().encode()).hexdigest()
    assert done.stdout.strip() == here


def test_a_run_that_only_profiled_shows_turns_only() -> None:
    full = full_report()
    page = build_page(
        ReportData(
            full.title,
            turns=full.turns,
            pivot_sets=full.pivot_sets,
            outcomes=full.outcomes,
            details=full.details,
        )
    )
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == ["Which turns matter", "Turn by turn"]
    links = Reader(page).links
    assert "#turns" in links
    assert not {"#results", "#training", "#cost"} & set(links)


def test_an_empty_run_is_still_a_page() -> None:
    page = build_page(ReportData("nothing yet"))
    assert "nothing yet" in page
    assert "<section" not in page


def test_undefined_figures_are_called_undefined() -> None:
    full = full_report()
    assert full.in_domain
    base, post = full.in_domain.scores
    unknown = Estimate.undefined("no task could be paired")
    suite = replace(full.in_domain, scores=(base, replace(post, change=unknown)))
    page = build_page(replace(full, in_domain=suite))
    assert "undefined" in all_text(page)
    assert "no task could be paired" in all_text(page)
    assert not re.search(r"\b(nan|NaN|None|inf)\b", all_text(page))


def test_no_pivots_is_shown_without_a_list() -> None:
    full = full_report()
    page = build_page(replace(full, turns=tuple(replace(t, selected=False) for t in full.turns)))
    assert "0 pivots of 90 profiled turns" in all_text(page)
    assert "List of pivots" not in page


def test_long_lists_are_bounded_and_say_so() -> None:
    page = build_page(full_report(turns=900))
    assert f"{500 - LISTED_PIVOTS:,} more pivots are in the run folder" in all_text(page)


def test_equal_samples_are_counted_together() -> None:
    text = all_text(plain_page())
    assert "2 × reward 1" in text
    assert "1 × reward 0 · empty" in text
    assert "1 × reward invalid · malformed" in text


def test_the_tax_is_told_in_words_and_by_budget() -> None:
    text = all_text(plain_page())
    assert "With one try post plain solves 40.0 % of the tasks, the base 20.0 %" in text
    assert "with 32 tries, 60.0 % against 70.0 %" in text
    assert "The base catches up at 22 tries (95 % interval 19 to more than 32)" in text
    assert "(Sharpening Tax S(32): +0.100, 95 % interval +0.050 to +0.150)" in text
    assert "post plain has less left to gain" in text
    assert "Left out, because a model lacks 32 tries there: 1." in text
    assert "post plain / other plain after step 20" in text
    assert "all of 32 tries" in text
    assert "Undefined: a rank correlation needs three models, got 2" in text


def test_a_method_that_never_beat_its_start_is_told() -> None:
    full = full_report()
    assert "what is evaluated under this name is the base itself" not in plain_page()
    (curve,) = full.curves
    page = build_page(replace(full, curves=(replace(curve, best_step=0),)))
    assert "post plain: no checkpoint did better" in all_text(page)


def test_one_pivot_is_open_and_it_shows_its_whole_state() -> None:
    assert plain_page().count('<details class="turn" open>') == 1
    full = full_report()
    long = replace(full.details[0], state=full.details[0].state * 3)
    page = build_page(replace(full, details=(long, *full.details[1:])))
    closed = page.index('<details class="turn">')
    assert closed < page.index('<details class="turn" open>')
    none = build_page(
        replace(full, details=tuple(replace(each, selected=False) for each in full.details))
    )
    assert '<details class="turn" open>' not in none


def test_every_table_can_be_reached_by_keyboard_and_has_a_name() -> None:
    page = plain_page()
    regions = re.findall(r'<div class="scroll"([^>]*)>\s*<table>', page)
    assert len(regions) == page.count("<table>") >= 20
    for region in regions:
        assert 'role="region" tabindex="0" aria-label="' in region
        assert ", a table that can be scrolled sideways" in region
    # A heading's own characters are escaped in the label too.
    assert 'aria-label="In-domain, a table' in page


def test_recovery_and_temperatures_are_shown() -> None:
    text = all_text(plain_page())
    assert "12 states just after a pivotal mistake of the base" in text
    assert "60 % of the base's failed episodes hold such a mistake" in text
    assert "the base, after the right action instead" in text
    assert "Recovered, turn by turn" in text
    assert "Sampling temperature" in text


def test_the_flow_names_every_stage_once() -> None:
    full = full_report()
    imported = StageCost("import", Cost(seconds=2.0))
    for costs in (full.costs, (imported, *full.costs)):
        page = build_page(replace(full, costs=costs))
        flow = page[page.index('class="flow"') : page.index("</ol>")]
        assert flow.count("<b>import</b>") == 1
        assert "3 trajectories of plain" in flow


def test_a_markdown_table_holds_any_text_in_its_cells() -> None:
    shown = table(("name", "n"), [("a | b\nc \\", "1")], "a note")
    assert markdown(shown) == ("| name | n |\n| --- | ---: |\n| a \\| b c \\\\ | 1 |\n\na note\n")
