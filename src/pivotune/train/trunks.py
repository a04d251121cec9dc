"""From groups and episodes to token trees, and trees with a common beginning into one.

an episode in one trunk     prompt | action 1 | reply | action 2 | …
weight                         0        1         0        1
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pivotune.core.types import Completion, Episode
from pivotune.models.trees import Floats, Segment, Signal, Targets, TokenTree, context_signal


@dataclass(frozen=True, slots=True, eq=False)
class ActionSignal:
    """What one action's T tokens are trained with; the arrays have shape (T,).

    `weights`: of the policy-gradient term, 0 where the token is only read. `likelihood`: weight
    of -log p. `targets`: a teacher's distributions.
    """

    advantages: Floats
    weights: Floats
    likelihood: Floats
    targets: Targets | None = None

    @property
    def live(self) -> bool:
        matched = self.targets is not None and bool(self.targets.weights.any())
        return matched or bool(self.weights.any() or self.likelihood.any())


def action_signal(
    completion: Completion,
    advantage: float | Floats,
    *,
    weight: float = 1.0,
    likelihood: float | Floats = 0.0,
) -> ActionSignal:
    """One number for all of an action's tokens, or one each."""
    length = len(completion.token_ids)

    def spread(value: float | Floats) -> Floats:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float32), (length,)))

    return ActionSignal(spread(advantage), spread(weight), spread(likelihood))


def tree_signal(completion: Completion, signal: ActionSignal, row: int) -> Signal:
    """An action's signal with what was recorded when it was sampled."""
    return Signal(
        signal.weights,
        signal.advantages,
        np.asarray(completion.logprobs, np.float32),
        signal.likelihood,
        completion.temperature,
        row,
        signal.targets,
    )


def turn_tree(name: str, completion: Completion, signal: ActionSignal) -> TokenTree:
    """One action behind the prompt that it was sampled at, as a sample of its own."""
    prompt = np.array(completion.prompt_ids, np.int64)
    ids = np.array(completion.token_ids, np.int64)
    action = Segment(ids, tree_signal(completion, signal, 0), parent=0, attach=len(prompt))
    return TokenTree(name, (Segment(prompt, context_signal(len(prompt))), action))


def episode_trees(name: str, episode: Episode, signals: Sequence[ActionSignal]) -> list[TokenTree]:
    """An episode as one trunk, as long as each prompt extends the action before it.

    Where the template rewrites history a new tree begins. An episode has one temperature.
    """
    trees: list[TokenTree] = []
    ids: list[int] = []
    parts: list[Signal] = []
    for turn, signal in zip(episode.turns, signals, strict=True):
        completion = turn.completion
        prompt = list(completion.prompt_ids)
        if prompt[: len(ids)] != ids:
            trees += _trunk(name, ids, parts)
            ids, parts = [], []
        parts += [context_signal(len(prompt) - len(ids)), tree_signal(completion, signal, 0)]
        ids = [*prompt, *completion.token_ids]
    return trees + _trunk(name, ids, parts)


def _trunk(name: str, ids: Sequence[int], parts: Sequence[Signal]) -> list[TokenTree]:
    """No tree where nothing is trained; what follows the last trained token stays."""
    if not any(each.live.any() for each in parts):
        return []
    signal = Signal(
        np.concatenate([each.pg_weights for each in parts]),
        np.concatenate([each.advantages for each in parts]),
        np.concatenate([each.behaviour for each in parts]),
        np.concatenate([each.ce_weights for each in parts]),
        parts[-1].temperature,
        targets=_join_targets(parts),
    )
    return [TokenTree(name, (Segment(np.array(ids, np.int64), signal),))]


def _join_targets(parts: Sequence[Signal]) -> Targets | None:
    widest = max((each.targets.ids.shape[1] for each in parts if each.targets), default=0)
    if not widest:
        return None
    whole = [each.targets or _no_targets(len(each.pg_weights), widest) for each in parts]
    return Targets(
        np.concatenate([each.ids for each in whole]),
        np.concatenate([each.probs for each in whole]),
        np.concatenate([each.weights for each in whole]),
    )


def _no_targets(length: int, width: int) -> Targets:
    shape = (length, width)
    return Targets(
        np.zeros(shape, np.int64), np.zeros(shape, np.float32), np.zeros(length, np.float32)
    )


def merge_trunks(trees: Sequence[TokenTree]) -> list[TokenTree]:
    """Trees whose trunk is a prefix of another's trunk move onto the longer one.

    All trunks must be context only, as those of groups and turns are. Rows are numbered on, so
    that every action stays a sample of its own.
    """
    return share_trunks((), trees)


def share_trunks(hosts: Sequence[TokenTree], trees: Sequence[TokenTree]) -> list[TokenTree]:
    """`merge_trunks`, onto `hosts` too: these stay as they are and may have trained trunks."""
    merged = list(hosts)
    by_length = sorted(trees, key=lambda tree: -len(tree.segments[0].ids))
    for tree in by_length:
        trunk = tree.segments[0].ids
        for place, host in enumerate(merged):
            if np.array_equal(host.segments[0].ids[: len(trunk)], trunk):
                merged[place] = _moved(host, tree)
                break
        else:
            merged.append(tree)
    return merged


def _moved(host: TokenTree, tree: TokenTree) -> TokenTree:
    first = 1 + max(segment.signal.row for segment in host.segments)
    moved = [
        replace(each, signal=replace(each.signal, row=first + each.signal.row))
        for each in tree.segments[1:]
    ]
    return TokenTree(f"{host.id} + {tree.id}", (*host.segments, *moved))
