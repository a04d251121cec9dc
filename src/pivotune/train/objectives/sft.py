"""Supervised fine-tuning on the experts' actions, whole trajectories at a time.

    trunk   system user | action 1 | result | action 2 | result | action 3
    weight       0           1         0          1         0         1

The action carries its stop token. Where the template rewrites history (thinking that is
stripped later on), the next prompt does not extend what came before: a new tree begins there,
and `split_share` says how often. A trajectory's trees are drawn together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from pivotune.core.types import Trajectory
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import Segment, TokenTree, cross_entropy_signal
from pivotune.train.draws import draw_batch
from pivotune.train.objective import Collected, Materials, Stateless, required
from pivotune.train.objectives.likelihood import tree_lengths

KeepTurn = Callable[[Trajectory, int], bool]
"""Whether the assistant message with this index (from 0) of a trajectory is trained."""


class SftConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a step holds, and of what."""

    batch: int = 16
    """Trajectories a step."""
    replay_share: float = 0.0
    """Share of them that is drawn from the replay trajectories."""
    max_tokens: int = 4096
    """Longer trajectories are cut behind the last action that fits; `cut_actions` counts."""
    only_given_turns: bool = False
    """Train only the turns in the materials' `turns` (filtered ones); the rest is context."""


def keep_all(trajectory: Trajectory, index: int) -> bool:
    """Train every assistant message."""
    return True


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTrajectory:
    """A trajectory's trees; `cut` actions did not fit."""

    trees: tuple[TokenTree, ...]
    cut: int


def encode_trajectory(
    chat: ChatFormat, trajectory: Trajectory, keep: KeepTurn, max_tokens: int
) -> EncodedTrajectory:
    """One trunk as long as each prompt extends the action before it, else a new tree."""
    trees: list[TokenTree] = []
    ids: list[int] = []
    weights: list[float] = []
    spoken = [i for i, each in enumerate(trajectory.messages) if each.role == "assistant"]
    for turn, position in enumerate(spoken):
        history, message = trajectory.messages[:position], trajectory.messages[position]
        prompt, action = chat.render_action(history, trajectory.tools, message)
        if len(prompt) + len(action) > max_tokens:
            break
        if prompt[: len(ids)] != ids:
            _add_tree(trees, trajectory.id, ids, weights)
            ids, weights = [], []
        weights += [0.0] * (len(prompt) - len(weights))
        weights += [1.0 if keep(trajectory, turn) else 0.0] * len(action)
        ids = prompt + action
    else:
        turn = len(spoken)
    _add_tree(trees, trajectory.id, ids, weights)
    return EncodedTrajectory(tuple(trees), len(spoken) - turn)


def _add_tree(
    trees: list[TokenTree], name: str, ids: Sequence[int], weights: Sequence[float]
) -> None:
    if any(weights):
        signal = cross_entropy_signal(weights)
        trees.append(TokenTree(name, (Segment(np.array(ids, np.int64), signal),)))


class Sft(Stateless):
    """Draws trajectories in shuffled epochs; each is put into tokens when it is first drawn."""

    Config = SftConfig

    def __init__(self, materials: Materials, config: SftConfig) -> None:
        self._chat = required(materials.chat, "a chat format", "sft")
        self._experts = required(materials.trajectories, "expert trajectories", "sft")
        self._replay = materials.replay
        if config.replay_share > 0:
            required(self._replay or None, "replay trajectories (replay_share > 0)", "sft")
        self._seed = materials.seed
        self._config = config
        self._given = {(turn.trajectory_id, turn.index) for turn in materials.turns}
        self._made: dict[tuple[str, int], EncodedTrajectory] = {}

    def collect(self, step: int) -> Collected:
        replayed = round(self._config.batch * self._config.replay_share)
        drawn = self._drawn("expert", self._experts, self._config.batch - replayed, step)
        drawn += self._drawn("replay", self._replay, replayed, step)
        trees = [tree for each in drawn for tree in each.trees]
        counts = {
            "split_share": sum(len(each.trees) > 1 for each in drawn) / max(1, len(drawn)),
            "cut_actions": sum(each.cut for each in drawn),
        }
        return Collected(trees, {**tree_lengths(trees), **counts})

    def _drawn(
        self, name: str, pool: Sequence[Trajectory], count: int, step: int
    ) -> list[EncodedTrajectory]:
        places = draw_batch(range(len(pool)), count, seed=self._seed, name=f"sft {name}", step=step)
        return [self._encoded(name, place, pool[place]) for place in places]

    def _encoded(self, name: str, place: int, trajectory: Trajectory) -> EncodedTrajectory:
        found = self._made.get((name, place))
        if found is None:
            filtered = self._config.only_given_turns and name == "expert"
            keep = self._is_given if filtered else keep_all
            found = encode_trajectory(self._chat, trajectory, keep, self._config.max_tokens)
            self._made[name, place] = found
        return found

    def _is_given(self, trajectory: Trajectory, index: int) -> bool:
        return (trajectory.id, index) in self._given
