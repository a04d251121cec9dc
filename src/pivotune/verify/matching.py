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
    edges = [[equal(wanted, got) for got in actual] for wanted in expected]
    if all(sum(row) <= 1 for row in edges):  # nothing to choose, as with calls that all differ
        partners = [row.index(True) if True in row else -1 for row in edges]
        left = [i for i, column in enumerate(partners) if column < 0 or column in partners[:i]]
    else:
        matrix = csr_array(np.array(edges, dtype=np.int8))
        partner = maximum_bipartite_matching(matrix, perm_type="column")
        left = [position for position, column in enumerate(partner) if column < 0]
    return len(expected) - len(left), left


def same_set(expected: Sequence[T], actual: Sequence[T], equal: Callable[[T, T], bool]) -> bool:
    """Whether the two match one to one, in any order."""
    if len(expected) != len(actual):
        return False
    if all(map(equal, expected, actual)):
        return True
    return count_matched(expected, actual, equal)[0] == len(expected)
