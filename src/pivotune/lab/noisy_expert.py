"""A player that knows the house but is unsure at certain moments: the base model's teacher.

How likely a mistake is depends on what the moment asks for, not on the player: everybody opens
the fridge they stand at, but that the mug must be cleaned first is easily forgotten. So a model
that imitates it is sure of some turns and torn at others, whatever came before.

Some mistakes say the last command once more. A small model copies readily: one that never saw a
repetition left, stays in its first one for ever.
"""

import random

import msgspec

from pivotune.core.seeds import derive_seed
from pivotune.core.types import Message, Task, Trajectory, content_hash
from pivotune.domains.household.actions import put_template, to_message
from pivotune.domains.household.environment import (
    DOMAIN,
    EnvironmentConfig,
    HouseholdEnvironment,
)
from pivotune.domains.household.expert import ExpertConfig, Memory, SearchingExpert

_IDLE = ("look", "inventory", "examine", "invalid")
_ASTRAY = ("detour", "wrong_object", "wrong_place", "skip_open", "skip_step")
_MISTAKES = _IDLE + 3 * _ASTRAY
"""Drawn from in this proportion, as far as a kind is possible at the moment."""
_REPEAT = 0.3
"""Share of mistakes that say the last command once more."""


class Doubts(msgspec.Struct, frozen=True):
    """Chance of a mistake by what the moment asks for."""

    search: float = 0.0
    """Nothing wanted has been seen: choose where to look."""
    open: float = 0.0
    """Standing at a shut place while searching."""
    fetch: float = 0.7
    """Something wanted has been seen elsewhere."""
    take: float = 0.0
    """Something wanted lies here."""
    treat: float = 0.85
    """It is held and must be cleaned, heated or cooled first."""
    deliver: float = 0.8
    """It is held and belongs somewhere else, or under a lamp."""
    place: float = 0.0
    """It is held where it belongs."""
    put_back: float = 0.0
    """Something else is held."""


def play_unsurely(task: Task, doubts: Doubts, shown: EnvironmentConfig, seed: int) -> Trajectory:
    """One game played; equal arguments give equal trajectories. `meta` as in recorded traces."""
    environment = HouseholdEnvironment(shown)
    messages: list[Message] = list(environment.reset(task))
    put = put_template(environment.game)
    player = SearchingExpert(ExpertConfig(), derive_seed("unsure expert", task.id, seed), put)
    player.begin(environment.opening)
    rng = random.Random(derive_seed("repeats", task.id, seed))
    mistakes: list[str] = []
    command = ""
    while not environment.done:
        doubt = getattr(doubts, moment(player.memory))
        player.config = ExpertConfig(noise=doubt, mistakes=_MISTAKES)
        choice = player.choose()
        if choice is None:
            break
        again = bool(command and choice.mistake and rng.random() < _REPEAT)
        command = command if again else choice.command
        action = to_message(command, shown.dialect, put)
        replies = environment.step(action).replies
        player.observe(command, replies[0].content)
        messages += (action, *replies)
        mistakes.append("repeat" if again else choice.mistake)
    return Trajectory(
        id=f"{task.id}-{content_hash(doubts, shown, seed)[:8]}",
        domain=DOMAIN,
        task=task,
        tools=environment.tools,
        messages=tuple(messages),
        reward=environment.reward(),
        meta={"steps": len(mistakes), "mistakes": mistakes},
    )


def moment(memory: Memory) -> str:
    """What a player's situation asks for: the name of a field of `Doubts`."""
    errand, here, held = memory.errand, memory.here, memory.held
    if held:
        if _kind(held) != errand.thing:
            return "put_back"
        if errand.treatment and held not in memory.treated:
            return "treat"
        return "place" if _kind(here) == errand.target and not errand.under_lamp else "deliver"
    spots = [memory.seen_at[name] for name in memory.things(errand.thing)]
    left = [spot for spot in spots if errand.count == 1 or _kind(spot) != errand.target]
    if left:
        return "take" if here in left else "fetch"
    return "open" if here and memory.shut(here) else "search"


def _kind(name: str) -> str:
    return name.split(" ", 1)[0]
