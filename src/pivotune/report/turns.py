"""Figures over all profiled turns: where the policy is undecided, and what it cannot say."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from pivotune.report.data import TurnPoint
from pivotune.report.text import percent, show_line

BINS = 8
"""Bins of the mean reward over [0, 1]: one for every count of K = 8, the last one shared."""
DEEPEST = 20
"""Depths from here on are counted together."""
KINDS = 12
"""Kinds of action shown by name; rarer ones are counted together."""
FEW = 10
"""Turns under which a share says little."""
GRID = 80
OTHER = "other kinds"


class Slice(msgspec.Struct, frozen=True):
    """Turns that have something in common, how many of them are live, and how many chosen."""

    name: str
    turns: int
    live: int
    selected: int

    @property
    def live_share(self) -> float:
        return self.live / self.turns


class Place(msgspec.Struct, frozen=True, order=True):
    """Turns with the same mean and spread of the reward, to the nearest 1/80.

    The grid holds every mean of 8, 10 or 16 samples.
    """

    mean: float
    spread: float
    selected: bool
    turns: int


class TurnFigures(msgspec.Struct, frozen=True):
    """Counts over profiled turns; `histogram` of means in equal bins, `chosen_histogram` of the
    selected ones; a turn whose rewards are all equal failed always or passed always.
    `by_domain` is empty where all turns are of one domain."""

    turns: int
    selected: int
    all_fail: int
    live: int
    all_pass: int
    histogram: tuple[int, ...]
    chosen_histogram: tuple[int, ...]
    by_depth: tuple[Slice, ...]
    by_kind: tuple[Slice, ...]
    places: tuple[Place, ...]
    by_domain: tuple[Slice, ...] = ()


def count_turns(points: Sequence[TurnPoint]) -> TurnFigures:
    """All figures in one place, so that page and summary cannot differ."""
    dead = [point for point in points if not point.live]
    passed = sum(point.mean >= 0.5 for point in dead)
    return TurnFigures(
        turns=len(points),
        selected=sum(point.selected for point in points),
        all_fail=len(dead) - passed,
        live=len(points) - len(dead),
        all_pass=passed,
        histogram=_histogram(points),
        chosen_histogram=_histogram([point for point in points if point.selected]),
        by_depth=_by_depth(points),
        by_kind=_by_name(points, lambda point: point.kind),
        places=_places(points),
        by_domain=_by_name(points, lambda point: point.domain)
        if len({point.domain for point in points}) > 1
        else (),
    )


def _histogram(points: Iterable[TurnPoint]) -> tuple[int, ...]:
    counts = Counter(min(BINS - 1, int(point.mean * BINS)) for point in points)
    return tuple(counts[i] for i in range(BINS))


def _places(points: Sequence[TurnPoint]) -> tuple[Place, ...]:
    counts = Counter(
        (round(each.mean * GRID) / GRID, round(each.spread * GRID) / GRID, each.selected)
        for each in points
    )
    return tuple(sorted(Place(*place, n) for place, n in counts.items()))


def _by_depth(points: Sequence[TurnPoint]) -> tuple[Slice, ...]:
    groups: dict[int, list[TurnPoint]] = defaultdict(list)
    for point in points:
        groups[min(point.depth, DEEPEST)].append(point)
    return tuple(
        _slice(f"{depth + 1}{'+' if depth == DEEPEST else ''}", groups[depth])
        for depth in sorted(groups)
    )


def _by_name(points: Sequence[TurnPoint], name_of: Callable[[TurnPoint], str]) -> tuple[Slice, ...]:
    """The most frequent names, and all others together."""
    groups: dict[str, list[TurnPoint]] = defaultdict(list)
    for point in points:
        groups[name_of(point)].append(point)
    ordered = sorted(groups, key=lambda name: (-len(groups[name]), name))
    rest = [point for name in ordered[KINDS:] for point in groups[name]]
    slices = [_slice(name, groups[name]) for name in ordered[:KINDS]]
    return (*slices, _slice(OTHER, rest)) if rest else tuple(slices)


def _slice(name: str, points: Sequence[TurnPoint]) -> Slice:
    return Slice(
        name,
        len(points),
        sum(point.live for point in points),
        sum(point.selected for point in points),
    )


def say_where(figures: TurnFigures) -> str:
    """At which kinds of action the policy is undecided most and least often, in one sentence.

    Empty where there are not two kinds with enough turns, or no difference between them.
    """
    known = [each for each in figures.by_kind if each.turns >= FEW and each.name != OTHER]
    ordered = sorted(known, key=lambda each: (-each.live_share, each.name))
    if len(ordered) < 2 or ordered[0].live_share == ordered[-1].live_share:
        return ""
    most, least = (
        f"“{show_line(each.name, 40)}” ({percent(each.live_share, 0)} of {each.turns:,} turns)"
        for each in (ordered[0], ordered[-1])
    )
    return (
        f"It is undecided most often where the expert's action is {most}, least often where it is "
        f"{least}."
    )


def say_outcomes(outcomes: Mapping[str, int]) -> str:
    """What the samples turned out to be, the most frequent first: "96 % malformed, 4 % ok"."""
    total = max(1, sum(outcomes.values()))
    ordered = sorted(outcomes.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(
        f"{percent(n / total, 0)} {name.replace('_', ' ')}" for name, n in ordered if n
    )


def say_no_pivots(figures: TurnFigures, outcomes: Mapping[str, int]) -> list[str]:
    """A profile that leaves nothing to train on, and what to do about it."""
    kinds = f"{figures.all_fail:,} always fail, {figures.all_pass:,} always succeed"
    live = f", {figures.live:,} are undecided but outside the rule" if figures.live else ""
    found = [f"0 pivots of {figures.turns:,} profiled turns: {kinds}{live}."]
    if outcomes:
        found.append(f"The samples: {say_outcomes(outcomes)}.")
    if advice := advise(figures, outcomes):
        found.append(f"What to do: {' '.join(advice)}")
    return found


def advise(figures: TurnFigures, outcomes: Mapping[str, int]) -> list[str]:
    """What the counts suggest doing next, in plain words; empty where nothing stands out."""
    samples, turns = max(1, sum(outcomes.values())), max(1, figures.turns)
    broken = outcomes.get("malformed", 0) + outcomes.get("empty", 0)
    found = (
        (
            broken / samples,
            0.25,
            "of the samples could not be read as an action. Warm the policy up with a short SFT "
            "on the traces, or check the chat template.",
        ),
        (
            outcomes.get("truncated", 0) / samples,
            0.05,
            "of the samples hit the token limit. Raise profile.max_tokens where the expert says "
            "more than that; a policy that never ends its action needs a short SFT first.",
        ),
        (
            outcomes.get("no_call", 0) / samples,
            0.25,
            "of the samples talk where a tool call was expected. Check that the tools reach the "
            "prompt.",
        ),
        (
            figures.all_fail / turns,
            0.5,
            "of the turns never succeed and teach nothing. A short SFT first, or a more lenient "
            "verifier, brings more of them to life.",
        ),
        (
            figures.all_pass / turns,
            0.5,
            "of the turns always succeed: the policy can do them already. Bring harder traces.",
        ),
    )
    return [f"{percent(share, 0)} {advice}" for share, limit, advice in found if share > limit]
