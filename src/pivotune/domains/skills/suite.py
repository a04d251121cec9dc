"""All skills by name, and items drawn from them.

Training and evaluation items differ by content: a hash of the question decides, once and for
all seeds, to which split it belongs (one in five to "eval").
"""

import random
from typing import Literal

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Message, Task
from pivotune.domains.skills import (
    arithmetic,
    calendar,
    copying,
    counting,
    lists,
    logic,
    sorting,
    strings,
)
from pivotune.domains.skills.item import Skill, SkillItem

Split = Literal["train", "eval"]
DOMAIN = "skills"
_EXHAUSTED = 5000
"""Draws in a row without a new item after which a skill counts as used up."""

SKILLS: dict[str, Skill] = {
    "arithmetic": arithmetic.SKILL,
    "calendar": calendar.SKILL,
    "copying": copying.SKILL,
    "counting": counting.SKILL,
    "lists": lists.SKILL,
    "logic": logic.SKILL,
    "sorting": sorting.SKILL,
    "strings": strings.SKILL,
}


def split_of(item: SkillItem) -> Split:
    """The split to which an item's content belongs."""
    return "eval" if derive_seed("skill split", item.id) % 5 == 0 else "train"


def draw_item(skill: str, split: Split, rng: random.Random) -> SkillItem:
    """The next item of a split; raises `DataError` for a skill that does not exist."""
    if skill not in SKILLS:
        raise DataError("unknown skill", got=skill, expected=f"one of {', '.join(SKILLS)}")
    while True:
        item = SKILLS[skill].make(rng)
        if split_of(item) == split:
            return item


def draw_items(skill: str, split: Split, *, n: int, seed: int) -> tuple[SkillItem, ...]:
    """`n` different items; the smallest skills have about 500 in "eval"."""
    rng = random.Random(derive_seed("skill items", skill, split, seed))
    items: dict[str, SkillItem] = {}
    repeats = 0
    while len(items) < n:
        item = draw_item(skill, split, rng)
        repeats = repeats + 1 if item.id in items else 0
        items[item.id] = item
        if repeats == _EXHAUSTED:
            raise DataError(f"skill {skill!r} has fewer than {n} different items", got=len(items))
    return tuple(items.values())


def check(item: SkillItem, message: Message) -> bool:
    """Whether an answer is right."""
    return SKILLS[item.skill].check(item, message)


def skill_task(item: SkillItem, split: Split) -> Task:
    """The item as a task that `SkillEnvironment` plays."""
    return Task(item.id, DOMAIN, split, {"group": item.skill, "item": msgspec.to_builtins(item)})


def skill_tasks(*, n: int, split: Split = "eval", seed: int = 0) -> tuple[Task, ...]:
    """`n` tasks of every skill, skill by skill."""
    return tuple(
        skill_task(item, split)
        for name in SKILLS
        for item in draw_items(name, split, n=n, seed=seed)
    )


def task_item(task: Task) -> SkillItem:
    """The item of a task; raises `DataError` when it is no skill task."""
    try:
        item = msgspec.convert(task.payload["item"], SkillItem)
    except (KeyError, msgspec.ValidationError) as error:
        raise DataError("not a skill task", where=task.id, got=task.payload) from error
    if item.skill not in SKILLS:
        raise DataError("unknown skill", where=task.id, got=item.skill)
    return item
