"""Put four to six digits in order, upwards or downwards."""

import random

from pivotune.domains.skills.item import Skill, SkillItem, draw_many, same_text, text_item


def make(rng: random.Random) -> SkillItem:
    """`sort down: 3 9 1 4` -> `9 4 3 1`."""
    digits = draw_many(rng, range(10), 4, 6)
    down = rng.random() < 0.5
    question = f"sort {'down' if down else 'up'}: {' '.join(map(str, digits))}"
    return text_item("sorting", question, " ".join(map(str, sorted(digits, reverse=down))))


SKILL = Skill(make, same_text)
