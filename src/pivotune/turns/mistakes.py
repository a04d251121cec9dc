"""Pivotal mistakes: which turns of an episode decided it, and what would have been better.

    episode + outcome --teacher--> marks (turn, gold action) and a lesson
    context           --teacher--> one admissible action

`OracleTeacher` knows the whole state: a turn is pivotal when the optimal number of remaining
steps grew, or the task became unsolvable (for analysis, and as an upper bound). `ModelTeacher`
asks any sampler: a stronger model, a server, or the student's own weights; a turn that it names
is pivotal where the committed action differs from the gold one. Everything that a teacher says
and that cannot be used is counted under a reason.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from pivotune.core.errors import PivotuneError, RecipeError
from pivotune.core.protocols import Advising, Environment, OracleView, Sampler, SampleRequest
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Completion, Cost, Episode, Message, Task, ToolSpec
from pivotune.turns.questions import Answer, Question
from pivotune.turns.rollout import MakeEnvironment, contexts
from pivotune.turns.wording import committed, spell_action

T = TypeVar("T")
R = TypeVar("R")


class Mark(msgspec.Struct, frozen=True):
    """A pivotal turn (from 0) and the action that would have been better."""

    turn: int
    gold: Message


class Finding(msgspec.Struct, frozen=True):
    """What a teacher found in one episode."""

    marks: tuple[Mark, ...] = ()
    lesson: str = ""


class Detected(msgspec.Struct, frozen=True):
    """One finding an episode, and the number of unusable statements by reason."""

    findings: tuple[Finding, ...]
    problems: dict[str, int]
    cost: Cost


class Standing(msgspec.Struct, frozen=True):
    """A context at which one action is wanted. `environment` stands there, where there is one."""

    task: Task
    history: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    environment: Environment | None = None


class Suggested(msgspec.Struct, frozen=True):
    """One action a context, None where the teacher has none that can be used."""

    actions: tuple[Message | None, ...]
    problems: dict[str, int]
    cost: Cost


class Teacher(Protocol):
    """Detects pivotal mistakes and suggests actions."""

    @property
    def name(self) -> str: ...

    def detect(self, episodes: Sequence[Episode], *, limit: int, seed: int) -> Detected:
        """At most `limit` marks an episode."""
        ...

    def suggest(self, standings: Sequence[Standing], *, seed: int) -> Suggested: ...


class ReplayDiffersError(Exception):
    """A replayed environment answered otherwise than the episode says."""


def replayed(episode: Episode, make: MakeEnvironment) -> Iterator[Environment]:
    """The environment before each action of an episode, and after the last: the same object.

    Raises `ReplayDiffersError` where an answer is not the recorded one, or none comes.
    """
    environment = make(episode.task)
    if _answer(environment.reset, episode.task) != episode.opening:
        raise ReplayDiffersError
    yield environment
    for turn in episode.turns:
        if _answer(environment.step, turn.completion.message).replies != turn.replies:
            raise ReplayDiffersError
        yield environment


def _answer(act: Callable[[T], R], given: T) -> R:
    try:
        return act(given)
    except Exception as error:  # an environment that breaks is not the one that was played
        raise ReplayDiffersError from error


def standings(episode: Episode, make: MakeEnvironment) -> list[Standing | None]:
    """Where each action of an episode was taken; None from where its replay differs."""
    found: list[Standing | None] = []
    states = contexts(episode)[:-1]
    try:
        for state, environment in zip(states, replayed(episode, make), strict=False):
            found.append(Standing(episode.task, state, episode.tools, environment.clone()))
    except (ReplayDiffersError, PivotuneError):
        pass
    return found + [None] * (len(states) - len(found))


class OracleTeacher:
    """Marks by optimal remaining steps. It gives no lesson: its knowledge is not the player's.

    `waste`: turns that changed nothing are marked too (ours). They harm nothing, so they are not
    pivotal, but an episode has an end. `fair`: the actions are those of a player that knows what
    the episode has shown (ours), for an environment that knows one; what the oracle would do where
    something is still to be found cannot be known, and who imitates it learns to guess.
    """

    def __init__(
        self, make_environment: MakeEnvironment, *, waste: bool = False, fair: bool = False
    ) -> None:
        self._make = make_environment
        self._waste = waste
        self._fair = fair

    @property
    def name(self) -> str:
        return "player" if self._fair else "oracle"

    def detect(self, episodes: Sequence[Episode], *, limit: int, seed: int) -> Detected:
        findings, steps = [], 0
        problems: Counter[str] = Counter()
        for episode in episodes:
            steps += len(episode.turns)
            try:
                marks = oracle_marks(episode, self._make, waste=self._waste, fair=self._fair)
            except ReplayDiffersError:
                marks = []
                problems["the replay differs"] += 1
            findings.append(Finding(tuple(marks[:limit])))
        return Detected(tuple(findings), dict(problems), Cost(environment_steps=steps))

    def suggest(self, standings: Sequence[Standing], *, seed: int) -> Suggested:
        actions: list[Message | None] = []
        for each in standings:
            view = each.environment.oracle() if each.environment is not None else None
            if view is None or each.environment is None:
                raise _no_oracle(each.task)
            actions.append(_advice(each.environment, each.task) if self._fair else view.action)
        lacking = sum(action is None for action in actions)
        problems = {"out of the oracle's reach": lacking} if lacking else {}
        return Suggested(tuple(actions), problems, Cost())


def oracle_marks(
    episode: Episode, make: MakeEnvironment, *, waste: bool = False, fair: bool = False
) -> list[Mark]:
    """Every turn after which more steps are needed than before, or none will do any more.

    With `waste` also every turn after which the oracle sees what it saw before; with `fair` none
    that the player would have taken, too.
    """
    marks: list[Mark] = []
    before, standing = None, None
    for turn, environment in enumerate(replayed(episode, make), -1):
        view = environment.oracle()
        if view is None:
            raise _no_oracle(episode.task)
        if before is not None and standing is not None:
            gold = before.action
            wrong = _farther(before, view) or (waste and view == before)
            if wrong and gold is not None and fair:
                gold = _instead(standing, episode.turns[turn].completion.message, episode.task)
            if wrong and gold is not None:
                marks.append(Mark(turn, gold))
        before, standing = view, environment.clone()
    return marks


def _instead(standing: Environment, action: Message, task: Task) -> Message | None:
    """The player's action; None where it is the same."""
    gold = _advice(standing, task)
    if gold is None or committed(standing, gold) == committed(standing, action):
        return None
    return gold


def _advice(environment: Environment, task: Task) -> Message | None:
    if not isinstance(environment, Advising):
        raise RecipeError(
            f"the domain {task.domain!r} knows no player",
            where=task.id,
            fix='use the oracle or a model as teacher (kind = "oracle", "model" or "self")',
        )
    return environment.advice()


def _farther(before: OracleView, after: OracleView) -> bool:
    if before.remaining is None:
        return False
    return after.remaining is None or after.remaining > before.remaining


def _no_oracle(task: Task) -> RecipeError:
    return RecipeError(
        f"the domain {task.domain!r} has no oracle",
        where=task.id,
        fix='use a model as teacher (teacher = "model" or "self")',
    )


class ModelTeacher:
    """Asks a sampler, in the form of a `Question`; answers are read at `temperature`."""

    def __init__(
        self,
        sampler: Sampler,
        make_environment: MakeEnvironment,
        question: Question,
        *,
        temperature: float = 0.0,
        max_tokens: int = 256,
    ) -> None:
        self._sampler = sampler
        self._make = make_environment
        self._question = question
        self._temperature = temperature
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        return f"{self._sampler.name} ({self._question.name})"

    def detect(self, episodes: Sequence[Episode], *, limit: int, seed: int) -> Detected:
        prompts = [self._question.about_episode(each, limit) for each in episodes]
        said, problems, cost = self._ask(prompts, [()] * len(prompts), seed)
        findings = []
        for episode, completion in zip(episodes, said, strict=True):
            answer = None if completion is None else self._question.read(completion, limit)
            finding, steps = self._use(episode, answer, problems)
            findings.append(finding)
            cost += Cost(environment_steps=steps)
        return Detected(tuple(findings), dict(problems), cost)

    def suggest(self, standings: Sequence[Standing], *, seed: int) -> Suggested:
        prompts = [
            self._question.about_action(each.history, _admissible(each)) for each in standings
        ]
        tools = [each.tools if self._question.by_acting else () for each in standings]
        said, problems, cost = self._ask(prompts, tools, seed)
        actions: list[Message | None] = []
        for standing, completion in zip(standings, said, strict=True):
            action = None
            if completion is not None:
                text = committed(standing.environment, completion.message)
                if not self._question.by_acting:
                    text = completion.message.content
                action = spell_action(text or "", standing.environment, standing.tools)
                problems["no admissible action"] += action is None
            actions.append(action)
        return Suggested(tuple(actions), dict(+problems), cost)

    def _ask(
        self,
        prompts: Sequence[tuple[Message, ...]],
        tools: Sequence[tuple[ToolSpec, ...]],
        seed: int,
    ) -> tuple[list[Completion | None], Counter[str], Cost]:
        """Answers; None for a prompt that does not fit into the teacher's context."""
        problems: Counter[str] = Counter()
        room = self._sampler.context_limit - self._max_tokens
        lengths = [
            self._sampler.count(prompt, tool) for prompt, tool in zip(prompts, tools, strict=True)
        ]
        fits = [i for i, length in enumerate(lengths) if length <= room]
        problems["too long for the teacher"] += len(prompts) - len(fits)
        requests = [
            SampleRequest(
                messages=prompts[i],
                tools=tools[i],
                n=1,
                temperature=self._temperature,
                seed=derive_seed(seed, "teacher", i),
                max_tokens=self._max_tokens,
            )
            for i in fits
        ]
        said: list[Completion | None] = [None] * len(prompts)
        for i, (completion,) in zip(fits, self._sampler.sample(requests), strict=True):
            said[i] = completion
        given = [each for each in said if each is not None]
        cost = Cost(
            judge_calls=len(given),
            prompt_tokens=sum(lengths[i] for i in fits),
            sampled_tokens=sum(len(each.token_ids) for each in given),
        )
        return said, +problems, cost

    def _use(
        self, episode: Episode, answer: Answer | None, problems: Counter[str]
    ) -> tuple[Finding, int]:
        """Marks of the named turns at which the committed action differs from the gold one."""
        if answer is None:
            return Finding(), 0
        problems.update(answer.problems)
        named: dict[int, str] = {}
        for turn, text in answer.turns:
            if not 0 <= turn < len(episode.turns):
                problems["turn out of range"] += 1
            elif turn in named:
                problems["turn named twice"] += 1
            else:
                named[turn] = text
        if not named:
            return Finding(lesson=answer.lesson), 0
        marks: list[Mark] = []
        last = max(named)
        try:
            for turn, environment in enumerate(replayed(episode, self._make)):
                if turn > last:
                    break
                if turn in named:
                    marks += self._mark(episode, turn, named[turn], environment, problems)
        except (ReplayDiffersError, PivotuneError):
            problems["the replay differs"] += 1
        return Finding(tuple(marks), answer.lesson), last

    def _mark(
        self,
        episode: Episode,
        turn: int,
        text: str,
        environment: Environment,
        problems: Counter[str],
    ) -> list[Mark]:
        gold = spell_action(text, environment, episode.tools)
        if gold is None:
            problems["no admissible action"] += 1
            return []
        done = committed(environment, episode.turns[turn].completion.message)
        if done == committed(environment, gold):
            problems["the action that was taken"] += 1
            return []
        return [Mark(turn, gold)]


def _admissible(standing: Standing) -> tuple[str, ...]:
    view = standing.environment.oracle() if standing.environment is not None else None
    return () if view is None else view.admissible


def scattered(
    teacher: Teacher,
    episodes: Sequence[Episode],
    findings: Sequence[Finding],
    make: MakeEnvironment,
    *,
    seed: int,
) -> Detected:
    """As many marks an episode as were found, at turns drawn at random (without replacement).

    The teacher names an action at each, also where it is the one that was taken. For the
    ablation of detection: episodes, lessons and the number of marks stay as they are.
    """
    places: list[tuple[int, int, Standing]] = []
    steps = 0
    for i, (episode, finding) in enumerate(zip(episodes, findings, strict=True)):
        if finding.marks:
            known = standings(episode, make)
            steps += len(episode.turns)
            order = np.random.default_rng(derive_seed(seed, "turns", i)).permutation(len(known))
            drawn = sorted(int(turn) for turn in order[: len(finding.marks)])
            places += [(i, turn, here) for turn in drawn if (here := known[turn]) is not None]
    suggested = teacher.suggest([standing for *_, standing in places], seed=seed)
    marks: list[list[Mark]] = [[] for _ in episodes]
    for (i, turn, _), gold in zip(places, suggested.actions, strict=True):
        if gold is not None:
            marks[i].append(Mark(turn, gold))
    return Detected(
        tuple(
            Finding(tuple(mine), finding.lesson)
            for mine, finding in zip(marks, findings, strict=True)
        ),
        suggested.problems,
        suggested.cost + Cost(environment_steps=steps),
    )


class Agreement(msgspec.Struct, frozen=True):
    """A teacher's marks against the oracle's: counts of marks, exact hits, hits within a turn."""

    teacher: int
    oracle: int
    hits: int
    near: int

    @property
    def precision(self) -> float | None:
        return self.hits / self.teacher if self.teacher else None

    @property
    def recall(self) -> float | None:
        return self.hits / self.oracle if self.oracle else None

    @property
    def within_one(self) -> float | None:
        """Share of the teacher's marks that are at most one turn from an oracle's."""
        return self.near / self.teacher if self.teacher else None


def agreement(found: Sequence[Finding], truth: Sequence[Finding]) -> Agreement:
    """Compare turns, episode by episode."""
    teacher = oracle = hits = near = 0
    for mine, theirs in zip(found, truth, strict=True):
        turns = {mark.turn for mark in theirs.marks}
        named = {mark.turn for mark in mine.marks}
        teacher, oracle = teacher + len(named), oracle + len(turns)
        hits += len(named & turns)
        near += sum(any(abs(a - b) <= 1 for b in turns) for a in named)
    return Agreement(teacher, oracle, hits, near)
