"""Knows the whole state of a game, and so the shortest way to its goal. A policy does not.

Nothing here may reach a policy's prompt: rewards, traces' annotations and tests use it.

Every command costs 1, and a go-to leads from anywhere to anywhere. So a plan is a short row of
stops (put down what is in the way, take, treat, put), and its length has a closed form:

    commands at the stops  +  receptacles among them that are still closed  +  changes of location

The shortest plan is the minimum over the few rows that can matter. Where any receptacle of a kind
will do (a place for the thing in the way, the goal's receptacle), one candidate at each location
on the row's way and one elsewhere stand for all the others.
"""

from collections.abc import Iterable, Iterator
from itertools import permutations, product
from typing import Final, NamedTuple

from pivotune.domains.household.game import Treatment
from pivotune.domains.household.state import EMPTY, Action, State, bits

_VERB: Final[dict[Treatment, str]] = {
    "clean": "cleanobject",
    "hot": "heatobject",
    "cool": "coolobject",
}


class Stop(NamedTuple):
    """One command (None: only being there counts) and what it needs.

    `opens` is a mask over receptacles: the one that has to be opened first, if any.
    """

    location: int
    action: Action | None
    opens: int


Plan = tuple[Stop, ...]


def remaining_steps(state: State) -> int | None:
    """The optimal number of commands to the goal; None where it cannot be reached any more."""
    return _best(state)[0]


def best_command(state: State) -> str | None:
    """The first command of a shortest plan; None where the goal is met or out of reach."""
    _, plan = _best(state)
    if not plan:
        return None
    world = state.world
    for stop in plan:
        if stop.location != state.at:
            target = stop.action.receptacle if stop.action else -1
            if target < 0 or world.location_of[target] != stop.location:
                target = world.receptacles_at[stop.location][0]
            return world.commands.goto[target]
        if stop.opens:
            return world.commands.open[stop.opens.bit_length() - 1]
        if stop.action is not None:
            return _spelt(state, stop.action)
    return None


def is_pivotal_mistake(before: State, after: State) -> bool:
    """Did the step from `before` to `after` lengthen the way to the goal, or close it."""
    length = remaining_steps(before)
    if length is None:
        return False
    then = remaining_steps(after)
    return then is None or then > length


def plan_length(state: State, plan: Plan) -> int:
    """The closed form: commands, openings and moves of a row of stops."""
    at, opened, length = state.at, 0, 0
    for location, action, opens in plan:
        if location != at:
            length += 1
            at = location
        if action is not None:
            length += 1
        if opens & ~opened:
            length += 1
            opened |= opens
    return length


def _best(state: State) -> tuple[int | None, Plan]:
    memory = state.__dict__
    found: tuple[int | None, Plan] | None = memory.get("best")
    if found is None:
        found = memory["best"] = _search(state)
    return found


def _search(state: State) -> tuple[int | None, Plan]:
    """The shortest of all plans; outlines that cannot beat it are not worked out."""
    if state.won:
        return 0, ()
    length: int | None = None
    best: Plan = ()
    for outline in sorted(_outlines(state), key=lambda outline: outline.bound):
        if length is not None and outline.bound >= length:
            break
        for plan in _plans(state, outline):
            n = plan_length(state, plan)
            if length is None or n < length:
                length, best = n, plan
                if n == outline.bound:
                    break
    return length, best


class Outline(NamedTuple):
    """A plan whose free choices are open: where to put things, and what is in the way.

    `errands` are the things and the stops that bring each into hand, ready. `allowed` is a mask
    over the receptacles that they may be put into, 0 where nothing has to be put. No plan of this
    outline is shorter than `bound`.
    """

    bound: int
    errands: tuple[tuple[int, Plan], ...]
    allowed: int


def _outline(state: State, errands: tuple[tuple[int, Plan], ...], allowed: int) -> Outline:
    way = tuple(stop for _, stops in errands for stop in stops)
    commands = len(errands) if allowed else 0
    if state.held not in (EMPTY, errands[0][0]):
        commands += 1
    return Outline(plan_length(state, way) + commands, errands, allowed)


def _outlines(state: State) -> list[Outline]:
    goal = state.world.game.goal
    if goal.lamp_type is not None:
        return _lamp_outlines(state)
    return _place_outlines(state) if goal.count == 1 else _pair_outlines(state)


def _lamp_outlines(state: State) -> list[Outline]:
    """Hold the thing, then be at a lamp and switch it on last: earlier is never shorter."""
    ends = list(_lamp_stops(state))
    return [
        _outline(state, ((thing, (*errand, end)),), 0)
        for thing in _kinds_of_things(state)
        for errand in _errands(state, thing)
        for end in ends
    ]


def _lamp_stops(state: State) -> Iterator[Stop]:
    world = state.world
    for lamp in bits(world.goal_lamps):
        lit = state.toggled >> lamp & 1
        for r in _holders(state, lamp):
            action = None if lit else Action("toggleobject", lamp, r)
            yield Stop(world.location_of[r], action, 0)


def _place_outlines(state: State) -> list[Outline]:
    """Take, treat, put. Nothing is put where the thing also lies in a goal's receptacle."""
    goals = state.world.goal_receptacles
    outlines = []
    for thing in _kinds_of_things(state):
        for errand in _errands(state, thing):
            if _stays_in(state, thing, errand) & goals:
                outlines.append(_outline(state, ((thing, errand),), 0))
            allowed = goals & state.world.fits[thing]
            if allowed:
                outlines.append(_outline(state, ((thing, errand),), allowed))
    return outlines


def _pair_outlines(state: State) -> list[Outline]:
    """Two things into one receptacle; one errand where the other thing lies there already."""
    world = state.world
    things = _kinds_of_things(state, copies=2)
    outlines = []
    empty = half = world.goal_receptacles
    for r in bits(world.goal_receptacles):
        if state.contents[r] & world.goal_things:
            empty &= ~(1 << r)
        else:
            half &= ~(1 << r)
    for thing in things:
        others = half & world.fits[thing]
        for r in bits(others):
            if state.contents[r] >> thing & 1:
                others &= ~(1 << r)
        if others:
            outlines += [_outline(state, ((thing, way),), others) for way in _errands(state, thing)]
    for first, second in permutations(things, 2):
        allowed = empty & world.fits[first]
        # Putting down one of the two to carry the other first is never shorter.
        if allowed and second != state.held:
            ways = product(_errands(state, first), _errands(state, second))
            outlines += [
                _outline(state, ((first, one), (second, two)), allowed) for one, two in ways
            ]
    return outlines


def _plans(state: State, outline: Outline) -> Iterator[Plan]:
    """All plans of an outline that can be the shortest."""
    first = outline.errands[0][0]
    if not outline.allowed:
        yield from _with_free_hand(state, first, outline.errands[0][1])
        return
    way = tuple(stop for _, stops in outline.errands for stop in stops)
    for r in _targets(state, outline.allowed, first, way):
        plan: Plan = ()
        for thing, stops in outline.errands:
            plan = (*plan, *stops, _stop(state, "putobject", thing, r))
        yield from _with_free_hand(state, first, plan)


def _errands(state: State, thing: int) -> list[Plan]:
    """Ways to have a thing in hand and treated, with an empty hand before."""
    ways = product(_fetches(state, thing), _treatments(state, thing))
    return [(*fetch, *treat) for fetch, treat in ways]


def _stays_in(state: State, thing: int, errand: Plan) -> int:
    """Mask over the receptacles that hold the thing even after it was taken."""
    mask = sum(1 << r for r in _holders(state, thing))
    first = errand[0].action if errand else None
    if first is not None and first.verb == "pickupobject":
        mask &= ~(1 << first.receptacle)
    return mask


def _kinds_of_things(state: State, copies: int = 1) -> list[int]:
    """The goal's things, at most `copies` of those that lie in the same places alike."""
    counts: dict[tuple[object, ...], int] = {}
    things = []
    for thing in bits(state.world.goal_things):
        holders = tuple(_holders(state, thing))
        missing = _missing(state, thing)
        movable = state.world.pickupable >> thing & 1
        key = (holders, missing, movable, thing == state.held)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= copies:
            things.append(thing)
    return things


def _holders(state: State, thing: int) -> list[int]:
    return [r for r, mask in enumerate(state.contents) if mask >> thing & 1]


def _fetches(state: State, thing: int) -> list[Plan]:
    """Ways to take a thing with an empty hand; one empty way where it is in hand."""
    if state.held == thing:
        return [()]
    if not state.world.pickupable >> thing & 1:
        return []
    return [(_stop(state, "pickupobject", thing, r),) for r in _holders(state, thing)]


def _missing(state: State, thing: int) -> tuple[Treatment, ...]:
    conditions = state.world.game.goal.conditions
    return tuple(c for c in conditions if not int(getattr(state, c)) >> thing & 1)


def _treatments(state: State, thing: int) -> list[Plan]:
    """Ways to give the thing in hand the conditions it lacks."""
    world = state.world
    places = {verb: mask for verb, mask, _ in world.treatments}
    ways: list[Plan] = []
    for order in permutations(_missing(state, thing)):
        choices = []
        for condition in order:
            verb = _VERB[condition]
            found = [_stop(state, verb, thing, r) for r in bits(places[verb])]
            choices.append([stop._replace(opens=0) for stop in found])
        ways += product(*choices)
    return ways


def _with_free_hand(state: State, thing: int, plan: Plan) -> Iterator[Plan]:
    """The plan, preceded by putting down what is in hand where that is another thing."""
    held = state.held
    if held in (EMPTY, thing):
        yield plan
        return
    allowed = state.world.fits[held]
    spots = _candidates(state, allowed, {state.at, plan[0].location})
    for stop in plan:  # what the plan opens anyway can be opened earlier
        spots.update(bits(stop.opens & allowed))
    for r in spots:
        yield (_stop(state, "putobject", held, r), *plan)


def _targets(state: State, allowed: int, thing: int, way: Plan) -> set[int]:
    """Goal receptacles that stand for all `allowed`, for a plan that goes `way`."""
    found = _candidates(state, allowed, {state.at, *(stop.location for stop in way)})
    for stop in way:
        found.update(bits(stop.opens & allowed))
    if state.held not in (EMPTY, thing):
        # A closed one that also takes what is in the way would be opened only once.
        closed = allowed & ~state.accessible & state.world.fits[state.held]
        if closed:
            found |= _candidates(state, closed, {state.at, *(stop.location for stop in way)})
    return found


def _candidates(state: State, allowed: int, places: Iterable[int]) -> set[int]:
    """Of the `allowed` receptacles: the best at each place and the best anywhere (open first)."""
    if not allowed:
        return set()
    masks = state.world.place_masks
    found = {_first(state, allowed)}
    for place in places:
        here = masks[place] & allowed
        if here:
            found.add(_first(state, here))
    return found


def _first(state: State, mask: int) -> int:
    mask = mask & state.accessible or mask
    return (mask & -mask).bit_length() - 1


def _stop(state: State, verb: str, thing: int, r: int) -> Stop:
    opens = 0 if state.accessible >> r & 1 else 1 << r
    return Stop(state.world.location_of[r], Action(verb, thing, r), opens)


def _spelt(state: State, action: Action) -> str:
    commands = state.world.commands
    if action.verb == "toggleobject":
        return commands.use(action.thing)
    return commands.two(action.verb, action.thing, action.receptacle)
