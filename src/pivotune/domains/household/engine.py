"""Plays household games, with transcripts identical to ALFWorld's own engine.

A state maps to the actions that can be done in it, each under the one command that does it. Any
other command, down to its case and inner spaces, answers "Nothing happens." and changes nothing;
white space around a command does not matter. So `admissible` and `step` cannot disagree.

The engine goes on after the goal is met (`state.won`), as the reference engine itself does; it is
the batch layer around that engine that repeats the last answer once a game is done.

Peculiarities of the original rules that are kept on purpose:
- A go-to needs another location: receptacles at the player's own location cannot be gone to.
- Only a thing in hand can be examined.
- A lamp can be used inside a closed receptacle, and using it twice leaves it on.
- A thing can be heated, cooled or cleaned at a closed microwave, fridge or basin.
- Slicing asks for the thing's recorded location, which may outlive the thing's being there.
"""

from typing import Final

from msgspec.structs import replace

from pivotune.domains.household.game import Game
from pivotune.domains.household.state import EMPTY, Action, State, World, bits
from pivotune.domains.household.wording import wording_of

NOTHING: Final = "Nothing happens."


def start(game: Game) -> tuple[State, str]:
    """The first state and the opening text."""
    world = World(game, wording_of(game.grammar))
    state = world.first_state()
    return state, world.wording.opening(state)


def step(state: State, command: str) -> tuple[State, str]:
    """The state after a command, and what the game says."""
    action = actions(state).get(command.strip())
    if action is None:
        return state, NOTHING
    after = apply(state, action)
    return after, after.world.wording.feedback(action.verb, after, _bound(state, action))


def admissible(state: State) -> tuple[str, ...]:
    """All commands that do something here, sorted."""
    return tuple(sorted(actions(state)))


def actions(state: State) -> dict[str, Action]:
    """The actions that can be done, by command. Computed once a state: do not change it."""
    memory = state.__dict__
    found: dict[str, Action] | None = memory.get("actions")
    if found is None:
        found = memory["actions"] = _actions(state)
    return found


def apply(state: State, action: Action) -> State:
    """The state after an action that can be done in `state`."""
    verb, thing, receptacle = action
    bit = 1 << thing if thing >= 0 else 0
    match verb:
        case "gotolocation":
            return replace(state, at=state.world.location_of[receptacle])
        case "openobject":
            return replace(state, opened=state.opened | 1 << receptacle)
        case "closeobject":
            return replace(state, opened=state.opened & ~(1 << receptacle))
        case "pickupobject":
            return replace(
                state,
                held=thing,
                contents=_changed(state.contents, receptacle, state.contents[receptacle] & ~bit),
                left=_changed(state.left, receptacle, state.left[receptacle] | bit),
                spots=_changed(state.spots, thing, state.spots[thing] & ~(1 << state.at)),
            )
        case "putobject":
            return replace(
                state,
                held=EMPTY,
                contents=_changed(state.contents, receptacle, state.contents[receptacle] | bit),
                left=_changed(state.left, receptacle, state.left[receptacle] & ~bit),
                spots=_changed(state.spots, thing, state.spots[thing] | 1 << state.at),
            )
        case "cleanobject":
            return replace(state, clean=state.clean | bit)
        case "heatobject":
            return replace(state, hot=state.hot | bit, cool=state.cool & ~bit)
        case "coolobject":
            return replace(state, cool=state.cool | bit, hot=state.hot & ~bit)
        case "sliceobject":
            return replace(state, sliced=state.sliced | bit)
        case "toggleobject":
            return replace(state, toggled=state.toggled | bit)
    return state


def _changed(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _actions(state: State) -> dict[str, Action]:
    world = state.world
    commands = world.commands
    found = dict(commands.anywhere)
    for r in world.receptacles_at[state.at]:
        del found[commands.goto[r]]
        found[commands.examine_place[r]] = Action("examinereceptacle", -1, r)
        _add_at_receptacle(state, r, found)
    if state.held != EMPTY:
        _add_in_hand(state, found)
    return found


def _add_at_receptacle(state: State, r: int, found: dict[str, Action]) -> None:
    """What the receptacle allows whatever is in hand, and taking out of it."""
    world = state.world
    commands = world.commands
    accessible = state.accessible >> r & 1
    if world.openable >> r & 1:
        if accessible:
            found[commands.close[r]] = Action("closeobject", -1, r)
        else:
            found[commands.open[r]] = Action("openobject", -1, r)
    inside = state.contents[r]
    for thing in bits(inside & world.toggleable):
        found[commands.use(thing)] = Action("toggleobject", thing, r)
    if accessible and state.held == EMPTY:
        for thing in bits(inside & world.pickupable):
            found[commands.two("pickupobject", thing, r)] = Action("pickupobject", thing, r)


def _add_in_hand(state: State, found: dict[str, Action]) -> None:
    """What can be done with the thing in hand."""
    world = state.world
    commands = world.commands
    held = state.held
    found[commands.examine_thing(held)] = Action("examineobject", held)
    for r in world.receptacles_at[state.at]:
        if state.accessible & world.fits[held] & 1 << r:
            found[commands.two("putobject", held, r)] = Action("putobject", held, r)
        for verb, places, things in world.treatments:
            if places >> r & 1 and things >> held & 1:
                found[commands.two(verb, held, r)] = Action(verb, held, r)
    if world.knives >> held & 1:
        for thing in bits(world.sliceable):
            if state.spots[thing] >> state.at & 1:
                found[commands.slice(thing, held)] = Action("sliceobject", thing)


def _bound(state: State, action: Action) -> dict[str, int]:
    """The parameters of an action that its feedback may name, before the action."""
    verb, thing, receptacle = action
    if verb == "gotolocation":
        lend = state.world.location_of[receptacle]
        return {"a": 0, "lstart": state.at, "lend": lend, "r": receptacle}
    if verb == "sliceobject":
        return {"a": 0, "l": state.at, "co": thing, "ko": state.held}
    bound = {"a": 0}
    if verb not in ("inventory", "help", "examineobject", "examinereceptacle"):
        bound["l"] = state.at
    if thing >= 0:
        bound["o"] = thing
    if receptacle >= 0:
        bound["r"] = receptacle
    return bound
