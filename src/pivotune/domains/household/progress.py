"""The `progress` verifier: does this action bring the task forward?

An action is accepted in two cases.

shorter   The optimal remaining plan gets shorter: on the true state, or in the player's view of
          it. In that view the wanted things are only where the player has seen them, once enough
          of them have been seen; every receptacle stands at a place of its own, and is shut unless
          the player has seen into it or its type has no doors. So an action that is right by all
          the player can know is not rejected because of something better that nobody has seen.
explores  The player cannot go on without finding something, and the action looks for it: the
          first visit to, or the first opening of, a place that may hold it. While one stands at
          such a place and it is shut, opening it is the only look that counts. Places visited but
          left shut count again once no unvisited one is left.

All else is rejected, and so is what could be repeated for ever: commands without effect, visits
to places that have been seen, exploring on after the wanted thing has been seen, a command given
before in the very same state. To come back after straying from where the next step waits is
accepted once, as long as nothing else has changed. So stalling earns nothing: walking to and fro
pays for first visits and one return, looking around never.
"""

from collections import OrderedDict
from functools import lru_cache
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

_TELLING = ("gotolocation", "openobject", "examinereceptacle")  # they say what is in a receptacle
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

    here      the receptacle dealt with last, or EMPTY
    seen      mask over things
    visited   mask over receptacles that the player stood before
    looked    mask over receptacles whose contents the player has seen
    tried     the commands given so far (go-tos apart), each with the state it was given in
    strays    go-tos that led away from where the next step waits: how the world was, and how many
              of them there had been in that world
    """

    state: State
    here: int = EMPTY
    seen: int = 0
    visited: int = 0
    looked: int = 0
    tried: frozenset[tuple[State, str]] = frozenset()
    strays: frozenset[tuple[object, int]] = frozenset()

    def after(self, command: str) -> "Position":
        """The position after one more command."""
        command = command.strip()
        action = engine.actions(self.state).get(command)
        if action is None:
            return self
        tried, strays = self.tried, self.strays
        if action.verb != "gotolocation":
            tried |= {(self.state, command)}
        elif self._strays(action):
            strays |= {(_but_place(self.state), 1 + self._strayed())}
        return msgspec.structs.replace(self._reach(action), tried=tried, strays=strays)

    def _reach(self, action: Action) -> "Position":
        """State and knowledge after an action."""
        state = engine.apply(self.state, action)
        if action.receptacle == EMPTY:
            return msgspec.structs.replace(self, state=state)
        place = 1 << action.receptacle
        told = action.verb in _TELLING and bool(state.accessible & place)
        return msgspec.structs.replace(
            self,
            state=state,
            here=action.receptacle,
            visited=self.visited | place,
            looked=self.looked | (place if told else 0),
            seen=self.seen | (state.contents[action.receptacle] if told else 0),
        )

    def judge(self, command: str) -> Judgement:
        """Does a command bring the task forward from here?"""
        command = command.strip()
        action = engine.actions(self.state).get(command)
        if action is None:
            return Judgement(False, False, "nothing happens")
        shorter, explores = self._shorter(action), self._explores(action)
        if (self.state, command) in self.tried:
            return Judgement(False, False, "done before in this very state")
        if action.verb == "gotolocation" and self._strayed() > 1:
            first_look = explores and not self.visited >> action.receptacle & 1
            if (shorter or explores) and not first_look:
                return Judgement(False, False, "has strayed from here and come back before")
        after = oracle.remaining_steps(engine.apply(self.state, action))
        steps = f"optimal remaining steps {oracle.remaining_steps(self.state)} -> {after}"
        if shorter:
            return Judgement(True, explores, steps)
        if explores:
            return Judgement(False, True, f"looks where something needed may be; {steps}")
        return Judgement(False, False, f"{steps}, nothing new")

    def _strayed(self) -> int:
        """How often the player has strayed in the world as it is."""
        world = _but_place(self.state)
        return max((n for known, n in self.strays if known == world), default=0)

    def _strays(self, action: Action) -> bool:
        """Does a go-to leave the place of the next step, or a shut place to be searched."""
        now, then = self._views(action)
        return _less(now, then) or self._at_shut_place(self._left_to_search())

    def _shorter(self, action: Action) -> bool:
        after = engine.apply(self.state, action)
        if _less(oracle.remaining_steps(after), oracle.remaining_steps(self.state)):
            return True
        now, then = self._views(action)
        return _less(then, now)

    def _views(self, action: Action) -> tuple[int | None, int | None]:
        """Optimal remaining steps before and after an action, in the player's view."""
        after = self._reach(action)
        now, then = self._view(self.state, self.here), self._view(after.state, after.here)
        return oracle.remaining_steps(now), oracle.remaining_steps(then)

    def _view(self, state: State, here: int) -> State:
        """The state as the player may think it is, by what has been seen up to now."""
        world = _imagined(state.world)
        seen = self.seen | (0 if state.held == EMPTY else 1 << state.held)
        wanted = ((world.goal_things, world.game.goal.count), (world.goal_lamps, 1))
        found = sum(things for things, count in wanted if (things & seen).bit_count() >= count)
        return msgspec.structs.replace(
            state,
            world=world,
            at=world.start if here == EMPTY else world.location_of[here],
            opened=state.accessible & self.looked,
            contents=tuple(
                inside & ~found | (inside & seen if self.looked >> r & 1 else 0)
                for r, inside in enumerate(state.contents)
            ),
        )

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
        if action.verb not in _TELLING:
            return False
        left = self._left_to_search()
        place = 1 << action.receptacle
        if not left & place:
            return False
        if action.verb == "openobject":
            return True
        if self._at_shut_place(left):
            return False
        return not self.visited & place or not left & ~self.visited

    def _left_to_search(self) -> int:
        """Mask over receptacles that may hold what is missing and have not been looked into."""
        return _places_for(self.state.world, self._missing()) & ~self.looked

    def _at_shut_place(self, left: int) -> bool:
        here = sum(1 << r for r in self.state.world.receptacles_at[self.state.at])
        return bool(left & here & self.visited & ~self.state.accessible)


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


def _less(after: int | None, before: int | None) -> bool:
    return before is not None and after is not None and after < before


def _but_place(state: State) -> object:
    """All facts but where the player is."""
    return msgspec.structs.replace(state, at=0).facts


@lru_cache(maxsize=256)
def _imagined(world: World) -> World:
    """The house as a player takes it to be: every receptacle at a location of its own, and all of
    a type with doors where one has a door. Most houses are so, and are returned as they are.
    """
    receptacles = world.game.receptacles
    doors = {r.type for r in receptacles if r.openable}
    imagined = tuple(
        msgspec.structs.replace(r, location=f"loc_bar_{number}", openable=r.type in doors)
        for number, r in enumerate(receptacles)
    )
    as_it_is = len({r.location for r in receptacles}) == len(receptacles) and all(
        r.openable == (r.type in doors) for r in receptacles
    )
    if as_it_is:
        return world
    return World(msgspec.structs.replace(world.game, receptacles=imagined), world.wording)


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
        judgement = self._position(standing.game, standing.commands).judge(read.command)
        return Verdict(
            reward=float(judgement.accepted),
            reason=judgement.reason,
            parts={"shorter": float(judgement.shorter), "explores": float(judgement.explores)},
        )

    def _position(self, game: Game, commands: tuple[str, ...]) -> Position:
        """The position after a history; a turn goes on from what its predecessor worked out."""
        key = game.id, commands
        position = self._positions.get(key)
        if position is None:
            if commands:
                position = self._position(game, commands[:-1]).after(commands[-1])
            else:
                position = start(game)
            self._positions[key] = position
            if len(self._positions) > _REMEMBERED_POSITIONS:
                self._positions.popitem(last=False)
        return position
