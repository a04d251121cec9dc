"""Turn a request into one call of a small calendar and weather API."""

import random
from typing import Any

from pivotune.core.types import Message, ToolCall, ToolSpec
from pivotune.domains.skills.item import Skill, SkillItem, same_call

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
PEOPLE = ("Ann", "Bob", "Cy", "Dan", "Eve", "Fay", "Gus", "Hal")
CITIES = ("Paris", "Rome", "Oslo", "Lima", "Cairo", "Tokyo")
ERRANDS = ("call", "pay", "visit", "thank", "invite")


def _tool(name: str, description: str, **kinds: str) -> ToolSpec:
    properties: dict[str, Any] = {key: {"type": kind} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)}
    return ToolSpec(name, description, parameters)


TOOLS = (
    _tool("meet", "Book a meeting.", person="string", day="string", hour="integer"),
    _tool("cancel", "Cancel all meetings with a person on a day.", person="string", day="string"),
    _tool("weather", "The forecast.", city="string", day="string"),
    _tool("remind", "Set a reminder.", errand="string", person="string", hour="integer"),
)


def make(rng: random.Random) -> SkillItem:
    """`Book Ann on Friday at 9.` -> `meet{"person": "Ann", "day": "Friday", "hour": 9}`."""
    person, day, hour = rng.choice(PEOPLE), rng.choice(DAYS), rng.randint(1, 12)
    city, errand = rng.choice(CITIES), rng.choice(ERRANDS)
    question, name, arguments = rng.choice(_requests(person, day, hour, city, errand))
    answer = Message("assistant", tool_calls=(ToolCall(name, arguments),))
    return SkillItem("calendar", question, answer, TOOLS)


def _requests(
    person: str, day: str, hour: int, city: str, errand: str
) -> tuple[tuple[str, str, dict[str, Any]], ...]:
    """Every way to ask: the question, the tool's name, its arguments."""
    meet = {"person": person, "day": day, "hour": hour}
    cancel = {"person": person, "day": day}
    weather = {"city": city, "day": day}
    remind = {"errand": errand, "person": person, "hour": hour}
    return (
        (f"Book {person} on {day} at {hour}.", "meet", meet),
        (f"At {hour} on {day} I want to see {person}.", "meet", meet),
        (f"I will not see {person} on {day}.", "cancel", cancel),
        (f"Will it rain in {city} on {day}?", "weather", weather),
        (f"On {day} I fly to {city}. How is it there?", "weather", weather),
        (f"I have to {errand} {person} at {hour}.", "remind", remind),
        (f"Remind me at {hour} to {errand} {person}.", "remind", remind),
    )


SKILL = Skill(make, same_call)
