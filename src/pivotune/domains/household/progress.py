"""The `progress` verifier: does this action bring the task forward?

An action is accepted in two cases.

shorter   The optimal remaining plan gets shorter: on the true state, or on the state as far as
          the player knows it (with only those things of the wanted kind that have been seen, once
          enough have been). The second keeps an action that is right by everything seen so far
          from being rejected because of a better thing that nobody has seen.
explores  The player cannot go on without finding something, and the action looks for it: the
          first visit to, or the first opening of, a place that may hold it. While one stands at
          such a place and it is shut, opening it is the only look that counts. Places visited but
          left shut count again once no unvisited one is left.

Rejected is all else, above all what could be repeated for ever: commands without effect, visits
to places that have been seen, exploring on after the wanted thing has been seen, and a command
that has been given before in the very same state. So a policy that stalls earns nothing: walking
to and fro pays at most once for each way between two places, and looking around never.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from pivotune.core.errors import DataError, ReplayMismatch
from pivotune.core.protocols import Environment
from pivotune.core.types import Completion, ParseOutcome, Turn, Verdict
from pivotune.domains.household import engine, oracle
from pivotune.domains.household.actions import put_template, to_command
from pivotune.domains.household.environment import HouseholdEnvironment
from pivotune.domains.household.game import Game
from pivotune.domains.household.layouts import ROOM_KINDS, homes
from pivotune.domains.household.state import EMPTY, Action, State, World, bits

_REMEMBERED_POSITIONS = 256


class Judgement(NamedTuple):
    """`shorter` and `explores` say why an action was accepted; the reason says it in words."""

    shorter: bool
    explores: bool
    reason: str

    @property
    def accepted(self) -> bool:
        return self.shorter or self.explores


class Position(msgspec.Struct, frozen=True):
    """A state and what the player has learnt on the way to it. Masks as in `state.py`.

    seen     mask over things
    visited  mask over receptacles that the player stood before
    looked   mask over receptacles whose contents the player has seen
    tried    the commands given so far, each with the state it was given in
    """

    state: State
    seen: int = 0
    visited: int = 0
    looked: int = 0
    tried: frozenset[tuple[State, str]] = frozenset()

    def after(self, command: str) -> "Position":
        """The position after one more command."""
        command = command.strip()
        tried = self.tried | {(self.state, command)}
        action = engine.actions(self.state).get(command)
        if action is None:
            return msgspec.structs.replace(self, tried=tried)
        state = engine.apply(self.state, action)
        seen, visited, looked = self.seen, self.visited, self.looked
        if action.verb in ("gotolocation", "openobject", "examinereceptacle"):
            visited |= 1 << action.receptacle
            if state.accessible >> action.receptacle & 1:
                looked |= 1 << action.receptacle
                seen |= state.contents[action.receptacle]
        return Position(state=state, seen=seen, visited=visited, looked=looked, tried=tried)

    def judge(self, command: str) -> Judgement:
        """Does a command bring the task forward from here?"""
        command = command.strip()
        action = engine.actions(self.state).get(command)
        if action is None:
            return Judgement(False, False, "nothing happens")
        if (self.state, command) in self.tried:
            return Judgement(False, False, "done before in this very state")
        state = engine.apply(self.state, action)
        before, after = oracle.remaining_steps(self.state), oracle.remaining_steps(state)
        if _shorter(before, after):
            return Judgement(True, False, f"optimal remaining steps {before} -> {after}")
        known = self._known()
        if _shorter(_remaining(self.state, known), _remaining(state, known)):
            return Judgement(True, False, "the shortest plan known to the player gets shorter")
        if self._explores(action):
            return Judgement(False, True, "looks where something needed may be")
        return Judgement(False, False, f"optimal remaining steps {before} -> {after}, nothing new")

    def _known(self) -> int:
        """Mask over things: all but the unseen ones of a kind of which enough have been seen."""
        world = self.state.world
        seen = self.seen | (0 if self.state.held == EMPTY else 1 << self.state.held)
        hidden = 0
        for wanted, count in ((world.goal_things, world.game.goal.count), (world.goal_lamps, 1)):
            if (wanted & seen).bit_count() >= count:
                hidden |= wanted & ~seen
        return ~hidden

    def _missing(self) -> int:
        """Mask over things any of which would let the player go on; 0 while it can go on."""
        state, world = self.state, self.state.world
        lamps = 0 if world.goal_lamps & self.seen else world.goal_lamps
        if state.held != EMPTY and world.goal_things >> state.held & 1:
            return lamps
        seen = world.goal_things & self.seen
        if world.game.goal.count > 1 and seen.bit_count() == 1:
            delivered = any(state.contents[r] & seen for r in bits(world.goal_receptacles))
            return world.goal_things & ~seen if delivered else 0
        return 0 if seen else world.goal_things | lamps

    def _explores(self, action: Action) -> bool:
        if action.verb not in ("gotolocation", "openobject", "examinereceptacle"):
            return False
        left = _places_for(self.state.world, self._missing()) & ~self.looked
        place = 1 << action.receptacle
        if not left & place:
            return False
        if action.verb == "openobject":
            return True
        shut_here = sum(1 << r for r in self.state.world.receptacles_at[self.state.at])
        if left & shut_here & self.visited & ~self.state.accessible:
            return False
        return not self.visited & place or not left & ~self.visited


def start(game: Game) -> Position:
    """The position in which a game starts."""
    state, _ = engine.start(game)
    return Position(state=state)


def judge(game: Game, commands: tuple[str, ...], command: str) -> Judgement:
    """Judge a command after a history of commands."""
    position = start(game)
    for earlier in commands:
        position = position.after(earlier)
    return position.judge(command)


def _shorter(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after < before


def _remaining(state: State, known: int) -> int | None:
    """Optimal remaining steps if only the known things existed."""
    contents = tuple(things & known for things in state.contents)
    if contents == state.contents:
        return None  # nothing is hidden: the true state has been judged already
    return oracle.remaining_steps(msgspec.structs.replace(state, contents=contents))


def _places_for(world: World, things: int) -> int:
    """Mask over receptacles in which one of the things may be, going by types alone."""
    kinds = {world.things[thing].type for thing in bits(things)}
    usual = {place for kind in kinds for room in ROOM_KINDS for place in homes(room).get(kind, ())}
    fitting = {place for place, held in world.game.fits.items() if kinds & set(held)}
    possible = usual | fitting
    return sum(1 << i for i, r in enumerate(world.receptacles) if r.type in possible)


class ProgressVerifier:
    """`progress` as a verifier over turns of the household domain.

    The position of a turn is worked out once, for all samples of its group.
    """

    name = "progress"
    version = "1"
    needs_environment = True

    def __init__(self) -> None:
        self._own = HouseholdEnvironment()
        self._positions: OrderedDict[tuple[str, tuple[str, ...]], Position] = OrderedDict()

    def verify(
        self, turn: Turn, completion: Completion, environment: Environment | None
    ) -> Verdict:
        """Reward 1 or 0; invalid where the turn's game cannot be restored."""
        if completion.outcome is not ParseOutcome.OK:
            reason = completion.problem or completion.outcome.value
            return Verdict(reward=0.0, reason=f"{completion.outcome.value}: {reason}")
        if isinstance(environment, HouseholdEnvironment):
            standing = environment
        else:
            try:
                self._own.restore(turn)
            except (ReplayMismatch, DataError) as error:
                return Verdict(reward=None, reason=f"the turn cannot be restored: {error.what}")
            standing = self._own
        read = to_command(completion.message, put_template(standing.game))
        if read.problem:
            return Verdict(reward=0.0, reason=read.problem)
        judgement = self._position(turn.task.id, standing).judge(read.command)
        return Verdict(
            reward=float(judgement.accepted),
            reason=judgement.reason,
            parts={"shorter": float(judgement.shorter), "explores": float(judgement.explores)},
        )

    def _position(self, task_id: str, standing: HouseholdEnvironment) -> Position:
        key = task_id, standing.commands
        position = self._positions.get(key)
        if position is None:
            position = start(standing.game)
            for command in standing.commands:
                position = position.after(command)
            self._positions[key] = position
            if len(self._positions) > _REMEMBERED_POSITIONS:
                self._positions.popitem(last=False)
        return position
