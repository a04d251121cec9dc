"""Pages of the local view: the same words and looks as the report, a page at a time.

No script and no style but the one style sheet, so that the pages work under a policy that
forbids everything else. Links are built here from numbers and quoted values only.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from urllib.parse import urlencode

import msgspec

from pivotune.core.types import Cost
from pivotune.report.data import StageCost, TurnDetail
from pivotune.report.render import render
from pivotune.report.shown import show_turn
from pivotune.report.tables import Table, cost_table
from pivotune.report.text import number, percent, show, show_line

MESSAGES = 30
"""Messages of a state on a page: the last ones; the earlier ones a link away."""
CHARACTERS = 4000
"""Characters of a message on a page of messages; a page of its own shows more."""
CHUNK = 50_000
"""Characters of a single message on a page."""

CLASS_LABELS = {
    "all": "all turns",
    "pivots": "pivots",
    "mixed": "mixed results",
    "fail": "always fail",
    "pass": "always succeed",
    "unprofiled": "not profiled",
}
ORDER_LABELS = {
    "trace": "as in the traces",
    "low": "lowest mean first",
    "high": "highest mean first",
    "spread": "largest spread first",
    "depth": "earliest in the episode first",
}


class Choice(msgspec.Struct, frozen=True):
    """An option of a form."""

    value: str
    label: str
    chosen: bool


class Paging(msgspec.Struct, frozen=True):
    """Where a page stands in a list, and the links around it (empty: there is none)."""

    says: str
    first: str
    before: str
    after: str
    last: str


class ShownRow(msgspec.Struct, frozen=True):
    """A turn in a list; `share` is its mean reward, None where it was not profiled."""

    link: str
    trajectory_link: str
    action: str
    position: str
    mean: str
    share: float | None
    badge: str
    task: str


class ShownSlice(msgspec.Struct, frozen=True):
    """A row of the overview, with the share of its turns whose results are mixed."""

    link: str
    name: str
    turns: str
    share: float
    mixed: str
    pivots: str


class Place(msgspec.Struct, frozen=True):
    """Links around one turn."""

    trajectory: str
    before: str
    after: str
    messages: str


def page_links(
    path: str, query: Mapping[str, str], page: int, size: int, total: int, unit: str
) -> Paging:
    """Page `page` (from 1) of a list of `total` things."""
    pages = max(1, -(-total // size))

    def link(to: int) -> str:
        kept = {name: value for name, value in query.items() if value}
        return f"{path}?{urlencode({**kept, 'page': str(to)})}"

    first = min(total, (page - 1) * size + 1)
    says = f"{first:,} to {min(total, page * size):,} of {total:,} {unit}"
    return Paging(
        says=says if total else f"no {unit}",
        first=link(1) if page > 2 else "",
        before=link(page - 1) if page > 1 else "",
        after=link(page + 1) if page < pages else "",
        last=link(pages) if page < pages - 1 else "",
    )


def choices(labels: Mapping[str, str], chosen: str) -> list[Choice]:
    """Options in order."""
    return [Choice(value, label, value == chosen) for value, label in labels.items()]


def style_sheet() -> str:
    """The report's own looks, and what only the view has."""
    folder = files("pivotune.report") / "templates"
    return "\n".join(
        (folder / name).read_text(encoding="utf-8") for name in ("page.css", "view.css")
    )


def overview(
    title: str,
    costs: Mapping[str, Cost],
    classes: Mapping[str, int],
    kinds: Sequence[ShownSlice],
    depths: Sequence[ShownSlice],
    suites: Sequence[str],
    methods: Sequence[str],
    has_report: bool,
) -> str:
    """The first page: what the run holds, and ways into it."""
    return render(
        "view_overview.html",
        title=show_line(title),
        here="overview",
        classes=[
            (CLASS_LABELS[name], number(count), f"/turns?{urlencode({'shown': name})}")
            for name, count in classes.items()
            if count
        ],
        kinds=kinds,
        depths=depths,
        suites=[(show_line(name), f"/tasks?{urlencode({'suite': name})}") for name in suites],
        methods=[(show_line(name), f"/training?{urlencode({'method': name})}") for name in methods],
        costs=_costs(costs),
        has_report=has_report,
    )


def _costs(costs: Mapping[str, Cost]) -> Table | None:
    return cost_table([StageCost(name, cost) for name, cost in costs.items()]) if costs else None


def turn_list(
    title: str,
    rows: Sequence[ShownRow],
    paging: Paging,
    query: Mapping[str, str],
) -> str:
    """One page of turns, with the form that finds them."""
    return render(
        "view_turns.html",
        title=show_line(title),
        here="turns",
        rows=rows,
        paging=paging,
        text=show_line(query["text"], 200),
        kind=show_line(query["kind"], 60),
        trajectory=query["trajectory"],
        classes=choices(CLASS_LABELS, query["shown"]),
        orders=choices(ORDER_LABELS, query["order"]),
    )


def turn_page(title: str, detail: TurnDetail, place: Place, everything: bool) -> str:
    """One turn in full; `everything` shows all messages of the state."""
    most = len(detail.state) if everything else MESSAGES
    return render(
        "view_turn.html",
        title=show_line(title),
        here="turns",
        turn=show_turn(detail, messages=max(1, most), characters=CHARACTERS),
        place=place,
    )


def message_page(title: str, where: str, role: str, text: str, paging: Paging, back: str) -> str:
    """A piece of one long message."""
    return render(
        "view_message.html",
        title=show_line(title),
        here="turns",
        where=show_line(where, 160),
        role=role,
        text=show(text, CHUNK + 1),
        paging=paging,
        back=back,
    )


def task_list(
    title: str,
    suite: str,
    suites: Sequence[str],
    policies: Sequence[str],
    rows: Sequence[tuple[str, Mapping[str, tuple[int, int]]]],
    paging: Paging,
    text: str,
) -> str:
    """One page of a suite's tasks: how often each policy solved them."""
    return render(
        "view_tasks.html",
        title=show_line(title),
        here="tasks",
        suites=choices({name: name for name in suites}, suite),
        policies=[show_line(name) for name in policies],
        rows=[
            (show_line(task, 100), [_count(counts.get(name)) for name in policies])
            for task, counts in rows
        ],
        paging=paging,
        text=show_line(text, 200),
    )


def _count(found: tuple[int, int] | None) -> tuple[str, float | None]:
    if found is None or not found[1]:
        return "–", None
    return f"{found[0]:,} of {found[1]:,}", found[0] / found[1]


def training_page(
    title: str, method: str, methods: Sequence[str], shown: Table, paging: Paging
) -> str:
    """Some steps of a training log, every measure of them."""
    return render(
        "view_training.html",
        title=show_line(title),
        here="training",
        methods=choices({name: name for name in methods}, method),
        table=shown,
        paging=paging,
    )


def problem_page(title: str, what: str) -> str:
    """A page that says what is wrong."""
    return render("view_problem.html", title=show_line(title), here="", what=show(what, 2000))


def shown_slice(name: str, link: str, turns: int, mixed: int, pivots: int) -> ShownSlice:
    """A row of the overview."""
    share = mixed / turns if turns else 0.0
    return ShownSlice(link, show_line(name), number(turns), share, percent(share), number(pivots))
