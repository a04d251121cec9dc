"""Count how often a letter stands in a row of letters."""

import random

from pivotune.domains.skills.item import Skill, SkillItem, same_text, text_item

LETTERS = "abcdxyz"


def make(rng: random.Random) -> SkillItem:
    """`count b: a b b x` -> `2`."""
    wanted = rng.choice(LETTERS)
    row = [wanted if rng.random() < 0.4 else rng.choice(LETTERS) for _ in range(rng.randint(3, 8))]
    return text_item("counting", f"count {wanted}: {' '.join(row)}", str(row.count(wanted)))


SKILL = Skill(make, same_text)
