"""GiGPO: GRPO over episodes, with a second advantage among the same observations of a task.

    A = A_episode + w * A_step
    step group   all actions of a task's episodes that answer the same observation
    A_step       the group's z-score of the return gamma ** (turns that follow) * reward

An observation is what the environment said last, with the tools' names; the first turn's is the
opening. A step group of one, or of equal returns, adds nothing. Episodes of a dead group are
trained where a step group is live: an early win is worth more than a late one.
"""

from collections import defaultdict
from collections.abc import Sequence

from pivotune.core.types import content_hash
from pivotune.train.advantages import group_advantages
from pivotune.train.episodes import (
    EpisodeConfig,
    EpisodeGroup,
    EpisodeObjective,
    Row,
    Shaped,
    all_rows,
    grpo_rows,
)

StepKey = tuple[int, int]
"""Episode of the group, turn."""


class GigpoConfig(EpisodeConfig, frozen=True, forbid_unknown_fields=True):
    """Published: gamma 0.95, weight 1."""

    gamma: float = 0.95
    """Discount of the return for every turn that follows."""
    step_weight: float = 1.0
    """w; 0 builds no step groups."""


class Gigpo(EpisodeObjective):
    """Two advantages from one set of episodes."""

    name = "gigpo"
    Config = GigpoConfig

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        config = self.config
        if not config.step_weight:
            return Shaped(grpo_rows(groups))
        rows: list[Row] = []
        live = total = 0
        for group in groups:
            steps, found = step_advantages(group, config)
            live, total = live + steps, total + len(found)
            for row in all_rows([group]):
                added = [found.get((row.number, t), 0.0) for t in range(len(row.signals))]
                if group.advantages.live or any(added):
                    rows.append(
                        row.with_advantages([row.advantage + config.step_weight * a for a in added])
                    )
        return Shaped(rows, (), {"step_live_share": live / max(1, total)})


def step_advantages(group: EpisodeGroup, config: GigpoConfig) -> tuple[int, dict[StepKey, float]]:
    """The step advantage of every action of the valid episodes, and how many are in live groups."""
    anchored: dict[str, list[tuple[StepKey, float]]] = defaultdict(list)
    for number, episode in enumerate(group.episodes):
        if episode.reward is None:
            continue
        said = episode.opening
        for t, turn in enumerate(episode.turns):
            worth = config.gamma ** (len(episode.turns) - 1 - t) * episode.reward
            anchor = content_hash([(each.role, each.name, each.content) for each in said])
            anchored[anchor].append(((number, t), worth))
            said = turn.replies
    found: dict[StepKey, float] = {}
    live = 0
    for members in anchored.values():
        advantages = group_advantages(
            [worth for _, worth in members], baseline=config.baseline, scale=config.scale
        )
        live += len(members) if advantages.live else 0
        found |= {
            key: float(value) for (key, _), value in zip(members, advantages.values, strict=True)
        }
    return live, found
