"""End-to-end GRPO: whole episodes, the outcome's advantage on every token of every action.

    group    G episodes of one task, rewards r_i          A_i = (r_i - mean r) / std r
    episode  prompt | action 1 | reply | action 2 | …     A_i on the actions' tokens

The rival that PivotRL is compared with (published: 16 tasks x 32 episodes). A group whose
rewards are all equal is left out; an episode whose environment failed leaves its group.
"""

from collections.abc import Sequence

from pivotune.train.episodes import (
    EpisodeConfig,
    EpisodeGroup,
    EpisodeObjective,
    Shaped,
    grpo_rows,
)


class EpisodeGrpoConfig(EpisodeConfig, frozen=True, forbid_unknown_fields=True):
    """Nothing beyond how episodes are played."""


class EpisodeGrpo(EpisodeObjective):
    """Rows as they come."""

    name = "episode_grpo"
    Config = EpisodeGrpoConfig

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        return Shaped(grpo_rows(groups))
