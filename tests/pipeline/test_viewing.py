"""The local view over run folders written by hand: every page, over a real connection."""

import http.client
import threading
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from pipeline.test_reporting import (
    call,
    chosen_of,
    open_run,
    profile,
    trajectory,
    write_profiles,
    write_rest,
)
from pivotune.core.store import write_records
from pivotune.core.types import Cost, Message, Task, Trajectory, Verdict
from pivotune.evaluate.suites import Outcome
from pivotune.pipeline.evaluation import suites
from pivotune.pipeline.reporting import report
from pivotune.pipeline.turn_index import TurnQuery, open_index
from pivotune.pipeline.viewing import Viewer, open_server
from report.test_browser import find_chromium, measure, visit

HOSTILE = "<script>alert(1)</script>\x00\u202e\"'><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """Every start tag with its attributes, and the text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    @property
    def links(self):
        return [attrs["href"] for tag, attrs in self.tags if tag == "a"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = open_run(tmp_path_factory.mktemp("runs") / "run")
    write_profiles(run, 10)
    write_rest(run)
    report(run)
    return run


def pages(viewer, start="/"):
    """Every page that can be reached from the first one by links of the view."""
    seen, todo = {}, [start]
    while todo:
        address = todo.pop()
        if address not in seen:
            seen[address] = viewer.answer(address)
            if seen[address].kind.startswith("text/html") and address != "/report":
                links = Tags(seen[address].body.decode()).links
                todo += [
                    f"{address.partition('?')[0]}{each}" if each.startswith("?") else each
                    for each in links
                ]
    return seen


def test_every_link_leads_to_a_page(finished, tmp_path):
    viewer = Viewer(finished, tmp_path)
    found = pages(viewer)
    assert {answer.status for answer in found.values()} == {200}
    assert {f"/turn/{row}" for row in range(1, 101)} <= set(found)
    assert {"/", "/turns", "/tasks", "/training", "/report"} <= set(found)
    for answer in found.values():
        if answer.policy.find("'unsafe-inline'") < 0:
            tags = Tags(answer.body.decode()).tags
            assert not any("style" in attrs for _, attrs in tags)
            assert not {tag for tag, _ in tags} & {"script", "style", "iframe", "img"}


def test_turns_are_found_by_class_words_kind_and_order(finished, tmp_path):
    index = open_index(finished, tmp_path)
    rows, total = index.find(TurnQuery(shown="pivots"), 0, 1000)
    chosen = {f"t{i // 10}#{i % 10}" for i in range(100) if 1 <= i % 9 <= 5 and i % 50}
    assert {each.id for each in rows} == chosen == set(chosen_of(10))
    assert total == len(chosen)
    counts = index.count_classes()
    assert counts["all"] == 100
    assert counts["mixed"] == sum(0 < i % 9 < 8 for i in range(100))
    assert counts["fail"] + counts["pass"] + counts["mixed"] == 100
    page, total = index.find(TurnQuery(order="low"), 10, 5)
    assert (len(page), total) == (5, 100)
    lowest, _ = index.find(TurnQuery(order="low"), 0, 100)
    assert [each.mean for each in lowest] == sorted(i % 9 / 8 for i in range(100))
    looked, _ = index.find(TurnQuery(kind="look"), 0, 100)
    assert {each.action for each in looked} == {'act(command="look")'}
    _, total = index.find(TurnQuery(text="DESK take"), 0, 100)
    assert total == sum(i % 10 % 3 == 1 for i in range(100))
    assert index.find(TurnQuery(text="%_'\""), 0, 10) == ([], 0)
    in_order, total = index.find(TurnQuery(trajectory=4), 0, 100)
    assert [each.depth for each in in_order] == list(range(10)) == list(range(total))
    assert index.neighbours(in_order[0].row) == (None, in_order[1].row)


def test_a_turn_is_shown_with_samples_verdicts_and_temperature(finished, tmp_path):
    viewer = Viewer(finished, tmp_path)
    text = " ".join(Tags(viewer.answer("/turn/3").body.decode()).text.split())
    for said in (
        'pivot turn 3: act(command="look")',
        "mean reward 0.250",
        "put a mug on the desk",
        "1 × reward 1",
        "optimal remaining steps 6 -> 4",
        "8 samples at temperature 1, policy policy-hash, verifier progress 1",
        "all turns of this trajectory",
    ):
        assert said in text


def test_tasks_that_changed_most_come_first(finished, tmp_path):
    viewer = Viewer(finished, tmp_path)
    tags = Tags(viewer.answer("/tasks?suite=household-unseen").body.decode())
    text = " ".join(tags.text.split())
    assert "1 to 4 of 4 tasks" in text
    tasks = [each.id for each in suites(finished)[0].tasks]
    # The base wins the first game, the method the first three: games two and three moved.
    assert max(text.index(tasks[i]) for i in (1, 2)) < min(text.index(tasks[i]) for i in (0, 3))


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/turn/0", 404),
        ("/turn/101", 404),
        ("/turn/3/999", 404),
        ("/nothing", 404),
        ("/tasks?suite=other", 404),
        ("/training?method=../../etc/passwd", 404),
        ("/turn/x", 400),
        ("/turn/1e3", 400),
        ("/turns?page=0", 400),
        ("/turns?page=99999999999", 400),
        ("/turns?order=row;DROP", 400),
        ("/turns?shown=<script>", 400),
        ("/turns?trajectory=t1", 400),
        ("/turns?text=<script>%00%E2%80%AE%FF", 200),
        ("//etc/passwd", 404),
        ("/turns?page=900", 200),
    ],
)
def test_addresses_that_are_wrong_are_told_and_harmless(finished, tmp_path, address, status):
    answer = Viewer(finished, tmp_path).answer(address)
    assert answer.status == status
    assert b"<script>" not in answer.body


def test_hostile_traces_are_shown_as_text(tmp_path):
    run = open_run(tmp_path / "run")
    long = "x" * 1_000_000
    messages = [Message("user", HOSTILE), call(HOSTILE), Message("tool", long), call("look")]
    task = Task(HOSTILE, "household")
    traces = Trajectory(HOSTILE, "household", task, (), tuple(messages), reward=1.0)
    write_records(run.folder.trajectories, [traces])
    bad = profile(f"{HOSTILE}#1", 3)
    said = replace(
        bad.samples[0], message=Message("assistant", HOSTILE), verdict=Verdict(0.0, HOSTILE)
    )
    write_records(run.folder.profiles("progress"), [replace(bad, samples=(said, *bad.samples[1:]))])
    won = Outcome(HOSTILE, HOSTILE, 0, 1.0, 1, "done", Cost())
    write_records(run.folder.outcomes("base", suites(run)[0].name), [won])
    for address, answer in pages(Viewer(run, tmp_path)).items():
        assert answer.status == 200, address
        page = answer.body.decode()
        tags = Tags(page)
        assert not {tag for tag, _ in tags.tags} & {"script", "img"}
        assert not any(name.startswith("on") for _, attrs in tags.tags for name in attrs)
        assert "\x00" not in page
        assert "\u202e" not in page
        assert len(page) < 100_000
    whole = Viewer(run, tmp_path).answer("/turn/2/2?page=20").body.decode()
    assert "950,001 to 1,000,000 of 1,000,000 characters" in whole


def test_an_index_is_kept_and_made_again_when_the_run_has_changed(tmp_path):
    run = open_run(tmp_path / "run")
    write_records(run.folder.trajectories, [trajectory(0)])
    open_index(run, tmp_path).close()
    made = (run.folder.path / "view.sqlite").stat().st_mtime_ns
    open_index(run, tmp_path).close()
    assert (run.folder.path / "view.sqlite").stat().st_mtime_ns == made
    write_profiles(run, 2)
    index = open_index(run, tmp_path)
    assert index.find(TurnQuery(), 0, 1)[1] == 20
    assert index.count_classes()["unprofiled"] == 0


@pytest.fixture
def connection(finished):
    with open_server(finished) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        port = server.server_address[1]
        yield http.client.HTTPConnection("127.0.0.1", port, timeout=300), port
        server.shutdown()
        thread.join()


def get(connection, method="GET", host=None, path="/"):
    client, port = connection
    client.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = client.getresponse()
    return answer, answer.read()


def test_only_this_machine_is_answered_under_a_strict_policy(connection):
    answer, body = get(connection)
    assert answer.status == 200
    assert b"pivotune view" in body
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Server"].startswith("pivotune/")
    # Another site's name that resolves to this address (DNS rebinding) gets nothing.
    assert get(connection, host="evil.example")[0].status == 421


def test_head_and_other_methods(connection):
    answer, body = get(connection, method="HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0
    assert get(connection, method="POST")[0].status == 501


@pytest.mark.reference
def test_pages_fit_phone_and_desk_and_are_refused_nothing(finished, connection, tmp_path):
    """Every kind of page: measured in frames without the policy, then loaded under it."""
    chromium = find_chromium()
    viewer = Viewer(finished, tmp_path)
    sheet = viewer.answer("/style.css").body.decode()
    for address in ("/", "/turns", "/turn/3", "/turn/3/0", "/tasks", "/training", "/nothing"):
        page = viewer.answer(address).body.decode()
        link = '<link rel="stylesheet" href="/style.css">'
        assert link in page
        found, _ = measure(chromium, tmp_path, page.replace(link, f"<style>{sheet}</style>"))
        for each in found:
            assert each["open"] <= each["width"], address
        dom, log = visit(chromium, tmp_path, f"http://127.0.0.1:{connection[1]}{address}")
        assert "pivotune view" in dom
        assert "CONSOLE" not in log or address == "/nothing", address
