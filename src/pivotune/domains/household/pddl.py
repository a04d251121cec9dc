"""The reader of s-expressions, and the check that a game's rules are those we play.

The rules of an official file are compared action by action, by a fingerprint of the parsed form,
with those that `engine.py` plays: a file with other rules is refused instead of being played
wrongly.
"""

import hashlib
import re
from typing import Final, NamedTuple

from pivotune.core.errors import DataError

_WORD: Final = re.compile(r"[()]|[^\s()]+")
_MAX_DEPTH: Final = 100


class Node(NamedTuple):
    """A list of an s-expression, with the line where it opens. Words are lower case."""

    items: tuple["Node | str", ...]
    line: int

    @property
    def head(self) -> str:
        """The first word, or nothing."""
        return self.items[0] if self.items and isinstance(self.items[0], str) else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the list, sub-lists left out."""
        return tuple(item for item in self.items if isinstance(item, str))

    @property
    def lists(self) -> tuple["Node", ...]:
        """The sub-lists."""
        return tuple(item for item in self.items if isinstance(item, Node))


def read_expression(text: str, where: str) -> Node:
    """The one s-expression of a text. DataError names the line of a damage."""
    open_lists: list[tuple[list[Node | str], int]] = []
    result: Node | None = None
    number = 0
    for number, line in enumerate(text.lower().split("\n"), start=1):
        for word in _WORD.findall(line.partition(";")[0]):
            if result is not None or (word != "(" and not open_lists):
                raise DataError(f"unexpected {word[:20]!r}", where=f"{where}, line {number}")
            if word == "(":
                open_lists.append(([], number))
                if len(open_lists) > _MAX_DEPTH:
                    raise DataError("lists nested too deeply", where=f"{where}, line {number}")
            elif word == ")":
                items, opened = open_lists.pop()
                node = Node(tuple(items), opened)
                if open_lists:
                    open_lists[-1][0].append(node)
                else:
                    result = node
            else:
                open_lists[-1][0].append(word)
    if result is None:
        opened = open_lists[-1][1] if open_lists else number
        raise DataError("a list is not closed", where=f"{where}, line {opened}", expected=")")
    return result


def fingerprints(domain: str, where: str) -> dict[str, str]:
    """A short hash of each action of a domain, white space and comments left out."""
    tree = read_expression(domain, where)
    if tree.head != "define" or not tree.lists or tree.lists[0].words != ("domain", "alfred"):
        raise DataError(
            "not the rules of an ALFWorld game", where=where, expected="(define (domain alfred) …)"
        )
    actions = {}
    for section in tree.lists[1:]:
        if section.head == ":action" and len(section.words) > 1:
            name = section.words[1]
            actions[name] = hashlib.blake2b(_flat(section).encode(), digest_size=8).hexdigest()
        elif section.head not in (":requirements", ":types", ":predicates", ":functions"):
            raise DataError(
                f"unknown section {section.head!r}", where=f"{where}, line {section.line}"
            )
    return actions


def _flat(node: Node | str) -> str:
    if isinstance(node, str):
        return node
    return f"({' '.join(_flat(item) for item in node.items)})"


# The actions that `engine.py` plays, and for cleaning the receptacle types that each form allows.
_PLAYED: Final = {
    "closeobject": "937a5a533ff46e4f",
    "coolobject": "2385185fb7847776",
    "examineobject": "c311276090be0031",
    "examinereceptacle": "3f353b534bb81600",
    "gotolocation": "82430e6587dcd0f8",
    "heatobject": "923de8f6332f0056",
    "inventory": "51ce3971185dd9be",
    "look": "67ad89358006b2f0",
    "openobject": "eb13628f35987745",
    "pickupobject": "736f5a1896f9cf75",
    "putobject": "8bfd81a9586357d8",
    "sliceobject": "6bed10168defa36f",
    "toggleobject": "0d902eacba1db2a5",
}
_HELP: Final = "a2430dd4ee0c135f"
_CLEANERS: Final = {
    "4c7b1bd7651acad8": ("sink", "sinkbasin"),
    "fd89a9db8d6c776a": ("sinkbasin",),
}


class Rules(NamedTuple):
    """In what the rules of official files differ."""

    cleaners: tuple[str, ...]
    has_help: bool


_rules_known: dict[str, Rules] = {}


def read_rules(domain: str, where: str) -> Rules:
    """Check the rules; texts that were found good are remembered, there are only a few."""
    if domain not in _rules_known:
        _rules_known[domain] = _check_rules(fingerprints(domain, where), where)
    return _rules_known[domain]


def _check_rules(found: dict[str, str], where: str) -> Rules:
    for name in sorted(found.keys() | _PLAYED.keys() | {"cleanobject"}):
        have = found.get(name)
        if name == "help":
            good = have == _HELP
        elif name == "cleanobject":
            good = have in _CLEANERS
        else:
            good = have is not None and have == _PLAYED.get(name)
        if not good:
            raise DataError(
                f"the rules of action {name!r} are not ALFWorld's",
                where=where,
                got="no such action" if have is None else "other preconditions or effects",
                expected="the rules of an ALFWorld 0.3 or 0.4 game file",
                fix="play this game with the reference engine (the extra `alfworld`)",
            )
    return Rules(_CLEANERS[found["cleanobject"]], "help" in found)
