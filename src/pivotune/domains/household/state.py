"""The facts of a game being played, as bit masks.

`World` is what never changes in a game: names, sorted entities, who fits where. `State` is what
commands change. Things and receptacles are indexed in the order of their identifiers, which is
the order in which the reference engine lists them, so walking a mask from its lowest bit gives
the right order of words. A state is immutable: its copy is itself.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import msgspec

from pivotune.domains.household.game import Game, Receptacle, Thing, Treatment, named
from pivotune.domains.household.grammar import ACTIONS

EMPTY: Final = -1
_CAPABILITY: Final[dict[Treatment, str]] = {
    "clean": "cleanable",
    "hot": "heatable",
    "cool": "coolable",
}
_KNIVES: Final = ("knife", "butterknife")


def bits(mask: int) -> Iterator[int]:
    """The indices of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Action(NamedTuple):
    """A grounded action: the verb (its name in the game's rules), and what it acts on.

    `thing` and `receptacle` are indices, -1 where the verb takes none. For a slice, `thing` is
    what is sliced; the knife is the thing in hand.
    """

    verb: str
    thing: int = -1
    receptacle: int = -1


class Words(Protocol):
    """The sentences of a game; see `wording.Wording`."""

    def opening(self, state: "State") -> str: ...

    def feedback(self, action: str, state: "State", bound: dict[str, int]) -> str: ...

    def command(self, action: str) -> tuple[str, ...]: ...

    def knows(self, action: str) -> bool: ...


class Commands:
    """The commands of a game: what never changes is spelt once, the rest on demand."""

    def __init__(self, world: "World") -> None:
        parts = {a: world.wording.command(a) for a in ACTIONS if world.wording.knows(a)}
        places = world.receptacle_names
        self._things = world.thing_names
        self._places = places
        self._parts = parts
        self.goto = _spell(parts["gotolocation"], places)
        self.open = _spell(parts["openobject"], places)
        self.close = _spell(parts["closeobject"], places)
        self.examine_place = _spell(parts["examinereceptacle"], places)
        self.anywhere = {
            command: Action("gotolocation", -1, r) for r, command in enumerate(self.goto)
        }
        for verb in ("look", "inventory", "help"):
            if verb in parts and (verb != "help" or world.game.has_help):
                self.anywhere[parts[verb][0]] = Action(verb)

    def two(self, verb: str, thing: int, receptacle: int) -> str:
        """A command that names a thing and a receptacle."""
        before, between, after = self._parts[verb]
        return f"{before}{self._things[thing]}{between}{self._places[receptacle]}{after}"

    def slice(self, thing: int, knife: int) -> str:
        """The command that slices a thing."""
        before, between, after = self._parts["sliceobject"]
        return f"{before}{self._things[thing]}{between}{self._things[knife]}{after}"

    def use(self, thing: int) -> str:
        """The command that switches a lamp on."""
        before, after = self._parts["toggleobject"]
        return f"{before}{self._things[thing]}{after}"

    def examine_thing(self, thing: int) -> str:
        """The command that examines the thing in hand."""
        before, after = self._parts["examineobject"]
        return f"{before}{self._things[thing]}{after}"


def _spell(parts: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    before, after = parts
    return tuple(f"{before}{name}{after}" for name in names)


class World:
    """A game compiled for play. One is shared by all states of a game."""

    def __init__(self, game: Game, wording: Words) -> None:
        self.game = game
        self.wording = wording
        self.receptacles: tuple[Receptacle, ...] = tuple(
            sorted(game.receptacles, key=lambda r: r.id)
        )
        self.things: tuple[Thing, ...] = tuple(sorted(game.things, key=lambda t: t.id))
        self._name_everything()
        self._index_receptacles()
        self._index_things()
        self._index_goal()
        self.commands = Commands(self)

    def _name_everything(self) -> None:
        home = {r.id: r.location for r in self.receptacles}
        self.thing_locations = tuple(
            tuple(home[r] for r in t.inside) if t.locations is None else t.locations
            for t in self.things
        )
        locations = {self.game.start, *home.values()}
        locations.update(place for places in self.thing_locations for place in places)
        self.locations: tuple[str, ...] = tuple(sorted(locations))
        ids = [*home, *(t.id for t in self.things), *self.locations]
        names = named(ids)
        self.receptacle_names = tuple(names[r.id] for r in self.receptacles)
        self.thing_names = tuple(names[t.id] for t in self.things)
        self.location_names = tuple(names[place] for place in self.locations)

    def _index_receptacles(self) -> None:
        location = {place: i for i, place in enumerate(self.locations)}
        self.location_of = tuple(location[r.location] for r in self.receptacles)
        self.start = location[self.game.start]
        here: list[list[int]] = [[] for _ in self.locations]
        for r, place in enumerate(self.location_of):
            here[place].append(r)
        self.receptacles_at = tuple(tuple(found) for found in here)
        self.place_masks = tuple(sum(1 << r for r in found) for found in here)
        self.openable: int = self._receptacle_mask(lambda r: r.openable)
        cleaners = self.game.cleaners
        self.cleaners = self._receptacle_mask(lambda r: r.type in cleaners)
        self.heaters = self._receptacle_mask(lambda r: r.type == "microwave")
        self.coolers = self._receptacle_mask(lambda r: r.type == "fridge")

    def _index_things(self) -> None:
        self.pickupable = self._thing_mask(lambda t: t.pickupable)
        self.cleanable = self._thing_mask(lambda t: t.cleanable)
        self.heatable = self._thing_mask(lambda t: t.heatable)
        self.coolable = self._thing_mask(lambda t: t.coolable)
        self.sliceable: int = self._thing_mask(lambda t: t.sliceable)
        self.toggleable: int = self._thing_mask(lambda t: t.toggleable)
        self.holds_things: int = self._thing_mask(lambda t: t.holds_things)
        self.treatments = (
            ("cleanobject", self.cleaners, self.cleanable),
            ("heatobject", self.heaters, self.heatable),
            ("coolobject", self.coolers, self.coolable),
        )
        self.knives = self._thing_mask(lambda t: t.type in _KNIVES)
        index = {t.id: i for i, t in enumerate(self.things)}
        self.nested: tuple[int, ...] = tuple(
            sum(1 << index[inner] for inner in {*t.contains} - {t.id}) for t in self.things
        )
        fits = {place: frozenset(kinds) for place, kinds in self.game.fits.items()}
        self.fits = tuple(self._places_for(t.type, fits) for t in self.things)

    def _index_goal(self) -> None:
        goal = self.game.goal
        mask = self._thing_mask(lambda t: t.type == goal.thing_type)
        for condition in goal.conditions:
            mask &= int(getattr(self, _CAPABILITY[condition]))
        self.goal_things = mask
        self.goal_receptacles = self._receptacle_mask(lambda r: r.type == goal.receptacle_type)
        self.goal_lamps = self._thing_mask(lambda t: t.type == goal.lamp_type and t.toggleable)

    def _places_for(self, kind: str, fits: dict[str, frozenset[str]]) -> int:
        return self._receptacle_mask(lambda r: kind in fits.get(r.type, ()))

    def _receptacle_mask(self, test: Callable[[Receptacle], bool]) -> int:
        return sum(1 << i for i, r in enumerate(self.receptacles) if test(r))

    def _thing_mask(self, test: Callable[[Thing], bool]) -> int:
        return sum(1 << i for i, t in enumerate(self.things) if test(t))

    def first_state(self) -> "State":
        """The state in which the game starts."""
        location = {place: i for i, place in enumerate(self.locations)}
        thing = {t.id: i for i, t in enumerate(self.things)}
        contents = {r.id: 0 for r in self.receptacles}
        for t in self.things:
            for place in t.inside:
                contents[place] |= 1 << thing[t.id]
        return State(
            world=self,
            at=self.start,
            opened=self._receptacle_mask(lambda r: r.opened),
            held=EMPTY,
            contents=tuple(contents[r.id] for r in self.receptacles),
            left=(0,) * len(self.receptacles),
            spots=tuple(
                sum(1 << location[place] for place in set(places))
                for places in self.thing_locations
            ),
            clean=self._thing_mask(lambda t: "clean" in t.conditions),
            hot=self._thing_mask(lambda t: "hot" in t.conditions),
            cool=self._thing_mask(lambda t: "cool" in t.conditions),
            sliced=self._thing_mask(lambda t: "sliced" in t.conditions),
            toggled=self._thing_mask(lambda t: t.toggled),
        )


class State(msgspec.Struct, frozen=True, eq=False, weakref=True, dict=True):
    """One moment of a game. Masks are over things unless they say otherwise.

    at        index of the player's location
    opened    mask over receptacles
    held      index of the thing in hand, or EMPTY
    contents  per receptacle: the things in it. A thing can be in several at once: official games
              start so, and taking it from one leaves it in the others.
    left      per receptacle: things taken out of it and not put back. `look` shows those that
              lie at the same location ("Next to it, you see").
    spots     per thing: mask over the locations where it can be sliced
    """

    world: World
    at: int
    opened: int
    held: int
    contents: tuple[int, ...]
    left: tuple[int, ...]
    spots: tuple[int, ...]
    clean: int
    hot: int
    cool: int
    sliced: int
    toggled: int

    @property
    def facts(self) -> tuple[object, ...]:
        """All that can change, comparable between states of one game."""
        return (
            self.at,
            self.opened,
            self.held,
            self.contents,
            self.left,
            self.spots,
            self.clean,
            self.hot,
            self.cool,
            self.sliced,
            self.toggled,
        )

    @property
    def named_facts(self) -> dict[str, object]:
        """The facts by the names of their fields."""
        names = [name for name in self.__struct_fields__ if name != "world"]
        return {name: getattr(self, name) for name in names}

    @property
    def digest(self) -> str:
        """A hash of game and facts, the same in every process: 32 hexadecimal digits."""
        text = f"{self.world.game.id}\n{self.facts}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        same_game = self.world is other.world or self.world.game == other.world.game
        return same_game and self.facts == other.facts

    def __hash__(self) -> int:
        return hash(self.facts)

    def clone(self) -> "State":
        """The state itself: nothing can change it."""
        return self

    @property
    def accessible(self) -> int:
        """Mask over receptacles: those that are open or cannot be closed."""
        return ~self.world.openable | self.opened

    @cached_property
    def won(self) -> bool:
        """Does the goal hold in this state. It can stop holding when the game is played on."""
        world = self.world
        goal = world.game.goal
        if goal.lamp_type is not None:
            lit = world.goal_lamps & self.toggled
            near = any(self.contents[r] & lit for r in world.receptacles_at[self.at])
            return near and self.held != EMPTY and bool(self.ready >> self.held & 1)
        return any(
            (self.contents[r] & self.ready).bit_count() >= goal.count
            for r in bits(world.goal_receptacles)
        )

    @property
    def ready(self) -> int:
        """The goal's things that are in the condition the goal asks for."""
        mask = self.world.goal_things
        for condition in self.world.game.goal.conditions:
            mask &= int(getattr(self, condition))
        return mask
