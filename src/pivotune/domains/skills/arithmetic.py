"""Sums and differences of a two-digit and a small number."""

import random

from pivotune.domains.skills.item import Skill, SkillItem, same_text, text_item


def make(rng: random.Random) -> SkillItem:
    """`compute: 47 - 8` -> `39`."""
    left, right = rng.randint(10, 89), rng.randint(1, 19)
    if right > left:
        left, right = right, left
    plus = rng.random() < 0.5
    value = left + right if plus else left - right
    return text_item("arithmetic", f"compute: {left} {'+-'[not plus]} {right}", str(value))


SKILL = Skill(make, same_text)
