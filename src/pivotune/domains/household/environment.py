"""Household games behind the project's environment contract: messages in, messages out.

A task's payload names a generated game ({"seed": 7, "split": "train", "config": {…}}) or holds
one ({"game": {…}}), so that a recorded trajectory can always be played again. It may name the
dialect of the tools, too ("act" where it does not).
"""

from functools import lru_cache
from typing import Self

import msgspec

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.protocols import OracleView, StepResult
from pivotune.core.types import JsonObject, Message, Task, ToolSpec, Turn
from pivotune.domains.household import engine, oracle
from pivotune.domains.household.actions import (
    TOOLS,
    Dialect,
    put_template,
    to_command,
    to_message,
)
from pivotune.domains.household.expert import ExpertConfig, SearchingExpert
from pivotune.domains.household.game import Game, check
from pivotune.domains.household.generator import (
    SMALL_GAMES,
    GeneratorConfig,
    Split,
    generate_game,
)

DOMAIN = "household"
SYSTEM = "You act in a house by calling tools, one call a turn, until the task is done."


class EnvironmentConfig(msgspec.Struct, frozen=True):
    """How a game is shown: the tools offered, and after how many actions it is over."""

    dialect: Dialect = "act"
    step_limit: int = 30


DEFAULT = EnvironmentConfig()


def generated_task(seed: int, split: Split, config: GeneratorConfig = SMALL_GAMES) -> Task:
    """The task of a generated game, small enough to be written into every trajectory.

    Its `group` is the kind of task: a report counts by it.
    """
    game = _generated(seed, split, config)
    payload = {
        "seed": seed,
        "split": split,
        "config": _plain(config),
        "group": game.task_type,
    }
    return Task(id=game.id, domain=DOMAIN, split=split, payload=payload)


def game_task(game: Game, split: str) -> Task:
    """The task of any other game; the payload is the game itself."""
    payload = {"game": _plain(game)}
    return Task(id=game.id, domain=DOMAIN, split=split, payload=payload)


def in_dialect(task: Task, dialect: Dialect) -> Task:
    """The task for an environment that offers the tools of a dialect."""
    if task_dialect(task) == dialect:
        return task
    return msgspec.structs.replace(task, payload=task.payload | {"dialect": dialect})


def task_dialect(task: Task) -> Dialect:
    """The dialect in which a task is to be played; DataError where it names none that we have."""
    named = task.payload.get("dialect", "act")
    for dialect in TOOLS:
        if dialect == named:
            return dialect
    raise DataError(
        "unknown dialect of the household tools",
        where=task.id,
        got=named,
        expected=", ".join(TOOLS),
    )


def _plain(value: msgspec.Struct) -> JsonObject:
    """As JSON has it (lists, no tuples), so that a task read back from a file is equal."""
    plain: JsonObject = msgspec.json.decode(msgspec.json.encode(value))
    return plain


def task_game(task: Task) -> Game:
    """The game of a task; DataError where the payload is not a game's."""
    try:
        if "game" in task.payload:
            game = msgspec.convert(task.payload["game"], Game)
            check(game, task.id)
            return game
        recipe = msgspec.convert(task.payload, _Recipe)
    except msgspec.ValidationError as error:
        raise DataError(
            f"the task's payload is not a household game: {error}",
            where=task.id,
            expected='{"seed", "split", "config"} or {"game"}',
        ) from None
    return _generated(recipe.seed, recipe.split, recipe.config)


class _Recipe(msgspec.Struct, frozen=True):
    seed: int
    split: Split
    config: GeneratorConfig


@lru_cache(maxsize=1024)
def _generated(seed: int, split: Split, config: GeneratorConfig) -> Game:
    return generate_game(seed, split, config)


class HouseholdEnvironment:
    """One game being played. `commands` are those carried out so far, in order.

    A malformed action is answered by an error and counts as a step; it is no command.
    """

    def __init__(self, config: EnvironmentConfig = DEFAULT) -> None:
        self.config = config
        self.commands: tuple[str, ...] = ()
        self._messages: tuple[Message, ...] = ()  # everything said so far
        self._steps = 0

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return TOOLS[self.config.dialect]

    def reset(self, task: Task) -> tuple[Message, ...]:
        self.game = task_game(task)
        self._task = task
        self._put = put_template(self.game)
        self.state, self.opening = engine.start(self.game)
        self.commands, self._steps = (), 0
        self._messages = (
            Message(role="system", content=SYSTEM),
            Message(role="user", content=self.opening),
        )
        return self._messages

    def step(self, action: Message) -> StepResult:
        read = to_command(action, self._put)
        if read.command:
            self.state, answer = engine.step(self.state, read.command)
            self.commands += (read.command,)
        else:
            answer = f"Error: {read.problem}."
        self._steps += 1
        replies = _replies(action, answer)
        self._messages += (action, *replies)
        return StepResult(replies=replies, done=self.done)

    @property
    def done(self) -> bool:
        return self.state.won or self._steps >= self.config.step_limit

    def clone(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)  # every value is immutable
        return other

    def reward(self) -> float:
        return float(self.state.won)

    def snapshot(self) -> JsonObject:
        """What can change in the house, by name."""
        return self.state.named_facts

    def restore(self, turn: Turn) -> None:
        """Play the turn's recorded history; what has been played already is not played again."""
        if not self._is_begun(turn):
            opening = self.reset(turn.task)
            recorded = turn.state[: len(opening)]
            self._compare(turn, recorded[-1:], opening[-1:])  # others' system messages will do
            self._messages = recorded
        while len(self._messages) < len(turn.state):
            at = len(self._messages)
            action = turn.state[at]
            if action.role != "assistant":
                raise ReplayMismatch("an observation too many", where=turn.id, got=action.content)
            replies = self.step(action).replies
            self._compare(turn, turn.state[at + 1 : at + 1 + len(replies)], replies)
        self._messages = turn.state

    def _is_begun(self, turn: Turn) -> bool:
        """Is what this environment has played a beginning of the turn's history?"""
        played = self._messages
        return bool(played) and self._task == turn.task and turn.state[: len(played)] == played

    def _compare(self, turn: Turn, recorded: tuple[Message, ...], now: tuple[Message, ...]) -> None:
        if [m.content for m in recorded] != [m.content for m in now]:
            raise ReplayMismatch(
                "a replayed observation differs from the recorded one",
                where=turn.id,
                got="\n".join(m.content for m in now),
                expected="\n".join(m.content for m in recorded),
                fix="the trajectory belongs to another game, or to another version of the engine",
            )

    def spell(self, command: str) -> Message:
        """A command as an action in the dialect of this environment."""
        return to_message(command, self.config.dialect, self._put)

    def read(self, action: Message) -> str | None:
        """The command that an action means; None where it means none."""
        return to_command(action, self._put).command or None

    def oracle(self) -> OracleView:
        command = oracle.best_command(self.state)
        return OracleView(
            remaining=oracle.remaining_steps(self.state),
            action=self.spell(command) if command else None,
            admissible=engine.admissible(self.state),
        )

    def advice(self) -> Message | None:
        """What the searching expert would do after what has been said and done so far."""
        expert = SearchingExpert(ExpertConfig(), seed=0, put=self._put)
        expert.begin(self.opening)
        for action, reply in zip(self._messages, self._messages[1:], strict=False):
            command = self.read(action) if action.role == "assistant" else None
            if command:
                expert.observe(command, reply.content)
        choice = expert.choose()
        return self.spell(choice.command) if choice is not None else None


def _replies(action: Message, answer: str) -> tuple[Message, ...]:
    """One tool result a call; an action without a call is answered by the user."""
    if not action.tool_calls:
        return (Message(role="user", content=answer),)
    return tuple(
        Message(role="tool", content=answer, tool_call_id=call.id, name=call.name)
        for call in action.tool_calls
    )
