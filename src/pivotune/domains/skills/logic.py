"""Order three people by two comparisons, and name the first, the middle or the last."""

import itertools
import random

from pivotune.domains.skills.item import Skill, SkillItem, same_text, text_item

NAMES = ("Ann", "Bob", "Cy", "Dan", "Eve", "Fay", "Gus", "Hal")
SCALES = (("taller", "tallest", "shortest"), ("older", "oldest", "youngest"))


def make(rng: random.Random) -> SkillItem:
    """`Bob is taller than Cy. Ann is taller than Bob. Who is tallest?` -> `Ann`."""
    order = rng.sample(NAMES, 3)
    more, most, least = rng.choice(SCALES)
    facts = [f"{high} is {more} than {low}." for high, low in itertools.pairwise(order)]
    rng.shuffle(facts)
    place = rng.randrange(3)
    asked = (most, "in the middle", least)[place]
    return text_item("logic", f"{' '.join(facts)} Who is {asked}?", order[place])


SKILL = Skill(make, same_text)
