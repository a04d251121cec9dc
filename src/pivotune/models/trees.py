"""Token trees: the unit of compute. A shared history is a trunk, its continuations are branches.

    trunk    s0 s1 s2 s3 s4 s5 s6          segment 0
    branch            └ a0 a1 a2           parent 0, attach 3: sees s0 s1 s2 and itself
    branch            └ b0 b1              parent 0, attach 3: sees s0 s1 s2 and itself
    nested                 └ c0            parent 2, attach 1: sees s0 s1 s2 b0 and itself

Position ids count along the path, so every root-to-leaf path is an ordinary sequence. Signals
at index i of a segment concern the prediction of its token i; the first token of a branch is
predicted at the parent's token `attach - 1`. A trunk's first token is predicted by nothing and
carries no signal. numpy only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """A teacher's K most likely tokens where each of T tokens is predicted.

    `ids` and `probs` have shape (T, K); a probability of 0 fills up where there are fewer. What
    is left of 1 is one further outcome, the tail. `weights` (T,) are those of the forward
    KL(teacher || student), 0 where there is none.
    """

    ids: Ints
    probs: Floats
    weights: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """What the losses do with a segment's T tokens; each array has shape (T,).

    `pg_weights`: weight of a token in the policy-gradient term and in its denominator (0: not
    trained). `advantages`, `behaviour` (log-probs under the policy that sampled, at
    `temperature`): used where `pg_weights` is not 0; `behaviour` NaN means "the policy as it is
    at this step", i.e. ratio 1. `ce_weights`: weight of -log p; any sign. `row`: the sample that
    the segment belongs to, for sequence-level options. `temperature` divides the logits.
    `targets`: a teacher's distribution to be matched, where there is one.
    """

    pg_weights: Floats
    advantages: Floats
    behaviour: Floats
    ce_weights: Floats
    temperature: float = 1.0
    row: int = 0
    targets: Targets | None = None

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """(T,) where a log-probability is needed."""
        live: npt.NDArray[np.bool_] = (self.pg_weights != 0) | (self.ce_weights != 0)
        return live if self.targets is None else live | (self.targets.weights != 0)


def context_signal(length: int) -> Signal:
    """Tokens that are read and not trained."""
    zeros = np.zeros(length, np.float32)
    return Signal(zeros, zeros, zeros, zeros)


def cross_entropy_signal(weights: Sequence[float] | Floats) -> Signal:
    """Tokens trained by likelihood with these weights."""
    ce = np.asarray(weights, np.float32)
    zeros = np.zeros(len(ce), np.float32)
    return Signal(zeros, zeros, zeros, ce)


def policy_gradient_signal(
    advantage: float | Floats,
    behaviour: Sequence[float] | Floats,
    *,
    temperature: float,
    row: int,
    weight: float = 1.0,
) -> Signal:
    """An action's tokens with one advantage (or one each) and their sampling log-probs."""
    logprobs = np.asarray(behaviour, np.float32)
    advantages = np.broadcast_to(np.asarray(advantage, np.float32), logprobs.shape)
    weights = np.full(len(logprobs), weight, np.float32)
    return Signal(weights, advantages, logprobs, np.zeros_like(logprobs), temperature, row)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A run of tokens after the first `attach` tokens of an earlier segment `parent`."""

    ids: Ints
    signal: Signal
    parent: int = -1
    attach: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class TokenTree:
    """Segment 0 is the trunk; every other segment's parent stands before it.

    `id` names the pivot, turn or trajectory in messages about this tree.
    """

    id: str
    segments: tuple[Segment, ...]

    @property
    def token_count(self) -> int:
        """Tokens computed once each: what a tree costs."""
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def row_token_count(self) -> int:
        """Tokens of all root-to-leaf rows: what the plain path costs."""
        ends = {segment.parent for segment in self.segments}
        leaves = [i for i in range(len(self.segments)) if i not in ends]
        return sum(path_length(self, i) for i in leaves)


def path_length(tree: TokenTree, index: int) -> int:
    """Tokens from the root to the end of a segment."""
    segment = tree.segments[index]
    return start_position(tree, index) + len(segment.ids)


def start_position(tree: TokenTree, index: int) -> int:
    """Position id of a segment's first token."""
    segment = tree.segments[index]
    if segment.parent < 0:
        return 0
    return start_position(tree, segment.parent) + segment.attach


def path_ids(tree: TokenTree, index: int) -> Ints:
    """The ordinary sequence that ends with a segment."""
    segment = tree.segments[index]
    if segment.parent < 0:
        return segment.ids
    prefix = path_ids(tree, segment.parent)
    parent_length = len(tree.segments[segment.parent].ids)
    keep = len(prefix) - parent_length + segment.attach
    return np.concatenate([prefix[:keep], segment.ids])
