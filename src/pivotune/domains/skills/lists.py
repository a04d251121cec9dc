"""Transform a JSON list of digits; the answer is a JSON list again."""

import json
import random
from collections.abc import Callable

from pivotune.core.types import Message
from pivotune.domains.skills.item import Skill, SkillItem, draw_many, text_item

RULES: dict[str, Callable[[list[int]], list[int]]] = {
    "add one": lambda values: [value + 1 for value in values],
    "keep even": lambda values: [value for value in values if value % 2 == 0],
    "keep over 4": lambda values: [value for value in values if value > 4],
    "first two": lambda values: values[:2],
    "rotate": lambda values: [*values[1:], values[0]],
}


def make(rng: random.Random) -> SkillItem:
    """`list, keep even: [4, 7, 2]` -> `[4, 2]`."""
    values = draw_many(rng, range(10), 3, 6)
    rule = rng.choice(list(RULES))
    return text_item("lists", f"list, {rule}: {values}", json.dumps(RULES[rule](values)))


def check(item: SkillItem, message: Message) -> bool:
    """The same list, however it is spaced."""
    try:
        given = json.loads(message.content)
    except ValueError:
        return False
    return not message.tool_calls and json.dumps(given) == item.answer.content


SKILL = Skill(make, check)
