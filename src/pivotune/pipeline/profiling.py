"""Candidates, profiles and pivots of a run."""

import time
from collections.abc import Sequence

import msgspec
import numpy as np

from pivotune.core.errors import DataError, NoPivots, TemplateError
from pivotune.core.protocols import Sampler
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_json, read_records, write_json, write_records
from pivotune.core.types import Cost, Message, Profile, Turn
from pivotune.ingest import split_turns
from pivotune.pipeline.policies import (
    base_settings,
    open_profiled,
    prompt_findings,
)
from pivotune.pipeline.run import Run
from pivotune.pipeline.traces import part_of
from pivotune.pipeline.verifiers import open_environments, open_verifier
from pivotune.turns.candidates import Candidates, choose_candidates, draw_candidates
from pivotune.turns.pivots import Selection, profile_stats, select_pivots
from pivotune.turns.profile import ProfileConfig, profile_turns, repeatability, rescore
from pivotune.turns.rollout import Group, sample_groups

REESTIMATED = 64
"""Turns that are sampled afresh to correct the selected means: enough for +-0.06, cheap."""


LEFT_OUT = {"failed": "the trajectory failed", "warm start": "trajectory of the warm start"}


class FreshEstimate(msgspec.Struct, frozen=True):
    """Fresh samples of some turns: their mean reward and the share of groups that are live.

    All 0 where no turn was sampled.
    """

    turns: int
    mean: float
    live_share: float


NOT_SAMPLED = FreshEstimate(0, 0.0, 0.0)


def quick(turns: int, config: ProfileConfig) -> int:
    """Turns for a side question: at most a quarter of a quick look (`profile.turns`)."""
    return min(turns, -(-config.turns // 4)) if config.turns else turns


class SelectReport(msgspec.Struct, frozen=True):
    """What a selection left, and what its pivots look like under fresh samples.

    `profiled_mean` is the selected turns' mean in the profile that chose them (biased),
    `pivots` and `random` are fresh estimates on pivots and on randomly drawn candidates; all are
    0 where there are no pivots, and `why_none` says what to do.
    """

    verifier: str
    rule: str
    selection: Selection
    wrong_expert: int
    profiled_mean: float
    profiled_live_share: float
    pivots: FreshEstimate
    random: FreshEstimate
    cost: Cost
    why_none: tuple[str, ...] = ()


def training_candidates(run: Run, sampler: Sampler) -> Candidates:
    """Turns of the trajectories that are trained on, with counted losses."""
    recipe = run.recipe
    dropped: dict[str, int] = {}
    turns: list[Turn] = []
    rows: dict[str, str] = {}
    for trajectory in run.trajectories():
        part = part_of(trajectory, recipe)
        if part == "training":
            source = trajectory.source
            rows[trajectory.id] = f"{source.path}:{source.row}" if source is not None else ""
            turns += split_turns(trajectory)
        elif part != "validation":
            reason = LEFT_OUT[part]
            dropped[reason] = dropped.get(reason, 0) + 1

    refused: list[TemplateError] = []

    def count(messages: Sequence[Message], turn: Turn) -> int | None:
        try:
            return sampler.count(messages, turn.tools)
        except TemplateError as error:
            place = f"{rows[turn.trajectory_id]}, turn {turn.index}, {error.where}".lstrip(", ")
            refused.append(TemplateError(error.what, where=place, got=error.got, fix=error.fix))
            return None

    limit = sampler.context_limit - recipe.profile.max_tokens
    found = choose_candidates(turns, count_tokens=count, max_prompt_tokens=limit)
    if refused:
        if not found.turns:
            raise refused[0]
        run.watch.say(f"the first turn that the chat template refuses: {refused[0]}")
    found = Candidates(found.turns, dropped | found.dropped)
    seed = derive_seed(recipe.seed, "profiled turns")
    return draw_candidates(found, recipe.profile.turns, seed)


def no_candidates(run: Run, found: Candidates) -> DataError:
    """Nothing to profile, and why."""
    return DataError(
        "no turn is left to profile",
        where=str(run.folder.path),
        got=", ".join(f"{reason}: {n}" for reason, n in found.dropped.items()) or None,
        fix="bring other traces, or keep failed ones with candidates.keep_failed=true",
    )


def profile_candidates(run: Run) -> None:
    """Profile under the recipe's verifier."""
    recipe = run.recipe
    settings = (run.folder.settings("import"), base_settings(run), recipe.profile)
    more = (recipe.candidates, recipe.verifier, recipe.verifiers, recipe.seed)
    if not run.folder.begin("profile", (*settings, *more)):
        return
    sampler = open_profiled(run)
    findings = prompt_findings(sampler)
    for line in findings:
        run.watch.say(line)
    candidates = training_candidates(run, sampler)
    for reason, count in candidates.dropped.items():
        run.watch.say(f"left out before profiling: {reason}: {count}")
    if not candidates.turns:
        raise no_candidates(run, candidates)
    verifier = open_verifier(recipe, recipe.verifier)
    total = len(candidates.turns)
    with run.watch.progress("profiling", total, "turns") as advance:
        profiles = profile_turns(
            sampler,
            candidates.turns,
            verifier,
            open_environments(verifier),
            recipe.profile,
            seed=derive_seed(recipe.seed, "profile"),
            path=run.folder.profiles(recipe.verifier),
            on_progress=advance,
        )
    write_json(run.folder.path / "profiles" / "dropped.json", candidates.dropped)
    write_json(run.folder.path / "profiles" / "prompts.json", findings)
    agreed, repeated = repeatability(profiles)
    if agreed < repeated:
        run.watch.say(
            f"the verifier wavers: asked again at turns with different rewards, {agreed} of "
            f"{repeated} verdicts were the same; samples on which it wavered are left out"
        )
    run.folder.finish("profile", sum((profile.cost for profile in profiles), Cost()))


def usable_profiles(run: Run, verifier: str) -> tuple[list[Profile], int]:
    """Profiles whose expert satisfies the verifier (all with `keep_wrong_expert`), and losses."""
    profiles = list(read_records(run.folder.profiles(verifier), Profile))
    if run.recipe.candidates.keep_wrong_expert:
        return profiles, 0
    at = run.recipe.candidates.success_at
    kept = [
        each for each in profiles if each.expert.reward is not None and each.expert.reward >= at
    ]
    return kept, len(profiles) - len(kept)


def wanted_selections(run: Run) -> list[tuple[str, str]]:
    """(verifier, rule) of every method that trains on pivots, and the recipe's own first."""
    recipe = run.recipe
    pairs = [(recipe.verifier, recipe.select.rule)]
    pairs += [(recipe.verifier_of(each), recipe.rule_of(each)) for each in recipe.methods.values()]
    return list(dict.fromkeys(pairs))


def select(run: Run) -> None:
    """Choose the pivots under every rule in use; raises `NoPivots` where one leaves none.

    The methods' other verifiers judge the profiled samples again before that.
    What was found is written in any case, so that a report can be made of it.
    """
    recipe = run.recipe
    settings = (run.folder.settings("profile"), recipe.select, wanted_selections(run))
    if run.folder.begin("select", settings):
        _select_all(run)
    for verifier, rule in wanted_selections(run):
        if why := read_selection(run, verifier, rule).why_none:
            raise NoPivots(why[0], got=why[1], fix=why[2])


def _select_all(run: Run) -> None:
    sampler = open_profiled(run)
    cost = _judge_again(run)
    for verifier, rule in wanted_selections(run):
        report = _select_one(run, sampler, verifier, rule)
        write_json(run.folder.pivots(verifier, rule), report)
        cost += report.cost
        run.watch.say(_found(report))
    run.folder.finish("select", cost)


def _judge_again(run: Run) -> Cost:
    """The samples under the methods' other verifiers, written beside the recipe's own."""
    recipe = run.recipe
    others = {verifier for verifier, _ in wanted_selections(run)} - {recipe.verifier}
    if not others:
        return Cost()
    profiles = list(read_records(run.folder.profiles(recipe.verifier), Profile))
    turns = {turn.id: turn for turn in run.turns([each.turn_id for each in profiles])}
    cost = Cost()
    for name in sorted(others):
        verifier = open_verifier(recipe, name)
        scored = rescore(profiles, turns, verifier, open_environments(verifier), recipe.profile)
        write_records(run.folder.profiles(name), scored)
        cost += sum((each.cost for each in scored), Cost())
    return cost


def _found(report: SelectReport) -> str:
    chosen, profiled = len(report.selection.turn_ids), report.selection.counts["profiled"]
    found = f"{chosen} pivots of {profiled} turns ({report.verifier}, {report.rule})"
    if not chosen:
        return found
    return (
        f"{found}; fresh samples: {report.pivots.live_share:.0%} live, random turns "
        f"{report.random.live_share:.0%}"
    )


def _select_one(run: Run, sampler: Sampler, verifier: str, rule: str) -> SelectReport:
    recipe = run.recipe
    profiles, wrong = usable_profiles(run, verifier)
    config = msgspec.structs.replace(recipe.select, rule=rule)
    try:
        selection = select_pivots(profiles, config, derive_seed(recipe.seed, "select"))
    except NoPivots as error:
        return _none_selected(verifier, rule, len(profiles), wrong, error)
    chosen = set(selection.turn_ids)
    stats = [profile_stats(each) for each in profiles if each.turn_id in chosen]
    known = [each for each in stats if each is not None]
    start = time.perf_counter()
    pivots, first = _fresh(run, sampler, verifier, selection.turn_ids)
    random, second = _fresh(run, sampler, verifier, [each.turn_id for each in profiles])
    seconds = time.perf_counter() - start
    return SelectReport(
        verifier=verifier,
        rule=rule,
        selection=selection,
        wrong_expert=wrong,
        profiled_mean=float(np.mean([each.mean for each in known])),
        profiled_live_share=float(np.mean([each.mixed for each in known])),
        pivots=pivots,
        random=random,
        cost=first + second + Cost(seconds=seconds),
    )


def _none_selected(
    verifier: str, rule: str, profiled: int, wrong: int, error: NoPivots
) -> SelectReport:
    return SelectReport(
        verifier=verifier,
        rule=rule,
        selection=Selection((), {"profiled": profiled, "selected": 0}),
        wrong_expert=wrong,
        profiled_mean=0.0,
        profiled_live_share=0.0,
        pivots=NOT_SAMPLED,
        random=NOT_SAMPLED,
        cost=Cost(),
        why_none=(error.what, error.got or "", error.fix or ""),
    )


def _fresh(
    run: Run, sampler: Sampler, verifier_name: str, turn_ids: Sequence[str]
) -> tuple[FreshEstimate, Cost]:
    """Sample some of the turns again, under a seed that profiling never uses."""
    rng = np.random.default_rng(derive_seed(run.recipe.seed, "reestimate"))
    drawn = rng.permutation(len(turn_ids))[: quick(REESTIMATED, run.recipe.profile)]
    verifier = open_verifier(run.recipe, verifier_name)
    groups = sample_groups(
        sampler,
        run.turns([turn_ids[i] for i in drawn]),
        verifier,
        open_environments(verifier),
        n=run.recipe.profile.samples,
        temperature=run.recipe.profile.temperature,
        seed=derive_seed(run.recipe.seed, "reestimate"),
        max_tokens=run.recipe.profile.max_tokens,
    )
    return _estimate(groups), sum((group.cost for group in groups), Cost())


def _estimate(groups: Sequence[Group]) -> FreshEstimate:
    rewards = [
        [verdict.reward for verdict in group.verdicts if verdict.reward is not None]
        for group in groups
    ]
    known = [each for each in rewards if each]
    if not known:
        return NOT_SAMPLED
    return FreshEstimate(
        turns=len(known),
        mean=float(np.mean([np.mean(each) for each in known])),
        live_share=float(np.mean([max(each) > min(each) for each in known])),
    )


def read_selection(run: Run, verifier: str, rule: str) -> SelectReport:
    """A stored selection; raises `StoreError` before the select stage."""
    return read_json(run.folder.pivots(verifier, rule), SelectReport)
