"""Sums and differences of a number of two or three digits and one of a single digit."""

import random

from pivotune.domains.skills.item import Skill, SkillItem, same_text, text_item


def make(rng: random.Random) -> SkillItem:
    """`47-8=` -> `39`."""
    left, right = rng.randint(10, 149), rng.randint(1, 9)
    plus = rng.random() < 0.5
    value = left + right if plus else left - right
    return text_item("arithmetic", f"{left}{'+-'[not plus]}{right}=", str(value))


SKILL = Skill(make, same_text)
