"""Maximum matching between expected and actual things, so that none is used twice."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

T = TypeVar("T")


def count_matched(
    expected: Sequence[T], actual: Sequence[T], equal: Callable[[T, T], bool]
) -> tuple[int, list[int]]:
    """Size of a maximum matching, and the expected positions that it leaves over."""
    edges = np.array([[equal(e, a) for a in actual] for e in expected], dtype=np.int8)
    if edges.size == 0:
        return 0, list(range(len(expected)))
    partner = maximum_bipartite_matching(csr_array(edges), perm_type="column")
    left = [position for position, column in enumerate(partner) if column < 0]
    return len(expected) - len(left), left


def same_set(expected: Sequence[T], actual: Sequence[T], equal: Callable[[T, T], bool]) -> bool:
    """Whether the two match one to one, in any order."""
    if len(expected) != len(actual):
        return False
    if all(map(equal, expected, actual)):
        return True
    return count_matched(expected, actual, equal)[0] == len(expected)
