"""Preflight: what a run will cost and whether it can learn anything, before it is spent.

Uses the stored profiles where there are some; else a small pilot, which is charged. An endpoint's
speed is that of profiling only; training and evaluation run here, so they are tried here.
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
from pivotune.core.types import Cost, Profile, Turn
from pivotune.evaluate.metrics import expected_live_groups
from pivotune.models.policy import Policy
from pivotune.models.sampler import TorchSampler
from pivotune.models.trees import Segment, TokenTree, context_signal, cross_entropy_signal
from pivotune.pipeline.policies import (
    chat_of,
    open_base,
    open_profiled,
    open_sampler,
    prompt_findings,
)
from pivotune.pipeline.profiling import no_candidates, quick, training_candidates
from pivotune.pipeline.recipe import Method, Recipe
from pivotune.pipeline.run import Run
from pivotune.pipeline.verifiers import open_environments, open_verifier
from pivotune.train.speed import training_rate
from pivotune.turns.pivots import profile_stats
from pivotune.turns.profile import ProfileConfig, profile_turns
from pivotune.turns.rollout import sample_groups

PILOT_TURNS = 32
"""Enough to see 100 % clipping or 0 live groups; a few hundred samples."""

LOCAL_TURNS = 4
"""Turns that are sampled here besides where an endpoint is profiled: only their speed counts."""

GUESSED = "token counts are guesses from the number of bytes: the endpoint renders the prompts"


class MethodPlan(msgspec.Struct, frozen=True):
    """What one method will use; minutes from the rates measured by the pilot."""

    rollout_turns: int
    trained_tokens: int
    minutes: float


class Plan(msgspec.Struct, frozen=True):
    """The preflight of a run. `train_rate` is 0 where nothing is to be trained.

    `clipped_share`: expert actions over the token limit. `live_groups`: chance that a group on a
    random candidate is mixed, averaged over per-turn posteriors. `rates` in tokens a second.
    `template`: what the model's chat template leaves to us.
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
        lines += [
            f"{name}: {each.rollout_turns:,} rollout turns, {each.trained_tokens:,} trained "
            f"tokens, {each.minutes:.1f} minutes"
            for name, each in self.methods.items()
        ]
        lines.append(
            f"evaluation: {self.evaluation_minutes:.1f} minutes; all: {self.minutes:.1f} minutes "
            "(rough: from the pilot's speed)"
        )
        return lines


class _Pilot(msgspec.Struct, frozen=True):
    """What the pilot measured; `local_seconds` for one sample here, not at an endpoint."""

    profiles: list[Profile]
    seconds_per_sample: float
    local_seconds: float
    sample_rate: float
    train_rate: float
    cost: Cost


def plan(run: Run) -> None:
    """Write `plan.json` and say it; raises `PreflightError` where the run would be wasted."""
    recipe = run.recipe
    if not run.folder.begin("plan", (run.folder.settings("import"), recipe), cheap=True):
        return
    sampler = open_profiled(run)
    candidates = training_candidates(run, sampler)
    if not candidates.turns:
        raise no_candidates(run, candidates)
    size = quick(PILOT_TURNS, recipe.profile)
    drawn = _draw(candidates.turns, size, derive_seed(recipe.seed, "pilot"))
    lengths = [_expert_lengths(sampler, turn) for turn in drawn]
    if chat_of(sampler) is not None:
        _refuse_clipped(recipe.profile, lengths)
    found = _make_plan(run, sampler, candidates.turns, candidates.dropped, lengths, drawn)
    write_json(run.folder.path / "plan.json", found)
    for line in found.lines():
        run.watch.say(line)
    run.folder.finish("plan", found.cost)


def _draw(turns: Sequence[Turn], size: int, seed: int) -> list[Turn]:
    order = np.random.default_rng(seed).permutation(len(turns))[:size]
    return [turns[i] for i in sorted(order)]


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
    turns: Sequence[Turn],
    dropped: dict[str, int],
    lengths: Sequence[tuple[int, int]],
    drawn: Sequence[Turn],
) -> Plan:
    recipe = run.recipe
    pilot = _run_pilot(run, sampler, drawn)
    prompts, actions = zip(*lengths, strict=True)
    stats = [each for each in map(profile_stats, pilot.profiles) if each is not None]
    samples = len(turns) * recipe.profile.samples
    return Plan(
        candidates=len(turns),
        dropped=dropped,
        clipped_share=float(np.mean([n > recipe.profile.max_tokens for n in actions])),
        prompt_tokens_mean=float(np.mean(prompts)),
        prompt_tokens_max=max(prompts),
        action_tokens_mean=float(np.mean(actions)),
        pilot_turns=len(drawn),
        accepted_mean=float(np.mean([each.mean for each in stats])) if stats else 0.0,
        live_groups={
            name: _live_groups(pilot.profiles, int(method.settings.get("group", 8)))
            for name, method in recipe.methods.items()
            if method.objective == "local_grpo"
        },
        sample_rate=pilot.sample_rate,
        train_rate=pilot.train_rate,
        profile_turns=samples,
        profile_minutes=samples * pilot.seconds_per_sample / 60,
        methods={
            name: _method_plan(method, pilot, float(np.mean(prompts)), float(np.mean(actions)))
            for name, method in recipe.methods.items()
        },
        evaluation_minutes=_evaluation_samples(recipe, drawn) * pilot.local_seconds / 60,
        cost=pilot.cost,
        template=prompt_findings(sampler) + ((GUESSED,) if chat_of(sampler) is None else ()),
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
    local = _local_sampler(run, sampler, drawn)
    here = used
    if local is not None and local is not sampler:
        here = _try_locally(run, local, drawn[:LOCAL_TURNS])
        cost += here
    return _Pilot(
        profiles=profiles,
        seconds_per_sample=used.seconds / max(1, used.rollout_turns),
        local_seconds=here.seconds / max(1, here.rollout_turns),
        sample_rate=used.sampled_tokens / max(1e-9, used.seconds),
        train_rate=_train_rate(local, drawn[:8]) if recipe.methods else 0.0,
        cost=cost,
    )


def _local_sampler(run: Run, sampler: Sampler, drawn: Sequence[Turn]) -> TorchSampler | None:
    """What training and evaluation sample with; None where an endpoint does all that there is."""
    if isinstance(sampler, TorchSampler):
        return sampler
    if run.recipe.methods or _evaluation_samples(run.recipe, drawn):
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


def _method_plan(method: Method, pilot: _Pilot, prompt: float, action: float) -> MethodPlan:
    if method.objective == "local_grpo":
        group = int(method.settings.get("group", 8))
        rollouts = method.steps * method.batch * group
        trained = method.steps * method.batch * (prompt + group * action)
    else:
        # A whole trajectory is one trunk about twice as long as its average prefix.
        rollouts, trained = 0, method.steps * method.batch * 2 * (prompt + action)
    seconds = rollouts * pilot.local_seconds + trained / pilot.train_rate
    return MethodPlan(rollouts, round(trained), seconds / 60)


def _evaluation_samples(recipe: Recipe, drawn: Sequence[Turn]) -> float:
    """Actions of all final evaluations; an episode is guessed at twice an expert's length."""
    settings = recipe.evaluate
    turns = min(settings.max_turns, 4 * float(np.mean([turn.index + 1 for turn in drawn])))
    policies = 1 + len(recipe.methods)
    episodes = settings.episodes + recipe.tax.tasks * recipe.tax.rollouts
    return policies * (episodes * turns + settings.items) + checkpoint_episodes(recipe) * turns


def checkpoint_episodes(recipe: Recipe) -> int:
    """Episodes of validated policies; K times as many tasks for one of them a method (a guess)."""
    tax, every = recipe.tax, recipe.evaluate.every
    if not (tax.rollouts and tax.checkpoints):
        return 0
    kept = sum(method.steps // every if every else 1 for method in recipe.methods.values())
    matched = len(recipe.methods) * (tax.k or tax.rollouts // 2)
    return tax.tasks * (kept * tax.checkpoints + matched)
