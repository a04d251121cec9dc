"""The two verbs that sample: groups of actions at recorded states, and whole episodes.

Both hand the sampler as many requests at once as they can; every random stream is named after
the turn or the task, so results do not depend on how the work is cut into batches.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from pivotune.core.errors import PivotuneError, VerifierError
from pivotune.core.protocols import Environment, Sampler, SampleRequest, Verifier
from pivotune.core.seeds import derive_seed
from pivotune.core.types import (
    Completion,
    Cost,
    Episode,
    EpisodeTurn,
    Message,
    ParseOutcome,
    Task,
    ToolSpec,
    Turn,
    Verdict,
)
from pivotune.verify import verify_all

MakeEnvironment = Callable[[Task], Environment]
"""An unset environment of the task's domain; `reset` or `restore` follows."""


class Group(msgspec.Struct, frozen=True):
    """n actions sampled at one turn, with their verdicts in the same order."""

    turn: Turn
    completions: tuple[Completion, ...]
    verdicts: tuple[Verdict, ...]
    cost: Cost


class RestoredEnvironments:
    """Environments standing at recorded turns, each restored once and then only cloned."""

    def __init__(self, make: MakeEnvironment, limit: int = 4096) -> None:
        self._make = make
        self._limit = limit
        self._at: dict[str, Environment] = {}

    def at(self, turn: Turn) -> Environment:
        """Raises `ReplayMismatch` when the recorded history does not replay."""
        found = self._at.get(turn.id)
        if found is None:
            found = self._make(turn.task)
            found.restore(turn)
            if len(self._at) >= self._limit:
                self._at.pop(next(iter(self._at)))
            self._at[turn.id] = found
        return found


def expects_call(turn: Turn) -> bool:
    """Whether an action without a tool call counts as `no_call` at this turn."""
    return bool(turn.expert.tool_calls)


def sample_groups(
    sampler: Sampler,
    turns: Sequence[Turn],
    verifier: Verifier,
    environments: RestoredEnvironments | None,
    *,
    n: int,
    temperature: float | Mapping[str, float],
    seed: int,
    max_tokens: int,
) -> list[Group]:
    """Sample `n` actions at each turn and judge every one of them.

    `temperature`: one for all, or that of every turn id (a missing one is a `KeyError`).
    """
    requests = [
        SampleRequest(
            messages=turn.state,
            tools=turn.tools,
            n=n,
            temperature=temperature[turn.id] if isinstance(temperature, Mapping) else temperature,
            seed=derive_seed(seed, "group", turn.id),
            max_tokens=max_tokens,
            expects_call=expects_call(turn),
            name=turn.id,
        )
        for turn in turns
    ]
    sampled = sampler.sample(requests)
    groups = []
    for turn, completions in zip(turns, sampled, strict=True):
        verdicts = judge(turn, completions, verifier, environments)
        groups.append(Group(turn, completions, verdicts, _group_cost(completions, verdicts)))
    return groups


def judge(
    turn: Turn,
    completions: Sequence[Completion],
    verifier: Verifier,
    environments: RestoredEnvironments | None,
) -> tuple[Verdict, ...]:
    """Verdicts of several actions at one turn; a verifier that fails gives invalid, not zero.

    Equal actions are judged once only when the verifier is a pure function of the action,
    which none declares: each is judged on its own. A verifier that waits for others is asked
    several times at once.
    """
    environment: Environment | None = None
    if verifier.needs_environment:
        if environments is None:
            raise VerifierError(
                f"the verifier {verifier.name!r} needs an environment, and these traces have none",
                where=turn.id,
                fix="choose a verifier that compares with the expert action, such as tool_call",
            )
        environment = environments.at(turn)
    return tuple(verify_all(verifier, turn, completions, environment))


def expert_completion(turn: Turn) -> Completion:
    """The expert's own action in the shape that verifiers take; it has no tokens."""
    return Completion(
        prompt_ids=(),
        token_ids=(),
        logprobs=(),
        message=turn.expert,
        outcome=ParseOutcome.OK,
        finish="stop",
        temperature=1.0,
        policy_hash="expert",
        text=turn.expert.content,
    )


def check_invalid_share(verdicts: Sequence[Verdict], limit: float, where: str) -> None:
    """Raise `VerifierError` when too many verdicts are invalid for the result to mean much."""
    invalid = [verdict for verdict in verdicts if verdict.invalid]
    if verdicts and len(invalid) > limit * len(verdicts):
        raise VerifierError(
            f"{len(invalid)} of {len(verdicts)} verdicts are invalid",
            where=where,
            got=invalid[0].reason,
            expected=f"at most {limit:.0%}",
            fix="mend the verifier or what it depends on; finished work is kept",
        )


def _group_cost(completions: Sequence[Completion], verdicts: Sequence[Verdict]) -> Cost:
    prompt = completions[0].prompt_length if completions else 0
    sampled = Cost(
        rollout_turns=len(completions),
        prompt_tokens=prompt,
        sampled_tokens=sum(each.length for each in completions),
    )
    return sampled + judging_cost(verdicts)


def judging_cost(verdicts: Sequence[Verdict]) -> Cost:
    """One call a verdict, and what the verdicts themselves say they took."""
    return sum((verdict.cost for verdict in verdicts), Cost(verifier_calls=len(verdicts)))


class Play(msgspec.Struct, frozen=True):
    """One episode to be played; repeats of a task differ in their random stream.

    `temperature`: that of every action of this episode; None is the run's.
    """

    task: Task
    repeat: int = 0
    temperature: float | None = None

    @property
    def name(self) -> str:
        return f"{self.task.id}/{self.repeat}"


class EpisodeLimits(msgspec.Struct, frozen=True):
    """Where an episode stops at the latest, and how many are played at once."""

    max_turns: int = 30
    max_tokens: int = 48
    live: int = 128


class _Live:
    """One episode while it is being played."""

    def __init__(self, number: int, play: Play, environment: Environment, seed: int) -> None:
        self.number = number
        self.task = play.task
        self.temperature = play.temperature
        self.environment = environment
        self.session = f"{seed}/{play.name}"
        self.opening = environment.reset(play.task)
        self.tools: tuple[ToolSpec, ...] = environment.tools
        self.history: list[Message] = list(self.opening)
        self.turns: list[EpisodeTurn] = []

    def end(
        self, ended: Literal["done", "turns", "context", "failed"], problem: str = ""
    ) -> Episode:
        reward = None
        if ended != "failed":
            try:
                reward = float(self.environment.reward())
                if not math.isfinite(reward):
                    raise ValueError(f"the reward is {reward}")
            except Exception as error:
                reward, ended, problem = None, "failed", _say_failure(error)
        turns = tuple(self.turns)
        return Episode(self.task, self.opening, turns, reward, ended, problem, self.tools)


def run_episodes(
    sampler: Sampler,
    plays: Sequence[Play],
    make_environment: MakeEnvironment,
    *,
    temperature: float,
    seed: int,
    limits: EpisodeLimits,
    on_done: Callable[[int, Episode], None] | None = None,
) -> list[Episode]:
    """Play every task to its end, many at once; results in the order of `plays`.

    `on_done(position, episode)` is called as episodes end. An environment that raises ends its
    episode as "failed" with no reward.
    """
    queue = list(enumerate(plays))
    queue.reverse()
    finished: dict[int, Episode] = {}

    def finish(number: int, episode: Episode, session: str) -> None:
        finished[number] = episode
        sampler.end_session(session)
        if on_done is not None:
            on_done(number, episode)

    live: list[_Live] = []
    while queue or live:
        while queue and len(live) < limits.live:
            number, play = queue.pop()
            try:
                live.append(_Live(number, play, make_environment(play.task), seed))
            except Exception as error:
                failed = Episode(play.task, (), (), None, "failed", _say_failure(error))
                finish(number, failed, play.name)
        live = _play_round(sampler, live, finish, temperature=temperature, seed=seed, limits=limits)
    return [finished[number] for number in range(len(plays))]


def _play_round(
    sampler: Sampler,
    live: list[_Live],
    finish: Callable[[int, Episode, str], None],
    *,
    temperature: float,
    seed: int,
    limits: EpisodeLimits,
) -> list[_Live]:
    """One action in every live episode; the episodes that go on."""
    going: list[_Live] = []
    for each in live:
        room = sampler.context_limit - sampler.count(each.history, each.tools)
        if room < limits.max_tokens:
            finish(each.number, each.end("context", f"{room} tokens left"), each.session)
        else:
            going.append(each)
    requests = [
        SampleRequest(
            messages=tuple(each.history),
            tools=each.tools,
            n=1,
            temperature=temperature if each.temperature is None else each.temperature,
            seed=derive_seed(seed, "episode", each.session, len(each.turns)),
            max_tokens=limits.max_tokens,
            session=each.session,
            expects_call=True if each.tools else None,
            name=f"{each.task.id}, turn {len(each.turns)}",
        )
        for each in going
    ]
    still: list[_Live] = []
    for each, (completion,) in zip(going, sampler.sample(requests), strict=True):
        ended = _take_step(each, completion, limits.max_turns)
        if ended is None:
            still.append(each)
        else:
            finish(each.number, ended, each.session)
    return still


def _take_step(live: _Live, completion: Completion, max_turns: int) -> Episode | None:
    try:
        result = live.environment.step(completion.message)
    except Exception as error:
        # An environment that breaks is a failed episode with a reason, not a lost task.
        live.turns.append(EpisodeTurn(completion, ()))
        return live.end("failed", _say_failure(error))
    live.turns.append(EpisodeTurn(completion, result.replies))
    live.history += [completion.message, *result.replies]
    if result.done:
        return live.end("done")
    if len(live.turns) >= max_turns:
        return live.end("turns")
    return None


def _say_failure(error: Exception) -> str:
    return str(error) if isinstance(error, PivotuneError) else f"{type(error).__name__}: {error}"


def contexts(episode: Episode) -> list[tuple[Message, ...]]:
    """The history before each action of an episode, and behind them that after the last."""
    found = [episode.opening]
    for turn in episode.turns:
        found.append((*found[-1], turn.completion.message, *turn.replies))
    return found


def episode_cost(episode: Episode) -> Cost:
    """What playing an episode used (seconds are charged by the caller's clock)."""
    completions = [turn.completion for turn in episode.turns]
    return Cost(
        rollout_turns=len(completions),
        prompt_tokens=sum(each.prompt_length for each in completions),
        sampled_tokens=sum(each.length for each in completions),
        environment_steps=len(completions),
    )
