"""`pivotune view`: a local web page over a run folder, one page of it in memory at a time.

It listens on 127.0.0.1 only and answers only requests that name it by that address, so no other
web page can read a run through the browser. No part of an address becomes a path: what is shown
is chosen by row numbers and by names that the run itself has.
"""

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import pivotune
from pivotune.core.errors import DataError, PivotuneError
from pivotune.core.store import read_records
from pivotune.core.types import Cost, JsonObject, Profile, Turn
from pivotune.pipeline.profiled_turns import turn_detail
from pivotune.pipeline.run import Run
from pivotune.pipeline.turn_index import (
    CLASSES,
    ORDERS,
    Slice,
    TurnIndex,
    TurnQuery,
    TurnRow,
    open_index,
)
from pivotune.report import view
from pivotune.report.shown import message_text
from pivotune.report.tables import table
from pivotune.report.text import number

Name = TypeVar("Name", bound=str)

ADDRESS = "127.0.0.1"
TURNS, TASKS, STEPS = 50, 50, 50
"""Rows of a page."""
SLICES = 12
HTML = "text/html; charset=utf-8"
POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
POLICY += "frame-ancestors 'none'"
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
REPORT_POLICY += "frame-ancestors 'none'"


class Answer(NamedTuple):
    """One HTTP answer."""

    body: bytes
    kind: str = HTML
    status: HTTPStatus = HTTPStatus.OK
    policy: str = POLICY


class _Missing(Exception):
    """Nothing in the run has this address."""


class Viewer:
    """Answers addresses over one run; safe to call from several threads."""

    def __init__(self, run: Run, spare: Path) -> None:
        self.run = run
        self.title = run.folder.path.resolve().name
        self._index: TurnIndex = open_index(run, spare)
        # The index does not change while it is open, and these look at every turn.
        self._classes = {str(name): n for name, n in self._index.count_classes().items()}
        self._kinds = self._index.slices("kind", SLICES)
        self._depths = self._index.slices("depth", SLICES)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._index.close()

    def answer(self, address: str) -> Answer:
        """The page at an address; what cannot be shown is a page that says why."""
        parts = urlsplit(address)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        try:
            with self._lock:
                return self._answer(parts.path, query)
        except _Missing:
            what = f"There is nothing at {parts.path} in this run."
            status = HTTPStatus.NOT_FOUND
        except PivotuneError as error:
            what, status = str(error), HTTPStatus.INTERNAL_SERVER_ERROR
            if isinstance(error, DataError):
                status = HTTPStatus.BAD_REQUEST
        return Answer(view.problem_page(self.title, what).encode(), status=status)

    def _answer(self, path: str, query: dict[str, str]) -> Answer:
        names = path.strip("/").split("/")
        match names:
            case [""]:
                return _html(self._overview())
            case ["style.css"]:
                return Answer(view.style_sheet().encode(), "text/css; charset=utf-8")
            case ["report"]:
                return self._report()
            case ["turns"]:
                return _html(self._turns(query))
            case ["turn", row]:
                return _html(self._turn(_number(row, "turn"), query.get("messages") == "all"))
            case ["turn", row, place]:
                return _html(self._message(_number(row, "turn"), _number(place, "message"), query))
            case ["tasks"]:
                return _html(self._tasks(query))
            case ["training"]:
                return _html(self._training(query))
        raise _Missing

    def _overview(self) -> str:
        folder = self.run.folder
        costs = {
            name: mark.cost
            for name, mark in folder.marks.items()
            if mark.done and mark.cost != Cost()
        }
        return view.overview(
            self.title,
            costs,
            self._classes,
            [_slice(each, "kind") for each in self._kinds],
            [_slice(each, "") for each in self._depths],
            self._index.suites(),
            self._methods(),
            (folder.path / "report.html").exists(),
        )

    def _report(self) -> Answer:
        try:
            body = (self.run.folder.path / "report.html").read_bytes()
        except FileNotFoundError as error:
            raise _Missing from error
        return Answer(body, policy=REPORT_POLICY)

    def _turns(self, query: dict[str, str]) -> str:
        wanted = TurnQuery(
            text=query.get("text", ""),
            shown=_one_of(CLASSES, query.get("shown", "all"), "shown"),
            order=_one_of(ORDERS, query.get("order", "trace"), "order"),
            kind=query.get("kind", ""),
            trajectory=_number(query.get("trajectory", "0"), "trajectory"),
        )
        page = _number(query.get("page", "1"), "page", least=1)
        rows, total = self._index.find(wanted, (page - 1) * TURNS, TURNS)
        asked = {name: str(getattr(wanted, name) or "") for name in wanted.__struct_fields__}
        return view.turn_list(
            self.title,
            [_row(each) for each in rows],
            view.page_links("/turns", asked, page, TURNS, total, "turns"),
            asked,
        )

    def _turn(self, row: int, everything: bool) -> str:
        turn, profile, pivot = self._read(row)
        before, after = self._index.neighbours(row)
        place = view.Place(
            trajectory=_turns_link(trajectory=str(self._index.trajectory_of(row))),
            before=f"/turn/{before}" if before is not None else "",
            after=f"/turn/{after}" if after is not None else "",
            messages=f"/turn/{row}",
        )
        return view.turn_page(self.title, turn_detail(turn, profile, pivot), place, everything)

    def _message(self, row: int, place: int, query: dict[str, str]) -> str:
        turn, _, _ = self._read(row)
        if place >= len(turn.state):
            raise _Missing
        message = turn.state[place]
        text = message_text(message)
        page = _number(query.get("page", "1"), "page", least=1)
        paging = view.page_links(
            f"/turn/{row}/{place}", {}, page, view.CHUNK, len(text), "characters"
        )
        return view.message_page(
            self.title,
            f"{turn.id}, message {place + 1} of {len(turn.state)}",
            message.role,
            text[(page - 1) * view.CHUNK : page * view.CHUNK],
            paging,
            f"/turn/{row}",
        )

    def _read(self, row: int) -> tuple[Turn, Profile | None, bool]:
        found = self._index.read_turn(row)
        if found is None:
            raise _Missing
        return found

    def _tasks(self, query: dict[str, str]) -> str:
        suites = self._index.suites()
        suite = query.get("suite", suites[0] if suites else "")
        if suites and suite not in suites:
            raise _Missing
        page = _number(query.get("page", "1"), "page", least=1)
        text = query.get("text", "")
        rows, total = self._index.tasks(suite, text, (page - 1) * TASKS, TASKS)
        asked = {"suite": suite, "text": text}
        return view.task_list(
            self.title,
            suite,
            suites,
            self._index.policies(suite),
            [(each.task, each.counts) for each in rows],
            view.page_links("/tasks", asked, page, TASKS, total, "tasks"),
            text,
        )

    def _methods(self) -> list[str]:
        """Methods whose training has a log."""
        folder = self.run.folder
        return [
            name
            for name in self.run.recipe.methods
            if (folder.checkpoints(name) / "metrics.jsonl").exists()
        ]

    def _training(self, query: dict[str, str]) -> str:
        methods = self._methods()
        method = query.get("method", methods[0] if methods else "")
        if methods and method not in methods:
            raise _Missing
        page = _number(query.get("page", "1"), "page", least=1)
        lines = []
        total = 0
        if methods:
            path = self.run.folder.checkpoints(method) / "metrics.jsonl"
            total = sum(1 for _ in read_records(path, JsonObject))
            records = read_records(path, JsonObject)
            lines = list(islice(records, (page - 1) * STEPS, page * STEPS))
        names = list(dict.fromkeys(name for line in lines for name in line))
        plain = [name for name in names if any(_is_plain(line.get(name)) for line in lines)]
        shown = table(
            [name.replace("_", " ") for name in plain],
            [[_figure(line.get(name)) for name in plain] for line in lines],
        )
        asked = {"method": method}
        paging = view.page_links("/training", asked, page, STEPS, total, "lines of the log")
        return view.training_page(self.title, method, methods, shown, paging)


def _html(page: str) -> Answer:
    return Answer(page.encode())


def _number(text: str, what: str, least: int = 0) -> int:
    """A number from an address; raises `DataError` for anything else."""
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least:
        return int(text)
    raise DataError(f"not a {what} number", got=text, expected=f"a number from {least} on")


def _one_of(allowed: Mapping[Name, str], text: str, what: str) -> Name:
    found = next((name for name in allowed if name == text), None)
    if found is None:
        raise DataError(f"unknown value of {what!r}", got=text, expected=", ".join(allowed))
    return found


def _turns_link(**query: str) -> str:
    return f"/turns?{urlencode(query)}"


def _row(each: TurnRow) -> view.ShownRow:
    return view.ShownRow(
        link=f"/turn/{each.row}",
        trajectory_link=_turns_link(trajectory=str(each.trajectory)),
        action=each.action or "(nothing)",
        position=f"turn {each.depth + 1}",
        mean="not profiled" if each.mean is None else number(each.mean),
        share=each.mean,
        badge="pivot" if each.pivot else "",
        task=each.task,
    )


def _slice(each: Slice, column: str) -> view.ShownSlice:
    link = _turns_link(**{column: each.name}) if column else ""
    name = each.name if column else str(int(each.name) + 1)
    return view.shown_slice(name, link, each.turns, each.mixed, each.pivots)


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str)


def _figure(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(float(value), 4)
    return "–" if value is None else str(value)


def _handler(viewer: Viewer, hosts: frozenset[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """GET and HEAD; everything else is refused by the base class."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes: no wait between them
        server_version = f"pivotune/{pivotune.__version__}"
        sys_version = ""

        def do_GET(self) -> None:
            self._send(with_body=True)

        def do_HEAD(self) -> None:
            self._send(with_body=False)

        def _send(self, *, with_body: bool) -> None:
            if self.headers.get("Host", "").lower() not in hosts:
                # A page of another site whose name was pointed at this address.
                self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
                return
            answer = viewer.answer(self.path)
            self.send_response(answer.status)
            for name, value in (
                ("Content-Type", answer.kind),
                ("Content-Length", str(len(answer.body))),
                ("Content-Security-Policy", answer.policy),
                ("X-Content-Type-Options", "nosniff"),
                ("Referrer-Policy", "no-referrer"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("Cross-Origin-Opener-Policy", "same-origin"),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Nothing is logged: pages are for one person."""

    return Handler


@contextmanager
def open_server(run: Run, port: int = 0) -> Iterator[ThreadingHTTPServer]:
    """A server over the run on 127.0.0.1; port 0 takes any free one. Serve it, then leave."""
    with tempfile.TemporaryDirectory() as spare:
        viewer = Viewer(run, Path(spare))
        try:
            server = ThreadingHTTPServer((ADDRESS, port), BaseHTTPRequestHandler)
            found = server.server_address[1]
            hosts = frozenset(f"{name}:{found}" for name in (ADDRESS, "localhost"))
            server.RequestHandlerClass = _handler(viewer, hosts)
            with server:
                yield server
        except OSError as error:
            raise DataError(
                f"cannot listen on port {port}: {error.strerror or error}",
                fix="choose another --port, or 0 for any free one",
            ) from error
        finally:
            viewer.close()
