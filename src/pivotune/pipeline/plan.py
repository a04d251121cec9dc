"""Preflight: what a run will cost and whether it can learn anything, before it is spent.

Uses the stored profiles where there are some; else a small pilot, which is charged. An endpoint's
speed is that of profiling only; training and evaluation run here, so they are tried here. A few
episodes of the base say how long its games are and how fast they go.
"""

import time
from collections.abc import Sequence

import msgspec
import numpy as np

from pivotune.core.errors import PreflightError
from pivotune.core.estimate import Estimate
from pivotune.core.protocols import Sampler
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_records, write_json
from pivotune.core.tally import Tally
from pivotune.core.types import Cost, Profile, Task, Turn
from pivotune.domains.catalog import make_environment, suite_tasks
from pivotune.evaluate.metrics import expected_live_groups
from pivotune.evaluate.suites import Suite, score_suite
from pivotune.models.policy import Policy
from pivotune.models.sampler import TorchSampler
from pivotune.models.trees import Segment, TokenTree, context_signal, cross_entropy_signal
from pivotune.pipeline.foreseen import (
    EpisodeMeans,
    Measured,
    MethodPlan,
    evaluation_seconds,
    plan_method,
)
from pivotune.pipeline.policies import (
    chat_of,
    open_base,
    open_profiled,
    open_sampler,
    prompt_findings,
)
from pivotune.pipeline.profiling import no_candidates, quick, training_candidates
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.teachers import check_teachers
from pivotune.pipeline.training import loss_config
from pivotune.pipeline.verifiers import open_environments, open_verifier
from pivotune.train.speed import training_rate
from pivotune.turns.candidates import Candidates
from pivotune.turns.pivots import profile_stats
from pivotune.turns.profile import ProfileConfig, profile_turns
from pivotune.turns.rollout import EpisodeLimits, sample_groups

PILOT_TURNS = 32
"""Enough to see 100 % clipping or 0 live groups; a few hundred samples."""

LOCAL_TURNS = 4
"""Turns that are sampled here besides where an endpoint is profiled: only their speed counts."""

PILOT_EPISODES = 8
"""Episodes of the base, and whole trajectories of the expert, whose length is taken as typical."""

USUAL_GROUP = 8
"""Size of the groups for which a live share is assumed in the number of trained tokens."""

GUESSED = "token counts are guesses from the number of bytes: the endpoint renders the prompts"


class Plan(msgspec.Struct, frozen=True):
    """The preflight of a run. `train_rate` is 0 where nothing is to be trained.

    `clipped_share`: expert actions over the token limit. `live_groups`: chance that a group on a
    random candidate is mixed, averaged over per-turn posteriors. `rates` in tokens a second.
    `template`: what the model's chat template leaves to us. `episode_turns`: mean over
    `pilot_episodes` of the base.
    """

    candidates: int
    dropped: dict[str, int]
    clipped_share: float
    prompt_tokens_mean: float
    prompt_tokens_max: int
    action_tokens_mean: float
    pilot_turns: int
    accepted_mean: float
    live_groups: dict[str, Estimate]
    sample_rate: float
    train_rate: float
    profile_turns: int
    profile_minutes: float
    methods: dict[str, MethodPlan]
    evaluation_minutes: float
    cost: Cost
    template: tuple[str, ...] = ()
    pilot_episodes: int = 0
    episode_turns: float = 0.0

    @property
    def minutes(self) -> float:
        """The whole run, evaluation included."""
        trained = sum(each.minutes for each in self.methods.values())
        return self.profile_minutes + trained + self.evaluation_minutes

    def lines(self) -> list[str]:
        """For a terminal."""
        lines = [
            f"{self.candidates} candidate turns; prompts of {self.prompt_tokens_mean:.0f} tokens "
            f"on average, {self.prompt_tokens_max} at most",
            f"expert actions over the token limit: {self.clipped_share:.0%}",
            f"pilot: {self.pilot_turns} turns, {self.accepted_mean:.0%} of actions accepted",
        ]
        lines += list(self.template)
        lines += [f"left out: {reason}: {count}" for reason, count in self.dropped.items()]
        for name, live in self.live_groups.items():
            share = "undefined" if live.value is None else f"{live.value:.0%}"
            lines.append(f"{name}: expected share of live groups on random turns: {share}")
        lines.append(
            f"profiling: {self.profile_turns:,} rollout turns, {self.profile_minutes:.1f} minutes"
        )
        if self.pilot_episodes:
            lines.append(
                f"pilot: {self.pilot_episodes} episodes of the base, "
                f"{self.episode_turns:.1f} turns each"
            )
        lines += [f"{name}: {each.line()}" for name, each in self.methods.items()]
        lines.append(
            f"evaluation: {self.evaluation_minutes:.1f} minutes; all: {self.minutes:.1f} minutes "
            "(rough: at the pilot's speed, on this machine as busy as it was)"
        )
        return lines


class _Pilot(msgspec.Struct, frozen=True):
    """What the pilot measured; `local_seconds` for one sample here, not at an endpoint."""

    profiles: list[Profile]
    seconds_per_sample: float
    local_seconds: float
    sample_rate: float
    train_rate: float
    episodes: int
    episode: EpisodeMeans
    cost: Cost


def plan(run: Run) -> None:
    """Write `plan.json` and say it; raises `PreflightError` where the run would be wasted."""
    recipe = run.recipe
    if not run.folder.begin("plan", (run.folder.settings("import"), recipe), cheap=True):
        return
    check_teachers(recipe)
    for method in recipe.methods.values():
        loss_config(method)
    sampler = open_profiled(run)
    candidates = training_candidates(run, sampler)
    if not candidates.turns:
        raise no_candidates(run, candidates)
    size = quick(PILOT_TURNS, recipe.profile)
    drawn = _draw(candidates.turns, size, derive_seed(recipe.seed, "pilot"))
    lengths = [_expert_lengths(sampler, turn) for turn in drawn]
    if chat_of(sampler) is not None:
        _refuse_clipped(recipe.profile, lengths)
    pilot = _run_pilot(run, sampler, drawn)
    whole = [sum(_expert_lengths(sampler, turn)) for turn in _last_turns(candidates.turns)]
    found = _make_plan(run, sampler, candidates, lengths, pilot, float(np.mean(whole)))
    write_json(run.folder.path / "plan.json", found)
    for line in found.lines():
        run.watch.say(line)
    run.folder.finish("plan", found.cost)


def _draw(turns: Sequence[Turn], size: int, seed: int) -> list[Turn]:
    order = np.random.default_rng(seed).permutation(len(turns))[:size]
    return [turns[i] for i in sorted(order)]


def _last_turns(turns: Sequence[Turn]) -> list[Turn]:
    """The last turn of some trajectories: with its action, their whole length."""
    last = {turn.trajectory_id: turn for turn in sorted(turns, key=lambda turn: turn.index)}
    return list(last.values())[:PILOT_EPISODES]


def _expert_lengths(sampler: Sampler, turn: Turn) -> tuple[int, int]:
    """Tokens of the prompt and of the expert's action; guesses where the endpoint renders."""
    chat = chat_of(sampler)
    if chat is None:
        return sampler.count(turn.state, turn.tools), sampler.count([turn.expert], ())
    prompt, action = chat.render_action(turn.state, turn.tools, turn.expert)
    return len(prompt), len(action)


def _refuse_clipped(config: ProfileConfig, lengths: Sequence[tuple[int, int]]) -> None:
    actions = [action for _, action in lengths]
    if min(actions) > config.max_tokens:
        raise PreflightError(
            "100 % clipped: no expert action fits the token limit",
            got=f"profile.max_tokens = {config.max_tokens}",
            expected=f"at least {max(actions)}, the longest expert action of the pilot",
            fix=f"profile.max_tokens={max(actions)}",
        )


def _make_plan(
    run: Run,
    sampler: Sampler,
    candidates: Candidates,
    lengths: Sequence[tuple[int, int]],
    pilot: _Pilot,
    trajectory_tokens: float,
) -> Plan:
    recipe, turns = run.recipe, candidates.turns
    prompts, actions = zip(*lengths, strict=True)
    stats = [each for each in map(profile_stats, pilot.profiles) if each is not None]
    accepted = float(np.mean([each.mean for each in stats])) if stats else 0.0
    samples = len(turns) * recipe.profile.samples
    measured = Measured(
        prompt_tokens=float(np.mean(prompts)),
        action_tokens=float(np.mean(actions)),
        trajectory_tokens=trajectory_tokens,
        accepted=accepted,
        live_share=_live_groups(pilot.profiles, USUAL_GROUP).value or 1.0,
        sample_seconds=pilot.local_seconds,
        train_rate=pilot.train_rate,
        episode=pilot.episode,
    )
    return Plan(
        candidates=len(turns),
        dropped=candidates.dropped,
        clipped_share=float(np.mean([n > recipe.profile.max_tokens for n in actions])),
        prompt_tokens_mean=measured.prompt_tokens,
        prompt_tokens_max=max(prompts),
        action_tokens_mean=measured.action_tokens,
        pilot_turns=len(lengths),
        accepted_mean=accepted,
        live_groups={
            name: _live_groups(pilot.profiles, int(method.settings.get("group", USUAL_GROUP)))
            for name, method in recipe.methods.items()
            if method.objective == "local_grpo"
        },
        sample_rate=pilot.sample_rate,
        train_rate=pilot.train_rate,
        profile_turns=samples,
        profile_minutes=samples * pilot.seconds_per_sample / 60,
        methods={
            name: plan_method(method, recipe, measured) for name, method in recipe.methods.items()
        },
        evaluation_minutes=evaluation_seconds(recipe, measured) / 60,
        cost=pilot.cost,
        template=prompt_findings(sampler) + ((GUESSED,) if chat_of(sampler) is None else ()),
        pilot_episodes=pilot.episodes,
        episode_turns=pilot.episode.turns,
    )


def _run_pilot(run: Run, sampler: Sampler, drawn: Sequence[Turn]) -> _Pilot:
    recipe = run.recipe
    stored = run.folder.profiles(recipe.verifier)
    if stored.exists() and (known := list(read_records(stored, Profile))):
        profiles, cost = known, Cost()
    else:
        profiles = profile_turns(
            sampler,
            drawn,
            (verifier := open_verifier(recipe, recipe.verifier)),
            open_environments(verifier),
            recipe.profile,
            seed=derive_seed(recipe.seed, "pilot"),
            path=run.folder.pilot,
        )
        cost = sum((each.cost for each in profiles), Cost())
    used = sum((each.cost for each in profiles), Cost())
    local = _local_sampler(run, sampler)
    here = used
    if local is not None and local is not sampler:
        here = _try_locally(run, local, drawn[:LOCAL_TURNS])
        cost += here
    tasks = _pilot_tasks(recipe) if local is not None else ()
    episode, played = _try_episodes(run, local, tasks, drawn) if local else (EpisodeMeans(), Cost())
    return _Pilot(
        profiles=profiles,
        seconds_per_sample=used.seconds / max(1, used.rollout_turns),
        local_seconds=here.seconds / max(1, here.rollout_turns),
        sample_rate=used.sampled_tokens / max(1e-9, used.seconds),
        train_rate=_train_rate(local, drawn[:8]) if recipe.methods else 0.0,
        episodes=len(tasks),
        episode=episode,
        cost=cost + played,
    )


def _local_sampler(run: Run, sampler: Sampler) -> TorchSampler | None:
    """What training and evaluation sample with; None where an endpoint does all that there is."""
    if isinstance(sampler, TorchSampler):
        return sampler
    recipe = run.recipe
    if recipe.methods or recipe.evaluate.items or _plays(recipe):
        return open_sampler(open_base(run))
    return None


def _try_locally(run: Run, sampler: TorchSampler, turns: Sequence[Turn]) -> Cost:
    """What one group at each turn takes here."""
    recipe = run.recipe
    verifier = open_verifier(recipe, recipe.verifier)
    start = time.perf_counter()
    groups = sample_groups(
        sampler,
        turns,
        verifier,
        open_environments(verifier),
        n=recipe.profile.samples,
        temperature=recipe.profile.temperature,
        seed=derive_seed(recipe.seed, "local pilot"),
        max_tokens=recipe.profile.max_tokens,
    )
    seconds = Cost(seconds=time.perf_counter() - start)
    return sum((group.cost for group in groups), seconds)


def _plays(recipe: Recipe) -> bool:
    """Whether anything in the run plays whole episodes."""
    played = recipe.evaluate.episodes or recipe.tax.rollouts or recipe.recovery.states
    return bool(recipe.methods or played)


def _pilot_tasks(recipe: Recipe) -> tuple[Task, ...]:
    """A few tasks of what is played most: validation, or the final suite without methods."""
    settings = recipe.evaluate
    if not _plays(recipe):
        return ()
    name, most = (
        (settings.validation, settings.validation_games)
        if recipe.methods
        else (settings.in_domain, settings.episodes)
    )
    count = min(PILOT_EPISODES, most) or PILOT_EPISODES
    return suite_tasks(name, count, derive_seed(recipe.seed, "pilot episodes"))


def _try_episodes(
    run: Run, sampler: TorchSampler, tasks: Sequence[Task], drawn: Sequence[Turn]
) -> tuple[EpisodeMeans, Cost]:
    """How long the base's episodes are, in turns, tokens and seconds."""
    settings = run.recipe.evaluate
    suite = Suite(
        name="pilot",
        kind="in_domain",
        tasks=tuple(tasks),
        temperature=settings.temperature,
        limits=EpisodeLimits(settings.max_turns, run.recipe.profile.max_tokens),
    )
    _, cost = score_suite(sampler, suite, make_environment, seed=run.recipe.seed)
    turns = max(1, cost.rollout_turns)
    # Prompts grow evenly from the shortest one to the last: twice their mean less the shortest.
    opening = min(sampler.count(turn.state, turn.tools) for turn in drawn)
    last = max(opening, 2 * cost.prompt_tokens / turns - opening)
    return EpisodeMeans(
        turns=cost.rollout_turns / max(1, len(tasks)),
        tokens=last + cost.sampled_tokens / turns,
        turn_seconds=cost.seconds / turns,
    ), cost


def _train_rate(sampler: TorchSampler | None, turns: Sequence[Turn]) -> float:
    assert sampler is not None, "methods are trained here"
    return training_rate(sampler.policy, _expert_trees(sampler.policy, turns))


def _expert_trees(policy: Policy, turns: Sequence[Turn]) -> list[TokenTree]:
    trees = []
    for turn in turns:
        prompt, action = policy.chat.render_action(turn.state, turn.tools, turn.expert)
        trunk = Segment(np.array(prompt, np.int64), context_signal(len(prompt)))
        signal = cross_entropy_signal(np.ones(len(action), np.float32))
        branch = Segment(np.array(action, np.int64), signal, parent=0, attach=len(prompt))
        trees.append(TokenTree(turn.id, (trunk, branch)))
    return trees


def _live_groups(profiles: Sequence[Profile], group: int) -> Estimate:
    stats = {each.turn_id: profile_stats(each) for each in profiles}
    tallies = {
        turn_id: Tally(each.successes, each.n - each.successes)
        for turn_id, each in stats.items()
        if each is not None
    }
    return expected_live_groups(tallies, group).share
