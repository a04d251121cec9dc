"""An expert that plays from what a player sees: the opening text and the observations.

It searches: receptacles in the order in which things of the wanted type are usually kept there
(`layouts.homes`), opening what is shut, remembering what it saw. Once it knows where the thing
is, it takes the shortest way to the goal that its knowledge allows.

How good it is can be set. With a chance of `noise` a turn becomes a mistake, and every choice
carries the name of the mistake it belongs to ("" for the expert's own moves):

    look, inventory, examine   a command that changes nothing
    invalid                    a command that cannot be carried out
    detour                     a walk to a place where nothing is to be done
    wrong_object               taking something that is not wanted
    wrong_place                putting the wanted thing down where it does not belong
    skip_open                  leaving a shut receptacle unopened, as if it had been searched
    skip_step                  forgetting to clean, heat or cool: the thing is brought to its
                               target as it is (every turn under that illusion is marked)

After a mistake the expert goes on from where it is, so traces show how to recover, too.
"""

import random
import re
from collections.abc import Callable

import msgspec

from pivotune.core.errors import DataError
from pivotune.domains.household.layouts import (
    CAN_CONTAIN,
    CLOSED_RECEPTACLES,
    homes,
    kind_of_room,
)

MISTAKES = (
    "look",
    "inventory",
    "examine",
    "invalid",
    "detour",
    "wrong_object",
    "wrong_place",
    "skip_open",
    "skip_step",
)
_HARMLESS = ("look", "inventory", "examine", "invalid")
_APPLIANCES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_NAME = re.compile(r"[a-z]+ \d+")


class ExpertConfig(msgspec.Struct, frozen=True):
    """How good the expert is.

    noise: chance that a turn is a mistake; mistakes: the kinds it is drawn from, uniformly among
        those that are possible at the moment.
    give_up: chance, at every turn after the first walk, of stopping for good.
    """

    noise: float = 0.0
    mistakes: tuple[str, ...] = MISTAKES
    give_up: float = 0.0


class Choice(msgspec.Struct, frozen=True):
    """A command, and the kind of mistake it is part of ("" for none)."""

    command: str
    mistake: str = ""


class Errand(msgspec.Struct, frozen=True):
    """The task as its sentence puts it: `treatment` is clean, heat, cool or empty.

    `target` is a receptacle type, or the lamp's type where the thing is only looked at.
    """

    thing: str
    target: str
    treatment: str = ""
    count: int = 1
    under_lamp: bool = False


_SENTENCES: tuple[tuple[str, str], ...] = (
    (r"(?:put|find) two (?P<thing>\w+) (?:and put them )?(?:in|on) (?P<target>\w+)", "two"),
    (r"put a (?P<treatment>clean|hot|cool) (?P<thing>\w+) (?:in|on) (?P<target>\w+)", ""),
    (r"(?P<treatment>clean|heat|cool) some (?P<thing>\w+) and put it in (?P<target>\w+)", ""),
    (r"(?:put|find) (?:a|some) (?P<thing>\w+) (?:and put it )?(?:in|on) (?P<target>\w+)", ""),
    (r"examine the (?P<thing>\w+) with the (?P<target>\w+)", "lamp"),
    (r"look at (?P<thing>\w+) under the (?P<target>\w+)", "lamp"),
)


def read_errand(sentence: str) -> Errand:
    """Understand a task sentence; DataError for one of another kind."""
    for pattern, sort in _SENTENCES:
        match = re.search(pattern, sentence)
        if match:
            words = match.groupdict()
            treatment = words.get("treatment") or ""
            return Errand(
                thing=words["thing"],
                target=words["target"],
                treatment="heat" if treatment == "hot" else treatment,
                count=2 if sort == "two" else 1,
                under_lamp=sort == "lamp",
            )
    raise DataError(
        "a task sentence that the expert does not understand",
        got=sentence,
        expected="one of ALFWorld's six kinds of task",
    )


def _type(name: str) -> str:
    return name.split(" ", 1)[0]


def _listed(text: str) -> list[str]:
    """The names in the list that follows "you see"."""
    return _NAME.findall(text.partition("you see")[2])


class Memory:
    """What a player knows: where it stands, what it holds, what it has seen and where."""

    def __init__(self, opening: str) -> None:
        room, _, sentence = opening.partition("Your task is to: ")
        self.places = _listed(room)
        self.errand = read_errand(sentence)
        self.here = ""
        self.held = ""
        self.seen_at: dict[str, str] = {}  # thing -> receptacle
        self.taken_from = ""
        self.visited: set[str] = set()
        self.opened: set[str] = set()
        self.treated: set[str] = set()
        self.unread: set[str] = set()  # places it stands at without having been told what is there
        self.refused: set[str] = set()  # receptacles that would not take the thing
        self.home: dict[str, str] = {}  # thing -> where it was before it was first taken
        self.moved: dict[str, str] = {}  # thing -> where it has been put, other than its home

    def shut(self, place: str) -> bool:
        return _type(place) in CLOSED_RECEPTACLES and place not in self.opened

    def searched(self, place: str) -> bool:
        return place in self.visited and place not in self.unread and not self.shut(place)

    @property
    def changes(self) -> object:
        """All that the player has changed in the world; equal when it is as it was."""
        moved = frozenset(self.moved.items())
        return self.held, moved, frozenset(self.opened), frozenset(self.treated)

    def things(self, kind: str) -> list[str]:
        return [name for name in self.seen_at if _type(name) == kind]

    def note(self, command: str, observation: str) -> None:
        """Learn from the answer to a command."""
        verb, _, rest = command.partition(" ")
        if observation.startswith("Nothing happens"):
            self._note_refusal(verb, rest)
            return
        if verb == "go":
            self._arrive(rest.removeprefix("to "))
        elif verb == "close":
            self.opened.discard(rest)
        elif verb == "take":
            self.held, self.taken_from = rest.split(" from ")
            self.home.setdefault(self.held, self.taken_from)
            self.seen_at.pop(self.held, None)
            self.moved.pop(self.held, None)
        elif verb in ("move", "put") and self.held:
            if self.here != self.home[self.held]:
                self.moved[self.held] = self.here
            self.seen_at[self.held], self.held = self.here, ""
        elif verb in _APPLIANCES:
            self.treated.add(self.held)
        if verb in ("go", "open") or rest == self.here:
            self.unread.discard(self.here)
            if "you see" in observation:
                self.seen_at |= dict.fromkeys(_listed(observation), self.here)
                if self.shut(self.here):
                    self.opened.add(self.here)

    def _arrive(self, place: str) -> None:
        self.here = place
        self.visited.add(place)

    def _note_refusal(self, verb: str, rest: str) -> None:
        """What could not be done is not tried again and again."""
        if verb == "go":  # one already stands before it: several places can be within reach
            self._arrive(rest.removeprefix("to "))
            self.unread.add(self.here)
        elif verb in ("move", "put"):
            self.refused.add(self.here)
        elif verb in ("take", "use"):
            self.seen_at.pop(rest.partition(" from ")[0], None)


class SearchingExpert:
    """Plays one game after another: `begin` with the opening text, then `choose` and `observe`.

    >>> expert.begin(opening)
    >>> while (choice := expert.choose()) is not None:
    ...     expert.observe(choice.command, play(choice.command))

    `choose` returns None when the expert gives up. `put` is how the game words putting.
    """

    def __init__(
        self, config: ExpertConfig, seed: int, put: str = "move {object} to {receptacle}"
    ) -> None:
        self.config = config
        self._rng = random.Random(seed)
        self._wording = put
        self._makers: dict[str, Callable[[], str | None]] = {
            "look": lambda: "look",
            "inventory": lambda: "inventory",
            "examine": self._examine,
            "invalid": self._invalid,
            "detour": self._detour,
            "wrong_object": self._wrong_object,
            "wrong_place": self._wrong_place,
            "skip_open": self._skip_open,
            "skip_step": self._skip_step,
        }

    def begin(self, opening: str) -> None:
        self.memory = Memory(opening)
        self._order = self._search_order()
        self._deluded = False  # believes to have cleaned, heated or cooled what it holds
        self._forgot = False  # it forgets that once a game at most
        self._passed_by: set[str] = set()  # shut receptacles that it believes to have searched
        self._strayed: set[object] = set()  # states of the world in which it went astray
        self._made: set[str] = set()  # mistaken commands: none that changes the world comes twice

    def choose(self) -> Choice | None:
        """The next command; None to give up."""
        if self.memory.visited and self._rng.random() < self.config.give_up:
            return None
        if self._rng.random() < self.config.noise:
            kinds = list(self.config.mistakes)
            self._rng.shuffle(kinds)
            for kind in kinds:
                command = self._makers[kind]()
                if command and (kind in _HARMLESS or command not in self._made):
                    self._made.add(command)
                    return Choice(command=command, mistake=kind)
        command = self._own()
        if command is None:
            return None
        return Choice(command=command, mistake="skip_step" if self._deluded else "")

    def observe(self, command: str, observation: str) -> None:
        self.memory.note(command, observation)
        if command.startswith(("move ", "put ")) and self._deluded:
            self._deluded = False  # it is not over, so something was forgotten
            self.memory.treated.clear()

    # The expert's own moves

    def _own(self) -> str | None:
        memory, errand = self.memory, self.memory.errand
        if memory.held:
            if _type(memory.held) != errand.thing:
                return self._put_back()
            if errand.under_lamp:
                return self._light()
            if errand.treatment and memory.held not in memory.treated:
                return self._treat(errand.treatment)
            return self._deliver()
        wanted = [name for name in memory.things(errand.thing) if not self._delivered(name)]
        if not wanted:
            return self._search(errand.thing)
        thing = min(wanted, key=lambda name: (self._effort(name), name))
        return self._reach(memory.seen_at[thing]) or f"take {thing} from {memory.here}"

    def _effort(self, thing: str) -> int:
        """Steps that are not the same for all things that would do."""
        memory, errand = self.memory, self.memory.errand
        place = memory.seen_at[thing]
        effort = int(place != memory.here)
        if errand.under_lamp:
            lamps = {memory.seen_at[lamp] for lamp in memory.things(errand.target)}
            return effort + (place not in lamps)
        if errand.treatment and thing not in memory.treated:
            return effort + 1 + (_type(place) != _APPLIANCES[errand.treatment])
        return effort

    def _reach(self, place: str) -> str | None:
        """What is still to be done before one can act in or on a place; None where nothing is."""
        if self.memory.here != place:
            return f"go to {place}"
        if place in self.memory.unread:
            return f"examine {place}"
        return f"open {place}" if self.memory.shut(place) else None

    def _delivered(self, thing: str) -> bool:
        """Of two things, one that already lies where the other will be put."""
        return self.memory.errand.count > 1 and self.memory.seen_at[thing] == self._target()

    def _target(self) -> str:
        """The receptacle to bring things to: the one begun with, else the quickest to use."""
        memory, errand = self.memory, self.memory.errand
        places = [p for p in memory.places if _type(p) == errand.target and p not in memory.refused]
        begun = {memory.seen_at[name] for name in memory.things(errand.thing)}

        def effort(place: str) -> tuple[bool, int]:
            steps = (place != memory.here) + memory.shut(place)
            return errand.count > 1 and place not in begun, steps

        return min(places, key=effort) if places else ""

    def _deliver(self) -> str | None:
        target = self._target()
        return (self._reach(target) or self._put(target)) if target else None

    def _put(self, place: str) -> str:
        return self._wording.format(object=self.memory.held, receptacle=place)

    def _put_back(self) -> str:
        """Put down what is not wanted, here if it can lie here."""
        held = _type(self.memory.held)
        if self.memory.here and held in CAN_CONTAIN.get(_type(self.memory.here), ()):
            return self._reach(self.memory.here) or self._put(self.memory.here)
        return self._reach(self.memory.taken_from) or self._put(self.memory.taken_from)

    def _treat(self, treatment: str) -> str | None:
        appliances = [p for p in self.memory.places if _type(p) == _APPLIANCES[treatment]]
        if not appliances:
            return None
        place = self.memory.here if self.memory.here in appliances else appliances[0]
        if self.memory.here != place:
            return f"go to {place}"
        return f"{treatment} {self.memory.held} with {place}"

    def _light(self) -> str | None:
        lamps = self.memory.things(self.memory.errand.target)
        if not lamps:
            return self._search(self.memory.errand.target)
        lamp = min(lamps, key=lambda name: self.memory.seen_at[name] != self.memory.here)
        return self._reach(self.memory.seen_at[lamp]) or f"use {lamp}"

    def _search(self, kind: str) -> str | None:
        """Open what is shut here, else go to the likeliest place not searched yet."""
        memory = self.memory
        for places in self._order[kind]:
            left = [place for place in places if not memory.searched(place)]
            unpassed = [place for place in left if place not in self._passed_by]
            fresh = [place for place in unpassed if place not in memory.visited]
            if left:
                place = memory.here if memory.here in unpassed else (fresh or left)[0]
                self._passed_by.discard(place)
                return self._reach(place)
        return None

    def _search_order(self) -> dict[str, tuple[list[str], list[str]]]:
        """Places by how likely one holds a thing of a type, then those that surely do not.

        The chance of one receptacle is the type's divided by their number; a shut one costs two
        steps to look into. A factor drawn for the game keeps two experts from being alike.
        """
        memory = self.memory
        kinds = {_type(place) for place in memory.places}
        table = homes(kind_of_room(kinds))
        mood = {place: self._rng.uniform(0.5, 1.0) for place in memory.places}
        number = {kind: sum(_type(p) == kind for p in memory.places) for kind in kinds}

        def worth(place: str, thing: str) -> float:
            kind = _type(place)
            usual = table.get(thing, {}).get(kind, 0)
            possible = 0.01 if thing in CAN_CONTAIN.get(kind, ()) else 0.0
            steps = 2 if kind in CLOSED_RECEPTACLES else 1
            return (usual + possible) * mood[place] / (number[kind] * steps)

        order = {}
        for thing in (memory.errand.thing, memory.errand.target):
            worths = {place: worth(place, thing) for place in memory.places}
            ranked = sorted(memory.places, key=lambda place: -worths[place])
            likely = [place for place in ranked if worths[place] > 0]
            order[thing] = likely, [place for place in ranked if worths[place] == 0]
        return order

    # Mistakes: each returns a command, or None where it cannot be made now

    def _examine(self) -> str | None:
        return f"examine {self.memory.here}" if self.memory.here else None

    def _invalid(self) -> str:
        place = self._rng.choice(self.memory.places)
        thing = self.memory.errand.thing
        return self._rng.choice(
            (f"take {thing} 9 from {place}", f"use {thing} 9", f"open {thing} 9")
        )

    def _detour(self) -> str | None:
        """A walk for nothing. It does not stray twice while the world stays the same."""
        memory = self.memory
        burdened = memory.held and _type(memory.held) != memory.errand.thing
        places = [p for p in memory.places if p != memory.here and not memory.shut(p)]
        if burdened or self._at_closed_door() or memory.changes in self._strayed or not places:
            return None
        self._strayed.add(memory.changes)
        return f"go to {self._rng.choice(places)}"

    def _at_closed_door(self) -> bool:
        return bool(self.memory.here) and self.memory.shut(self.memory.here)

    def _wrong_object(self) -> str | None:
        memory = self.memory
        if memory.held or self._at_closed_door():
            return None
        fits = CAN_CONTAIN.get(_type(memory.here), frozenset())
        others = [
            name
            for name, place in memory.seen_at.items()
            if place == memory.here and _type(name) != memory.errand.thing and _type(name) in fits
        ]
        return f"take {self._rng.choice(sorted(others))} from {memory.here}" if others else None

    def _wrong_place(self) -> str | None:
        memory = self.memory
        kind = _type(memory.here) if memory.here else ""
        if (
            _type(memory.held) != memory.errand.thing
            or kind == memory.errand.target
            or memory.here == memory.taken_from
            or self._deluded
            or self._at_closed_door()
            or _type(memory.held) not in CAN_CONTAIN.get(kind, ())
        ):
            return None
        return self._put(memory.here)

    def _skip_open(self) -> str | None:
        here, changes = self.memory.here, self.memory.changes
        if self._own() != f"open {here}" or self.memory.held or changes in self._strayed:
            return None
        self._strayed.add(changes)
        self._passed_by.add(here)
        return self._own()

    def _skip_step(self) -> str | None:
        memory, errand = self.memory, self.memory.errand
        if (
            not errand.treatment
            or _type(memory.held) != errand.thing
            or memory.held in memory.treated
            or _type(memory.taken_from) == errand.target
            or self._forgot
        ):
            return None
        memory.treated.add(memory.held)
        self._deluded = self._forgot = True
        return self._own()
