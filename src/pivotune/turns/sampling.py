"""Posterior-tempered group sampling (PTGS): hotter where a task fails, colder where it succeeds.

    tally (s, f) --Beta(2q + s, 2(1 - q) + f)--> drawn success rate p --> temperature of the group

    h = (q - p) / q        where p <= q         T = T_ref * tau ** h, in [T_ref / tau, T_ref * tau]
      = (q - p) / (1 - q)  where p > q

q is the target success rate: it ramps geometrically from `target_start` to `target_end` over the
run. A key is a task id, or a turn id for pivots; every group of it updates its tally, whether or
not the group is trained on, and old counts fade. What is drawn depends on (seed, step, key) and
the tally only, so the tallies are all that a checkpoint holds. tau 1 holds T_ref: the control.

Two things to know. A key without counts is not neutral where q < 1/2: the prior's draws lie
below q more often than above, and at q = 1/4 the mean temperature is 1.15 T_ref for tau 1.5 and
1.09 T_ref for tau 1.3. And heat helps only where it raises success: on tasks that fail from
noise, it makes them fail more.

Source: the Sharpening Tax paper, section on PTGS. Published with tau 1.5 for PPO; 1.2 to 1.4 is
theirs for GRPO, 1.3 ours. Seeding tallies from profiles (pivots seen once) is ours.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from pivotune.core.errors import RecipeError
from pivotune.core.protocols import Sampler
from pivotune.core.seeds import derive_seed
from pivotune.core.tally import DiscountedTally
from pivotune.core.types import Episode, JsonObject, Profile, Task
from pivotune.turns.pivots import profile_stats
from pivotune.turns.rollout import EpisodeLimits, MakeEnvironment, Play, run_episodes


class PtgsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How temperatures follow outcomes; T_ref is the temperature of the method."""

    tau: float = 1.3
    """Temperatures lie between T_ref / tau and T_ref * tau; 1 holds T_ref."""
    discount: float = 0.95
    """What a tally is multiplied by before a new group is added."""
    target_start: float = 0.25
    """Target success rate at the first step."""
    target_end: float = 0.5
    """Target success rate at the last step."""
    success_at: float = 0.5
    """A reward from which on a rollout counts as a success."""

    def __post_init__(self) -> None:
        targets = (self.target_start, self.target_end)
        if not (self.tau >= 1 and 0 < self.discount <= 1 and all(0 < q < 1 for q in targets)):
            raise ValueError(
                "ptgs: tau is at least 1, discount in (0, 1], targets between 0 and 1; got "
                f"tau {self.tau}, discount {self.discount}, targets {targets}"
            )


def target_rate(step: int, steps: int, config: PtgsConfig) -> float:
    """The geometric ramp; `steps` is the number of the run's, counted from 0."""
    share = min(1.0, step / max(1, steps - 1))
    ratio = config.target_end / config.target_start
    return float(config.target_start * ratio**share)


def posterior(tally: DiscountedTally, target: float) -> tuple[float, float]:
    """Alpha and beta of the Beta distribution of a key's success rate."""
    return 2 * target + tally.successes, 2 * (1 - target) + tally.failures


def tempered(rate: float, target: float, reference: float, tau: float) -> float:
    """The temperature for a drawn success rate."""
    heat = (target - rate) / (target if rate <= target else 1 - target)
    return float(np.clip(reference * tau**heat, reference / tau, reference * tau))


class PosteriorTemperatures:
    """The tallies of a run and the temperatures drawn from them."""

    def __init__(self, config: PtgsConfig, *, reference: float, steps: int, seed: int) -> None:
        if reference <= 0:
            raise RecipeError("ptgs needs a temperature above 0", got=reference)
        self._config = config
        self._reference = reference
        self._steps = steps
        self._seed = seed
        self.tallies: dict[str, DiscountedTally] = {}

    def draw(self, keys: Iterable[str], step: int) -> dict[str, float]:
        """One temperature a key: a Thompson draw from its posterior."""
        target = target_rate(step, self._steps, self._config)
        return {
            key: drawn_temperature(
                self.tallies.get(key, DiscountedTally()),
                target,
                self._reference,
                self._config.tau,
                derive_seed(self._seed, "ptgs", step, key),
            )
            for key in keys
        }

    def update(self, key: str, rewards: Sequence[float | None]) -> None:
        """Add a group's outcomes; invalid ones (None) leave it. To be called for every group."""
        valid = [reward for reward in rewards if reward is not None]
        successes = sum(reward >= self._config.success_at for reward in valid)
        tally = self.tallies.get(key, DiscountedTally())
        self.tallies[key] = tally.add(successes, len(valid), self._config.discount)

    def seed_from(self, profiles: Iterable[Profile]) -> None:
        """Start the tallies of profiled turns with what the profile has seen."""
        for profile in profiles:
            stats = profile_stats(profile, self._config.success_at)
            if stats is not None:
                self.tallies[profile.turn_id] = DiscountedTally(
                    stats.successes, stats.n - stats.successes
                )

    def state(self) -> JsonObject:
        return {key: [each.successes, each.failures] for key, each in self.tallies.items()}

    def load_state(self, state: JsonObject) -> None:
        self.tallies = {key: DiscountedTally(*counts) for key, counts in state.items()}


def drawn_temperature(
    tally: DiscountedTally, target: float, reference: float, tau: float, seed: int
) -> float:
    """A draw of the success rate from the posterior, as a temperature."""
    rate = float(np.random.default_rng(seed).beta(*posterior(tally, target)))
    return tempered(rate, target, reference, tau)


def play_with_pilot(
    sampler: Sampler,
    tasks: Sequence[Task],
    make_environment: MakeEnvironment,
    *,
    n: int,
    pilot: int,
    target: float,
    config: PtgsConfig,
    reference: float,
    seed: int,
    limits: EpisodeLimits,
) -> list[tuple[Episode, ...]]:
    """The variant at inference: `pilot` rollouts of each task at T_ref, the rest tempered.

    The first `pilot` episodes are those of plain sampling with the same seed. Not for scores:
    evaluations are played at their own temperature.
    """

    def play(plays: Sequence[Play]) -> list[Episode]:
        return run_episodes(
            sampler, plays, make_environment, temperature=reference, seed=seed, limits=limits
        )

    pilots = play([Play(task, repeat) for task in tasks for repeat in range(pilot)])
    first = [tuple(pilots[i * pilot : (i + 1) * pilot]) for i in range(len(tasks))]
    drawn = PosteriorTemperatures(
        msgspec.structs.replace(config, target_start=target, target_end=target),
        reference=reference,
        steps=1,
        seed=seed,
    )
    for task, episodes in zip(tasks, first, strict=True):
        drawn.update(task.id, [each.reward for each in episodes])
    temperatures = drawn.draw([task.id for task in tasks], 0)
    rest = n - pilot
    others = play(
        [Play(task, pilot + i, temperatures[task.id]) for task in tasks for i in range(rest)]
    )
    return [(*episodes, *others[i * rest : (i + 1) * rest]) for i, episodes in enumerate(first)]
