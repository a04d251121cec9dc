"""Transform a word that is spelled letter by letter."""

import random
import string
from collections.abc import Callable

from pivotune.domains.skills.item import Skill, SkillItem, draw_many, same_text, text_item

RULES: dict[str, Callable[[list[str]], list[str]]] = {
    "reverse": lambda letters: letters[::-1],
    "capitals": lambda letters: [letter.upper() for letter in letters],
    "swap ends": lambda letters: [letters[-1], *letters[1:-1], letters[0]],
    "drop last": lambda letters: letters[:-1],
    "double first": lambda letters: [letters[0], *letters],
}


def make(rng: random.Random) -> SkillItem:
    """`word, swap ends: k t a` -> `a t k`."""
    letters = draw_many(rng, string.ascii_lowercase, 3, 6)
    rule = rng.choice(list(RULES))
    return text_item(
        "strings", f"word, {rule}: {' '.join(letters)}", " ".join(RULES[rule](letters))
    )


SKILL = Skill(make, same_text)
