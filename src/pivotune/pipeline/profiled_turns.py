"""The profiled turns of a run as the report needs them, read as streams.

A run may hold 100,000 turns with 8 samples each, half a gigabyte of profiles: one pass reads
rewards and parse outcomes only, one goes through the traces, and one decodes the few turns that
are shown in full.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pivotune.core.store import read_records
from pivotune.core.types import ParseOutcome, Profile, Sample, Trajectory, Turn, Verdict
from pivotune.ingest import split_turns
from pivotune.pipeline.run import Run
from pivotune.report.actions import action_kind, action_text
from pivotune.report.data import SampleView, TurnDetail, TurnPoint
from pivotune.turns.pivots import ProfileStats, reward_stats

DETAILED_PIVOTS = 16
DETAILED_OTHERS = 4
"""Turns shown in full: pivots, and turns that always fail or always pass (each so many)."""


class _Verdict(msgspec.Struct, frozen=True, gc=False):
    reward: float | None


class _Sample(msgspec.Struct, frozen=True, gc=False):
    outcome: ParseOutcome
    verdict: _Verdict


class _Head(msgspec.Struct, frozen=True):
    """The part of a stored profile that figures are made of."""

    turn_id: str
    expert: _Verdict
    samples: tuple[_Sample, ...]


class _Named(msgspec.Struct, frozen=True):
    """Which turn a stored profile is of."""

    turn_id: str


class _Kind(NamedTuple):
    """What a turn is counted under."""

    depth: int
    action: str
    domain: str


class ProfiledTurns(msgspec.Struct, frozen=True):
    """All usable turns as points, some in full, and what the samples turned out to be."""

    points: tuple[TurnPoint, ...]
    outcomes: dict[str, int]
    details: tuple[TurnDetail, ...]
    trajectories: int


def read_profiled_turns(run: Run, verifier: str, chosen: Collection[str]) -> ProfiledTurns:
    """Everything the page says of turns, under one verifier and the pivots it chose."""
    stats: dict[str, ProfileStats] = {}
    outcomes: Counter[str] = Counter()
    for head in _usable(run, verifier):
        outcomes.update(sample.outcome.value for sample in head.samples)
        if (found := reward_stats(_rewards(head))) is not None:
            stats[head.turn_id] = found
    detailed = _choose_details(stats, chosen)
    kinds, turns, trajectories = _read_traces(run, stats.keys(), detailed)
    points = tuple(
        _point(turn_id, kinds[turn_id], each, turn_id in chosen)
        for turn_id, each in stats.items()
        if turn_id in kinds
    )
    return ProfiledTurns(
        points=points,
        outcomes=dict(sorted(outcomes.items())),
        details=_details(run, verifier, turns, chosen),
        trajectories=trajectories,
    )


def _usable(run: Run, verifier: str) -> Iterable[_Head]:
    """The profiles that a selection sees: see `usable_profiles`."""
    settings = run.recipe.candidates
    for head in read_records(run.folder.profiles(verifier), _Head):
        reward = head.expert.reward
        if settings.keep_wrong_expert or (reward is not None and reward >= settings.success_at):
            yield head


def _rewards(head: _Head) -> list[float]:
    return [each.verdict.reward for each in head.samples if each.verdict.reward is not None]


def _choose_details(stats: dict[str, ProfileStats], chosen: Collection[str]) -> set[str]:
    """Evenly spaced pivots, and a few turns of each kind that teaches nothing."""
    dead = [(turn_id, each.mean) for turn_id, each in stats.items() if not each.mixed]
    pivots = [turn_id for turn_id in stats if turn_id in chosen]
    failed = [turn_id for turn_id, mean in dead if mean < 0.5]
    passed = [turn_id for turn_id, mean in dead if mean >= 0.5]
    return {
        *_spaced(pivots, DETAILED_PIVOTS),
        *_spaced(failed, DETAILED_OTHERS),
        *_spaced(passed, DETAILED_OTHERS),
    }


def _spaced(turn_ids: Sequence[str], most: int) -> list[str]:
    if len(turn_ids) <= most:
        return list(turn_ids)
    return [turn_ids[int(i)] for i in np.linspace(0, len(turn_ids) - 1, most)]


def _read_traces(
    run: Run, wanted: Collection[str], detailed: Collection[str]
) -> tuple[dict[str, _Kind], dict[str, Turn], int]:
    """What the wanted turns are counted under, the detailed ones whole, how many trajectories."""
    kinds: dict[str, _Kind] = {}
    turns: dict[str, Turn] = {}
    count = 0
    for trajectory in read_records(run.folder.trajectories, Trajectory):
        count += 1
        for turn in split_turns(trajectory):
            if turn.id in wanted:
                domain = sys.intern(turn.task.domain)
                kinds[turn.id] = _Kind(turn.index, action_kind(turn.expert), domain)
            if turn.id in detailed:
                turns[turn.id] = turn
    return kinds, turns, count


def _point(turn_id: str, kind: _Kind, stats: ProfileStats, selected: bool) -> TurnPoint:
    return TurnPoint(
        turn_id=turn_id,
        depth=kind.depth,
        kind=kind.action,
        mean=stats.mean,
        spread=float(np.sqrt(stats.variance)),
        live=stats.mixed,
        selected=selected,
        domain=kind.domain,
    )


def _details(
    run: Run, verifier: str, turns: dict[str, Turn], chosen: Collection[str]
) -> tuple[TurnDetail, ...]:
    """Only the profiles that are shown are decoded whole."""
    found = []
    for line in read_records(run.folder.profiles(verifier), msgspec.Raw):
        turn_id = msgspec.json.decode(line, type=_Named).turn_id
        if turn_id in turns:
            profile = msgspec.json.decode(line, type=Profile)
            found.append(turn_detail(turns[turn_id], profile, turn_id in chosen))
    return tuple(found)


def turn_detail(turn: Turn, profile: Profile | None, selected: bool) -> TurnDetail:
    """A turn as it is shown in full, with its samples where it was profiled."""
    sampling = ""
    if profile is not None:
        sampling = (
            f"{len(profile.samples)} samples at temperature {profile.temperature:g}, "
            f"policy {profile.policy_hash}, verifier {profile.verifier} {profile.verifier_version}"
        )
    return TurnDetail(
        turn_id=turn.id,
        task_id=turn.task.id,
        depth=turn.index,
        kind=action_kind(turn.expert),
        selected=selected,
        state=turn.state,
        expert_action=action_text(turn.expert),
        expert=profile.expert if profile else Verdict(None, "not profiled"),
        samples=_show_samples(profile.samples) if profile else (),
        sampling=sampling,
    )


def _show_samples(samples: Iterable[Sample]) -> tuple[SampleView, ...]:
    """Stored samples as they are shown: as calls where they could be read, else as they were."""
    return tuple(
        SampleView(action_text(each.message) or each.text, each.outcome, each.verdict)
        for each in samples
    )
