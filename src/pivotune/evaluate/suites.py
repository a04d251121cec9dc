"""Playing a suite of tasks and keeping every outcome, so that a killed evaluation goes on.

A suite's log holds one record per episode. Which random stream an episode draws from depends
on (seed, task, repeat) only.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from pivotune.core.errors import VerifierError
from pivotune.core.protocols import Choosing, Sampler
from pivotune.core.store import AppendLog, read_records
from pivotune.core.tally import Tally
from pivotune.core.types import Cost, Episode, Task
from pivotune.evaluate.choices import answer_by_choice, check_rollouts
from pivotune.turns.rollout import (
    EpisodeLimits,
    MakeEnvironment,
    Play,
    episode_cost,
    run_episodes,
)

Kind = Literal["in_domain", "out_of_domain"]


class Suite(msgspec.Struct, frozen=True):
    """Tasks to play, each `rollouts` times at `temperature`.

    A task's group for tables is `payload["group"]` (its type or skill). An episode succeeds
    when its reward is at least `success_at`.
    """

    name: str
    kind: Kind
    tasks: tuple[Task, ...]
    rollouts: int = 1
    temperature: float = 1.0
    limits: EpisodeLimits = EpisodeLimits()
    success_at: float = 0.5


class Outcome(msgspec.Struct, frozen=True):
    """One played episode of a suite; `reward` is None when the environment failed."""

    task_id: str
    group: str
    repeat: int
    reward: float | None
    turns: int
    ended: str
    cost: Cost
    problem: str = ""


def evaluate_suite(
    sampler: Sampler,
    suite: Suite,
    make_environment: MakeEnvironment,
    *,
    seed: int,
    path: Path,
    on_progress: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Play what the log at `path` does not hold yet; all outcomes in suite order."""
    done: dict[tuple[str, int], Outcome] = {}
    if path.exists():
        done = {(each.task_id, each.repeat): each for each in read_records(path, Outcome)}
    plays = [Play(task, repeat) for task in suite.tasks for repeat in range(suite.rollouts)]
    todo = [play for play in plays if (play.task.id, play.repeat) not in done]
    if on_progress is not None and done:
        on_progress(len(plays) - len(todo))
    clock = time.perf_counter()
    with AppendLog(path) as log:

        def record(number: int, episode: Episode, cost: Cost) -> None:
            # Each outcome carries the wall time since the one before it: the sum over the log
            # is what the suite took, also when it was killed and resumed in between.
            nonlocal clock
            seconds, clock = time.perf_counter() - clock, time.perf_counter()
            outcome = _outcome(todo[number], episode, cost + Cost(seconds=seconds))
            done[outcome.task_id, outcome.repeat] = outcome
            log.append([outcome])
            if on_progress is not None:
                on_progress(1)

        _play(sampler, suite, todo, make_environment, seed, record)
    return [done[play.task.id, play.repeat] for play in plays]


def score_suite(
    sampler: Sampler, suite: Suite, make_environment: MakeEnvironment, *, seed: int
) -> tuple[float, Cost]:
    """Share of successful episodes, played at once and kept nowhere: for validation.

    Episodes whose environment failed are left out, as everywhere.
    """
    plays = [Play(task, repeat) for task in suite.tasks for repeat in range(suite.rollouts)]
    start, won, known, total = time.perf_counter(), 0, 0, Cost()

    def count(number: int, episode: Episode, cost: Cost) -> None:
        nonlocal won, known, total
        if episode.reward is not None:
            known += 1
            won += episode.reward >= suite.success_at
        total += cost

    _play(sampler, suite, plays, make_environment, seed, count)
    return won / max(1, known), total + Cost(seconds=time.perf_counter() - start)


def _play(
    sampler: Sampler,
    suite: Suite,
    plays: Sequence[Play],
    make_environment: MakeEnvironment,
    seed: int,
    on_done: Callable[[int, Episode, Cost], None],
) -> None:
    """Play episodes, or answer by choice where the tasks ask for it."""
    if plays and isinstance(make_environment(plays[0].task), Choosing):
        check_rollouts(suite.rollouts, suite.name)
        answer_by_choice(sampler, [play.task for play in plays], make_environment, on_done)
        return
    run_episodes(
        sampler,
        plays,
        make_environment,
        temperature=suite.temperature,
        seed=seed,
        limits=suite.limits,
        on_done=lambda number, episode: on_done(number, episode, episode_cost(episode)),
    )


def _outcome(play: Play, episode: Episode, cost: Cost) -> Outcome:
    return Outcome(
        task_id=play.task.id,
        group=str(play.task.payload.get("group", "")),
        repeat=play.repeat,
        reward=episode.reward,
        turns=len(episode.turns),
        ended=episode.ended,
        cost=cost,
        problem=episode.problem,
    )


def suite_cost(outcomes: Sequence[Outcome]) -> Cost:
    """What all episodes used."""
    return sum((outcome.cost for outcome in outcomes), Cost())


def tallies(
    outcomes: Sequence[Outcome], *, success_at: float = 0.5, failed_limit: float = 0.02
) -> dict[str, Tally]:
    """Successes and failures by task id, in order of first appearance.

    Episodes whose environment failed are left out; raises `VerifierError` when they are more
    than `failed_limit` of all.
    """
    failed = [each for each in outcomes if each.reward is None]
    if len(failed) > failed_limit * len(outcomes):
        raise VerifierError(
            f"{len(failed)} of {len(outcomes)} episodes failed in the environment",
            got=failed[0].problem,
            expected=f"at most {failed_limit:.0%}",
        )
    counts: dict[str, Tally] = defaultdict(Tally)
    for each in outcomes:
        if each.reward is not None:
            counts[each.task_id] = counts[each.task_id].add(each.reward >= success_at)
    return dict(counts)
