"""Random token trees, and what they mean token by token."""

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from pivotune.models.trees import Segment, Signal, TokenTree, path_ids, start_position

VOCABULARY = 40
Booleans = npt.NDArray[np.bool_]


@st.composite
def token_trees(draw: st.DrawFn, max_trees: int = 3) -> list[TokenTree]:
    """Several trees; branches nest, may be empty or one token, often attach at the very end."""
    count = draw(st.integers(1, max_trees))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return [_tree(draw, rng, f"tree-{i}") for i in range(count)]


def _tree(draw: st.DrawFn, rng: np.random.Generator, name: str) -> TokenTree:
    segments = [_segment(rng, draw(st.integers(1, 12)), -1, 0)]
    for length in draw(st.lists(st.integers(0, 5), max_size=7)):
        parents = [i for i, segment in enumerate(segments) if len(segment.ids)]
        parent = draw(st.sampled_from(parents))
        full = len(segments[parent].ids)
        attach = full if draw(st.booleans()) else draw(st.integers(1, full))
        segments.append(_segment(rng, length, parent, attach))
    return TokenTree(name, tuple(segments))


def _segment(rng: np.random.Generator, length: int, parent: int, attach: int) -> Segment:
    ids = rng.integers(0, VOCABULARY, length)
    weights = np.where(rng.random(length) < 0.6, rng.normal(size=length), 0).astype(np.float32)
    kind = rng.random(length) < 0.5
    if parent < 0:
        weights[0] = 0
    signal = Signal(
        pg_weights=np.where(kind, weights, 0).astype(np.float32),
        advantages=rng.normal(size=length).astype(np.float32),
        behaviour=-rng.random(length).astype(np.float32),
        ce_weights=np.where(kind, 0, weights).astype(np.float32),
        temperature=float(rng.choice([1.0, 0.7])),
        row=int(rng.integers(0, 4)),
    )
    return Segment(ids, signal, parent, attach)


def group(
    prompt: int, lengths: list[int], *, name: str = "pivot", seed: int = 0, attach: int = 0
) -> TokenTree:
    """A trunk that is read and branches that are trained, at `attach` (0: the trunk's end)."""
    rng = np.random.default_rng(seed)
    zeros = np.zeros(prompt, np.float32)
    trunk = Segment(rng.integers(0, VOCABULARY, prompt), Signal(zeros, zeros, zeros, zeros))
    branches = []
    for row, length in enumerate(lengths):
        ones = np.ones(length, np.float32)
        signal = Signal(ones, ones, np.full(length, np.nan, np.float32), ones * 0, 1.0, row)
        ids = rng.integers(0, VOCABULARY, length)
        branches.append(Segment(ids, signal, 0, attach or prompt))
    return TokenTree(name, (trunk, *branches))


def token_paths(trees: list[TokenTree]) -> list[tuple[tuple[int, int, int], ...]]:
    """For every token of every tree the (tree, segment, index) of all that it sees, itself last."""
    paths: dict[tuple[int, int, int], tuple[tuple[int, int, int], ...]] = {}
    for number, tree in enumerate(trees):
        for place, segment in enumerate(tree.segments):
            for index in range(len(segment.ids)):
                if index:
                    before = paths[number, place, index - 1]
                elif segment.parent >= 0:
                    before = paths[number, segment.parent, segment.attach - 1]
                else:
                    before = ()
                paths[number, place, index] = (*before, (number, place, index))
    return list(paths.values())


def prompt_and_target(tree: TokenTree, segment: int, index: int) -> tuple[list[int], int]:
    """The tokens before one token of a tree, and that token."""
    ids = path_ids(tree, segment).tolist()
    length = start_position(tree, segment) + index
    return ids[:length], ids[length]
