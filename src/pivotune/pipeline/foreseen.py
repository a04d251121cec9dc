"""What methods and evaluation will use, from the recipe and from what the pilot measured.

Groups are counted as they will be drawn: steps x batch x group. How long an episode is, and how
many tokens it holds, comes from a few episodes of the base; limits say what there can be at most.
"""

from collections.abc import Iterable

import msgspec

from pivotune.pipeline.recipe import Method, Recipe
from pivotune.pipeline.training import objective_config
from pivotune.train.episodes import EpisodeConfig
from pivotune.train.objectives import load_objective
from pivotune.train.objectives.local_grpo import LocalGrpoConfig
from pivotune.train.objectives.mixed import MixedConfig
from pivotune.train.objectives.pivot_opd import PivotOpdConfig
from pivotune.train.objectives.rejection_sft import RejectionSftConfig
from pivotune.train.objectives.sft import SftConfig
from pivotune.train.taught import TaughtConfig

READING_SPEED = 3.0
"""Tokens that are only read for each one that is trained: there is no backward pass (a guess)."""


class EpisodeMeans(msgspec.Struct, frozen=True):
    """The base's episodes: turns, tokens of the whole, and the seconds that one turn took."""

    turns: float = 0.0
    tokens: float = 0.0
    turn_seconds: float = 0.0


class Measured(msgspec.Struct, frozen=True):
    """The pilot's means, on this machine as busy as it is.

    `prompt_tokens` and `action_tokens` of a turn of the traces, `trajectory_tokens` of a whole
    one; `accepted`: share of the samples; `live_share` of groups on random turns;
    `sample_seconds` of one action in a group; `train_rate` in tokens a second.
    """

    prompt_tokens: float
    action_tokens: float
    trajectory_tokens: float
    accepted: float
    live_share: float
    sample_seconds: float
    train_rate: float
    episode: EpisodeMeans = EpisodeMeans()


class Use(msgspec.Struct, frozen=True):
    """What a method's steps use: expected, and at most where a limit is known (else equal)."""

    turns: float = 0.0
    turns_limit: float = 0.0
    trained: float = 0.0
    trained_limit: float = 0.0
    questions: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Use") -> "Use":
        return Use(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))


def _values(use: Use) -> tuple[float, ...]:
    return msgspec.structs.astuple(use)


class MethodPlan(msgspec.Struct, frozen=True):
    """What one method will use; minutes from the rates measured by the pilot.

    `…_limit`: at most; equal to the expected number where that is not an estimate.
    `questions` are asked of a model that teaches. `known` is False for an objective of the
    user's own: nothing but its validation is counted.
    """

    rollout_turns: int
    trained_tokens: int
    minutes: float
    rollout_limit: int = 0
    trained_limit: int = 0
    questions: int = 0
    validation_turns: int = 0
    known: bool = True

    def line(self) -> str:
        """For a terminal."""
        if not self.known:
            return (
                "an objective of your own, whose cost is not known here; validation: about "
                f"{self.validation_turns:,} rollout turns, {self.minutes:.1f} minutes"
            )
        parts = [
            _amount(self.rollout_turns, self.rollout_limit, "rollout turns"),
            _amount(self.trained_tokens, self.trained_limit, "trained tokens"),
        ]
        if self.questions:
            parts.append(f"at most {self.questions:,} questions to its teacher")
        parts.append(f"validation: about {self.validation_turns:,} rollout turns")
        return f"{', '.join(parts)}; about {self.minutes:.1f} minutes"


def _amount(expected: int, limit: int, unit: str) -> str:
    if not limit:
        return f"no {unit}"
    if expected == limit:
        return f"{expected:,} {unit}"
    return f"about {expected:,} {unit} (at most {limit:,})"


def plan_method(method: Method, recipe: Recipe, measured: Measured) -> MethodPlan:
    """One method of the recipe, its validation included."""
    use = _use(objective_config(method), method.steps, recipe.profile.samples, measured)
    known = use is not None
    use = use or Use()
    turns = validation_turns(method.steps, recipe, measured)
    seconds = use.seconds + turns * measured.episode.turn_seconds
    return MethodPlan(
        rollout_turns=round(use.turns),
        trained_tokens=round(use.trained),
        minutes=seconds / 60,
        rollout_limit=round(use.turns_limit),
        trained_limit=round(use.trained_limit),
        questions=round(use.questions),
        validation_turns=round(turns),
        known=known,
    )


def validation_turns(steps: int, recipe: Recipe, measured: Measured) -> float:
    """Before the first step, every so many steps, and after the last one."""
    every = recipe.evaluate.every
    times = 2 + ((steps - 1) // every if every else 0)
    return times * recipe.evaluate.validation_games * measured.episode.turns


def _use(config: msgspec.Struct, steps: int, samples: int, measured: Measured) -> Use | None:
    """By what the objective's settings are; None for what is none of ours."""
    match config:
        case MixedConfig():
            return _mixed(config, steps, samples, measured)
        case LocalGrpoConfig():
            return _local(config, steps, measured)
        case EpisodeConfig():
            return _episodes(config, steps, measured)
        case SftConfig():
            longest = min(measured.trajectory_tokens, config.max_tokens)
            return _trained(steps * config.batch * longest, measured)
        case RejectionSftConfig():
            return _rejection(config, steps, samples, measured)
    return None


def _mixed(config: MixedConfig, steps: int, samples: int, measured: Measured) -> Use | None:
    parts = []
    for source in config.sources.values():
        kind = load_objective(source.objective).Config
        settings = msgspec.convert(source.settings, kind)
        parts.append(_use(settings, steps, samples, measured))
    known = [each for each in parts if each is not None]
    return _sum(known) if len(known) == len(parts) else None


def _sum(parts: Iterable[Use]) -> Use:
    return sum(parts, Use())


def _trained(tokens: float, measured: Measured, limit: float = 0.0) -> Use:
    return Use(
        trained=tokens,
        trained_limit=limit or tokens,
        seconds=tokens / measured.train_rate,
    )


def _rejection(config: RejectionSftConfig, steps: int, samples: int, measured: Measured) -> Use:
    """The accepted ones of a turn's samples; at most all of them."""
    turns = steps * config.batch
    prompt, actions = measured.prompt_tokens, samples * measured.action_tokens
    return _trained(
        turns * (prompt + measured.accepted * actions), measured, turns * (prompt + actions)
    )


def _local(config: LocalGrpoConfig, steps: int, measured: Measured) -> Use:
    """Groups of actions; those whose rewards are all equal are not trained."""
    groups = steps * (config.batch + config.guard)
    most = groups + steps * config.batch * config.refill
    turns, limit = groups * config.group, most * config.group
    if config.refresh is not None:
        limit += config.refresh.most * config.refresh.turns * config.refresh.samples
    tokens = measured.prompt_tokens + config.group * measured.action_tokens
    sampled = Use(turns=turns, turns_limit=limit, seconds=turns * measured.sample_seconds)
    return sampled + _trained(measured.live_share * groups * tokens, measured, most * tokens)


def _episodes(config: EpisodeConfig, steps: int, measured: Measured) -> Use:
    """Groups of episodes, and what a teacher adds to them."""
    episodes = steps * config.batch * config.group
    most = episodes * (1 + config.refill)
    mean = measured.episode
    length = min(mean.turns, config.max_turns)
    turns, limit = episodes * length, most * config.max_turns
    tokens, longest = (_trunk(mean, each) for each in (length, config.max_turns))
    played = Use(turns=turns, turns_limit=limit, seconds=turns * mean.turn_seconds)
    found = played + _trained(episodes * tokens, measured, most * longest)
    if isinstance(config, PivotOpdConfig):
        return found + _pivotal(config, steps, episodes, length, measured)
    if isinstance(config, TaughtConfig):
        asked = limit if config.source == "hint" and config.teacher.is_model else 0
        return found + _read(turns, measured) + _asked(asked, turns if asked else 0, measured)
    return found


def _trunk(mean: EpisodeMeans, turns: float) -> float:
    """Tokens of an episode of so many turns; its opening is counted as if it grew too."""
    return mean.tokens * turns / max(1.0, mean.turns)


def _read(turns: float, measured: Measured) -> Use:
    """Actions read by a teacher, each behind its own context of half an episode on average."""
    tokens = turns * measured.episode.tokens / 2
    return Use(seconds=tokens / (READING_SPEED * measured.train_rate))


def _asked(limit: float, expected: float, measured: Measured) -> Use:
    """Questions to a model; an answer takes as long as a turn."""
    return Use(questions=limit, seconds=expected * measured.episode.turn_seconds)


def _pivotal(
    config: PivotOpdConfig, steps: int, episodes: int, length: float, measured: Measured
) -> Use:
    """Detection, comparison and recoveries; the oracle's answers cost next to nothing."""
    marked = episodes * (1 if config.variant == "external" else config.marks)
    read = _read(min(marked, episodes * length) if config.w_prev else 0, measured)
    if config.variant == "external":
        return read
    recovers = config.w_rec > 0 and config.recovery_turns > 0
    recoveries = steps * config.recovery_limit if recovers else 0
    recoveries = min(recoveries, marked * config.recovery_turns)
    action = measured.episode.tokens / 2 + measured.action_tokens
    recovered = Use(
        turns=recoveries,
        turns_limit=recoveries,
        seconds=recoveries * measured.episode.turn_seconds,
    ) + _trained(recoveries * action, measured)
    asks = config.teacher.is_model and (recovers or config.w_prev or config.w_traj)
    questions = episodes + recoveries if asks else 0
    return read + recovered + _asked(questions, questions, measured)


def evaluation_seconds(recipe: Recipe, measured: Measured) -> float:
    """All final evaluations, the tax's tries and the replays after mistakes."""
    settings, tax, recovery = recipe.evaluate, recipe.tax, recipe.recovery
    policies = 1 + len(recipe.methods)
    taxed = 1 + len(recipe.taxed_methods)
    episodes = policies * settings.episodes + taxed * tax.tasks * tax.rollouts
    episodes += checkpoint_episodes(recipe)
    replays = policies + (3 if recovery.diagnosis else 0)
    episodes += recovery.states * recovery.replays * replays
    turns = episodes * measured.episode.turns
    return (
        turns * measured.episode.turn_seconds + policies * settings.items * measured.sample_seconds
    )


def checkpoint_episodes(recipe: Recipe) -> int:
    """Episodes of validated policies; K times as many tasks for one of them a method (a guess)."""
    tax, every = recipe.tax, recipe.evaluate.every
    if not (tax.rollouts and tax.checkpoints):
        return 0
    methods = [recipe.methods[name] for name in recipe.taxed_methods]
    kept = sum(method.steps // every if every else 1 for method in methods)
    matched = len(methods) * (tax.k or tax.rollouts // 2)
    return tax.tasks * (kept * tax.checkpoints + matched)
