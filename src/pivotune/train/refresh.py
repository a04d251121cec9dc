"""Pivots chosen anew while training: when they have been learnt, others may matter (ours).

    live share or success of the last steps --saturated--> profile some candidates under the
    policy as it is now --mixed and mean below--> the new pool of pivots

What profiling costs is charged to a phase of its own. The pool and the last steps' figures are
the state; what is profiled follows from (seed, step).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, JsonObject, Turn
from pivotune.turns.pivots import reward_stats
from pivotune.turns.rollout import Group

SampleGroups = Callable[[Sequence[Turn], int, int], list[Group]]
"""(turns, samples of each, seed) -> groups at the method's own temperature."""


class RefreshConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When pivots are chosen anew, and among how many candidates. All numbers are ours."""

    live_below: float = 0.3
    """Mean live share over the window below which it is time."""
    success_above: float = 0.9
    """Mean reward over the window above which it is time."""
    window: int = 5
    """Steps that are looked at; also the least time between two refreshes."""
    turns: int = 64
    """Candidates that are profiled, drawn anew each time."""
    samples: int = 8
    """Samples of each."""
    mean_below: float = 0.75
    """A mixed turn becomes a pivot when its mean reward is below."""
    most: int = 4
    """Refreshes of a run at most."""

    def __post_init__(self) -> None:
        if min(self.window, self.turns) < 1 or self.samples < 2:
            raise ValueError(
                "refresh: window and turns start at 1, samples at 2; got "
                f"window {self.window}, turns {self.turns}, samples {self.samples}"
            )


@dataclass(slots=True)
class _Seen:
    live: list[float] = field(default_factory=list)
    success: list[float] = field(default_factory=list)
    done: int = 0


class Refresher:
    """The pool of pivots as it is now, and what the last steps were like."""

    def __init__(
        self,
        config: RefreshConfig,
        pool: Sequence[Turn],
        candidates: Sequence[Turn],
        seed: int,
    ) -> None:
        self._config = config
        self._by_id = {turn.id: turn for turn in (*candidates, *pool)}
        self._candidates = candidates
        self._seed = seed
        self._seen = _Seen()
        self.pool: list[Turn] = list(pool)

    def note(self, live_share: float, success: float) -> None:
        """The figures of a step that was just collected."""
        last = self._config.window
        self._seen.live = [*self._seen.live, live_share][-last:]
        self._seen.success = [*self._seen.success, success][-last:]

    @property
    def due(self) -> bool:
        """Whether a whole window of steps was saturated."""
        config, seen = self._config, self._seen
        if seen.done >= config.most or len(seen.live) < config.window:
            return False
        dead = float(np.mean(seen.live)) < config.live_below
        return dead or float(np.mean(seen.success)) > config.success_above

    def renew(self, sample: SampleGroups, step: int) -> tuple[list[Group], Cost]:
        """Choose the pool anew; it stays where no candidate qualifies. The groups, and the cost."""
        started = time.perf_counter()
        config = self._config
        seed = derive_seed(self._seed, "refresh", step)
        order = np.random.default_rng(seed).permutation(len(self._candidates))[: config.turns]
        turns = [self._candidates[int(i)] for i in order]
        groups = sample(turns, config.samples, seed)
        found = [group.turn for group in groups if self._qualifies(group)]
        self.pool = found or self.pool
        self._seen = _Seen(done=self._seen.done + 1)
        cost = sum((group.cost for group in groups), Cost())
        return groups, cost + Cost(seconds=time.perf_counter() - started)

    def _qualifies(self, group: Group) -> bool:
        rewards = [v.reward for v in group.verdicts if v.reward is not None]
        stats = reward_stats(rewards)
        return stats is not None and stats.mixed and stats.mean < self._config.mean_below

    def state(self) -> JsonObject:
        seen = self._seen
        pool = [turn.id for turn in self.pool]
        return {"pool": pool, "live": seen.live, "success": seen.success, "done": seen.done}

    def load_state(self, state: JsonObject) -> None:
        self.pool = [self._by_id[each] for each in state["pool"]]
        self._seen = _Seen(list(state["live"]), list(state["success"]), state["done"])
