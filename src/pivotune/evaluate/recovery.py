"""Can a policy recover? States just after pivotal mistakes of the base, replayed several times.

    base's episodes --oracle--> pivotal mistakes --c(t+1)--> states, the same for every policy
    state --8 replays--> won or not, turns taken beside the optimum

A mistake is pivotal by the oracle: the optimal number of remaining steps grew. At most one state
an episode, drawn by the seed, so that states are of different games or attempts. Left out, and
counted: mistakes after which the task cannot be solved, or not within the turns that are left.
Replays go on from the recorded history with the turns that the episode had left.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Self

import msgspec
import numpy as np

from pivotune.core.errors import DataError, VerifierError
from pivotune.core.estimate import Estimate
from pivotune.core.protocols import (
    Environment,
    OracleView,
    Sampler,
    ScoreRequest,
    StepResult,
)
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, Episode, Message, Task, ToolSpec, Turn
from pivotune.evaluate.intervals import bootstrap_estimate, resample_tasks
from pivotune.models.chat import ChatFormat
from pivotune.turns.mistakes import (
    Mark,
    OracleTeacher,
    ReplayDiffersError,
    Teacher,
    agreement,
    oracle_marks,
    replayed,
)
from pivotune.turns.rollout import (
    EpisodeLimits,
    MakeEnvironment,
    Play,
    contexts,
    episode_cost,
    run_episodes,
)


class MistakeState(msgspec.Struct, frozen=True):
    """A state just after a pivotal mistake; `remaining` is the optimal number of steps there.

    `turn` is that of the mistake (from 0); `turns_left` what the episode had left after it.
    """

    id: str
    task: Task
    history: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    turn: int
    gold: Message
    remaining: int
    turns_left: int


class Mistakes(msgspec.Struct, frozen=True):
    """The states, and what the base's episodes were like.

    `failed_with_mistake` is the share of failed episodes with a pivotal mistake (published:
    59 % on ALFWorld), `first_turns` the turns (from 0) of the first mistakes. `played` are the
    episodes themselves.
    """

    states: tuple[MistakeState, ...]
    played: tuple[Episode, ...]
    won: int
    failed_with_mistake: float | None
    first_turns: tuple[int, ...]
    left_out: dict[str, int]
    cost: Cost


class Replay(msgspec.Struct, frozen=True):
    """One replay of a state; `won` is None where the environment failed."""

    state: str
    repeat: int
    won: bool | None
    turns: int
    cost: Cost = Cost()


class RecoveryScore(msgspec.Struct, frozen=True):
    """How a policy recovers.

    `rate` is the mean over states of the share of replays that were won; `turns` and `optimum`
    are means over the replays that were won.
    """

    rate: Estimate
    turns: float | None
    optimum: float | None
    states: int
    replays: int


def find_mistakes(
    sampler: Sampler,
    tasks: Sequence[Task],
    make_environment: MakeEnvironment,
    *,
    wanted: int,
    temperature: float,
    seed: int,
    limits: EpisodeLimits,
    portion: int = 64,
) -> Mistakes:
    """Play the tasks in turn until there are `wanted` states, or no tasks any more."""
    states: list[MistakeState] = []
    played: list[Episode] = []
    left_out: Counter[str] = Counter()
    first_turns: list[int] = []
    won = failed = marked = 0
    cost = Cost()
    for start in range(0, len(tasks), portion):
        if len(states) >= wanted:
            break
        for episode in run_episodes(
            sampler,
            [Play(task) for task in tasks[start : start + portion]],
            make_environment,
            temperature=temperature,
            seed=derive_seed(seed, "mistakes"),
            limits=limits,
        ):
            cost += episode_cost(episode)
            if episode.reward is None:
                left_out["the environment failed"] += 1
                continue
            played.append(episode)
            won += episode.reward >= 0.5
            marks = _marks(episode, make_environment, left_out)
            if episode.reward < 0.5:
                failed, marked = failed + 1, marked + bool(marks)
            if marks:
                first_turns.append(marks[0].turn)
                states += _draw_state(episode, marks, make_environment, limits, seed, left_out)
    return Mistakes(
        states=tuple(states[:wanted]),
        played=tuple(played),
        won=won,
        failed_with_mistake=marked / failed if failed else None,
        first_turns=tuple(first_turns),
        left_out=dict(left_out),
        cost=cost,
    )


def _marks(episode: Episode, make: MakeEnvironment, left_out: Counter[str]) -> list[Mark]:
    try:
        return oracle_marks(episode, make)
    except ReplayDiffersError:
        left_out["the replay differs"] += 1
        return []


def _draw_state(
    episode: Episode,
    marks: Sequence[Mark],
    make: MakeEnvironment,
    limits: EpisodeLimits,
    seed: int,
    left_out: Counter[str],
) -> list[MistakeState]:
    """One of the episode's mistakes that can be recovered from, if there is any."""
    views = [environment.oracle() for environment in replayed(episode, make)]
    found = []
    for mark in marks:
        left = limits.max_turns - mark.turn - 1
        remaining = _remaining(views[mark.turn + 1])
        if remaining is None:
            left_out["out of reach after the mistake"] += 1
        elif remaining > left:
            left_out["too few turns left"] += 1
        else:
            found.append((mark, remaining, left))
    if not found:
        return []
    key = derive_seed(seed, "state", episode.task.id)
    mark, remaining, left = found[int(np.random.default_rng(key).integers(len(found)))]
    return [
        MistakeState(
            id=f"{episode.task.id}@{mark.turn}",
            task=episode.task,
            history=contexts(episode)[mark.turn + 1],
            tools=episode.tools,
            turn=mark.turn,
            gold=mark.gold,
            remaining=remaining,
            turns_left=left,
        )
    ]


class TeacherScore(msgspec.Struct, frozen=True):
    """A teacher's marks on some episodes beside the oracle's.

    `within_one`: the share of its marks that are at most one turn from an oracle's (published:
    77.8 %). `problems` counts what it said and could not be used.
    """

    episodes: int
    marks: int
    oracle_marks: int
    precision: float | None
    recall: float | None
    within_one: float | None
    problems: dict[str, int]
    cost: Cost


def score_teacher(
    teacher: Teacher,
    episodes: Sequence[Episode],
    make_environment: MakeEnvironment,
    *,
    limit: int,
    seed: int,
) -> TeacherScore:
    """Let the teacher mark at most `limit` turns an episode; the oracle marks all that it finds."""
    found = teacher.detect(episodes, limit=limit, seed=seed)
    longest = max((len(each.turns) for each in episodes), default=0)
    truth = OracleTeacher(make_environment).detect(episodes, limit=longest, seed=seed)
    counts = agreement(found.findings, truth.findings)
    return TeacherScore(
        episodes=len(episodes),
        marks=counts.teacher,
        oracle_marks=counts.oracle,
        precision=counts.precision,
        recall=counts.recall,
        within_one=counts.within_one,
        problems=found.problems,
        cost=found.cost + truth.cost,
    )


def _remaining(view: OracleView | None) -> int | None:
    return None if view is None else view.remaining


Variant = Literal["resample", "correct", "assist"]
"""Where a diagnosis begins: before the mistake; after the gold action in its place; after the
mistake and two turns of the oracle behind it."""


def vary_state(
    state: MistakeState, variant: Variant, make_environment: MakeEnvironment
) -> MistakeState | None:
    """The same episode from another point; None where the game is over there."""
    environment = make_environment(state.task)
    mistaken = max(i for i, each in enumerate(state.history) if each.role == "assistant")
    history = state.history if variant == "assist" else state.history[:mistaken]
    environment.restore(_turn(msgspec.structs.replace(state, history=history)))
    left = state.turns_left if variant == "assist" else state.turns_left + 1
    for _ in range({"resample": 0, "correct": 1, "assist": 2}[variant]):
        view = environment.oracle()
        if view is None or view.action is None:
            return None
        result = environment.step(view.action)
        history, left = (*history, view.action, *result.replies), left - 1
        if result.done:
            return None
    remaining = _remaining(environment.oracle())
    if remaining is None or left < 1:
        return None
    return msgspec.structs.replace(
        state, id=f"{state.id} {variant}", history=history, remaining=remaining, turns_left=left
    )


def gold_probability(
    sampler: Sampler, chat: ChatFormat, states: Sequence[MistakeState]
) -> float | None:
    """Mean probability of the oracle's whole action where the base made its mistakes."""
    requests = []
    for state in states:
        mistaken = max(i for i, each in enumerate(state.history) if each.role == "assistant")
        before = state.history[:mistaken]
        _, action = chat.render_action(before, state.tools, state.gold)
        requests.append(ScoreRequest(before, state.tools, tuple(action)))
    found = [float(np.exp(sum(each.logprobs))) for each in sampler.score(requests)]
    return float(np.mean(found)) if found else None


def _turn(state: MistakeState) -> Turn:
    """The state in the form that environments restore."""
    return Turn(
        id=state.id,
        trajectory_id=state.id,
        task=state.task,
        index=state.turn + 1,
        state=state.history,
        tools=state.tools,
        expert=state.gold,
    )


class _Resumed:
    """An environment whose episode begins at a recorded state."""

    def __init__(self, inner: Environment, state: MistakeState) -> None:
        self._inner = inner
        self._state = state

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return self._inner.tools

    def reset(self, task: Task) -> tuple[Message, ...]:
        self._inner.restore(_turn(self._state))
        self._turns = 0
        return self._state.history

    def step(self, action: Message) -> StepResult:
        self._turns += 1
        result = self._inner.step(action)
        over = self._turns >= self._state.turns_left
        return msgspec.structs.replace(result, done=result.done or over)

    def clone(self) -> Self:
        raise NotImplementedError("a replay is played once")

    def reward(self) -> float:
        return self._inner.reward()

    def restore(self, turn: Turn) -> None:
        raise NotImplementedError("a replay begins at its own state")

    def oracle(self) -> OracleView | None:
        return self._inner.oracle()


def replay_states(
    sampler: Sampler,
    states: Sequence[MistakeState],
    make_environment: MakeEnvironment,
    *,
    replays: int,
    temperature: float,
    seed: int,
    limits: EpisodeLimits,
    done: Mapping[tuple[str, int], Replay] | None = None,
    on_done: Callable[[Replay], None] | None = None,
) -> list[Replay]:
    """`replays` attempts from every state, but those in `done`; all in the order of the states.

    The random stream of a replay depends on (seed, state, repeat) only.
    """
    by_id = {state.id: state for state in states}
    if len(by_id) < len(states):
        raise DataError("two states of a recovery evaluation have the same id")
    found = dict(done or {})
    todo = [
        Play(Task(state.id, state.task.domain, payload=state.task.payload), repeat)
        for state in states
        for repeat in range(replays)
        if (state.id, repeat) not in found
    ]

    def record(number: int, episode: Episode) -> None:
        play = todo[number]
        won = None if episode.reward is None else episode.reward >= 0.5
        replay = Replay(play.task.id, play.repeat, won, len(episode.turns), episode_cost(episode))
        found[replay.state, replay.repeat] = replay
        if on_done is not None:
            on_done(replay)

    def make(task: Task) -> Environment:
        state = by_id[task.id]
        return _Resumed(make_environment(state.task), state)

    run_episodes(
        sampler,
        todo,
        make,
        temperature=temperature,
        seed=derive_seed(seed, "replays"),
        limits=limits,
        on_done=record,
    )
    return [found[state.id, repeat] for state in states for repeat in range(replays)]


def score_recovery(
    states: Sequence[MistakeState],
    replays: Sequence[Replay],
    *,
    seed: int = 0,
    failed_limit: float = 0.02,
) -> RecoveryScore:
    """Recovery rate with a bootstrap over states, and turns beside the optimum.

    Replays whose environment failed are left out; raises `VerifierError` when they are more
    than `failed_limit`.
    """
    valid = [each for each in replays if each.won is not None]
    if len(replays) - len(valid) > failed_limit * len(replays):
        raise VerifierError(
            f"{len(replays) - len(valid)} of {len(replays)} replays failed in the environment",
            expected=f"at most {failed_limit:.0%}",
        )
    wins: Counter[str] = Counter(each.state for each in valid if each.won)
    counts: Counter[str] = Counter(each.state for each in valid)
    rows = np.array([(wins[name], n) for name, n in counts.items()], np.int64)
    lost = len(states) - len(rows)
    if not len(rows):
        return RecoveryScore(Estimate.undefined("no states", left_out=lost), None, None, 0, 0)
    drawn = resample_tasks(rows, seed)
    shares = drawn.rows[:, 0] / drawn.rows[:, 1]
    rate = bootstrap_estimate(float(drawn.share @ shares), drawn.shares @ shares, len(rows), lost)
    optimum = {state.id: state.remaining for state in states}
    won = [each for each in valid if each.won]
    return RecoveryScore(
        rate=rate,
        turns=float(np.mean([each.turns for each in won])) if won else None,
        optimum=float(np.mean([optimum[each.state] for each in won])) if won else None,
        states=len(rows),
        replays=len(valid),
    )
