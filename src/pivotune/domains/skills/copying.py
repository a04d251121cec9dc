"""Copy words under a rule about one of them."""

import random
from collections.abc import Callable

from pivotune.domains.skills.item import Skill, SkillItem, same_text, text_item

WORDS = (
    "red",
    "blue",
    "green",
    "sun",
    "moon",
    "star",
    "cat",
    "dog",
    "fish",
    "tree",
    "leaf",
    "rain",
)
RULES: dict[str, Callable[[list[str], str], list[str]]] = {
    "without": lambda words, one: [word for word in words if word != one],
    "twice": lambda words, one: [copy for word in words for copy in [word] * (1 + (word == one))],
    "up to": lambda words, one: words[: words.index(one) + 1],
    "from": lambda words, one: words[words.index(one) :],
}


def make(rng: random.Random) -> SkillItem:
    """`copy, twice sun: cat sun red` -> `cat sun sun red`. The words of an item all differ."""
    words = rng.sample(WORDS, rng.randint(3, 6))
    rule, one = rng.choice(list(RULES)), rng.choice(words)
    question = f"copy, {rule} {one}: {' '.join(words)}"
    return text_item("copying", question, " ".join(RULES[rule](words, one)))


SKILL = Skill(make, same_text)
