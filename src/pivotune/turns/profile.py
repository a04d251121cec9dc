"""Profiling: K samples of every candidate turn under one frozen policy, resumable at any point.

Profiles are appended to a log in portions. Samples depend on (seed, turn id) only, so a run
that was killed and started again writes the same profiles as one that was not.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pivotune.core.errors import StoreError
from pivotune.core.protocols import Sampler, Verifier
from pivotune.core.seeds import derive_seed
from pivotune.core.store import AppendLog, read_records
from pivotune.core.types import Completion, Cost, Profile, Sample, Turn, Verdict
from pivotune.turns.adaptive import AdaptiveConfig, is_decided
from pivotune.turns.candidates import prefix_hash
from pivotune.turns.rollout import (
    Group,
    RestoredEnvironments,
    check_invalid_share,
    expert_completion,
    judge,
    judging_cost,
    sample_groups,
)


class ProfileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How turns are profiled. K = `samples` is 8 (ours; public practice is at least 8).

    `turns` above 0 profiles that many randomly drawn candidates: a quick look. `again`: how often
    the verdicts of a turn whose rewards differ are asked for again (ours: 2), so that a verifier's
    own chance is not taken for the policy's; 0: never. `adaptive`: turns that their first samples
    decide are sampled no further.
    """

    samples: int = 8
    turns: int = 0
    temperature: float = 1.0
    max_tokens: int = 48
    portion: int = 128
    invalid_limit: float = 0.05
    again: int = 2
    adaptive: AdaptiveConfig | None = None


UNREPEATABLE = "unrepeatable"
"""The part of an invalid verdict that was not the same when it was asked for again."""

_ACCEPTED_AT = 0.5


def profile_turns(
    sampler: Sampler,
    turns: Sequence[Turn],
    verifier: Verifier,
    environments: RestoredEnvironments | None,
    config: ProfileConfig,
    *,
    seed: int,
    path: Path,
    on_progress: Callable[[int], None] | None = None,
) -> list[Profile]:
    """Profile the turns that the log at `path` does not hold yet; all profiles in turn order.

    `on_progress(n)` is told of n more finished turns. Raises `StoreError` when the log was made
    by another policy, verifier or setting, and `VerifierError` when the share of invalid
    verdicts passes the limit.
    """
    done = _finished(path, sampler, verifier, config, seed)
    if on_progress is not None and done:
        on_progress(sum(turn.id in done for turn in turns))
    todo = [turn for turn in turns if turn.id not in done]
    with AppendLog(path) as log:
        for start in range(0, len(todo), config.portion):
            portion = todo[start : start + config.portion]
            profiles = _profile_portion(sampler, portion, verifier, environments, config, seed)
            log.append(profiles)
            done |= {profile.turn_id: profile for profile in profiles}
            check_invalid_share(
                _failures_and_answers(done.values()), config.invalid_limit, str(path)
            )
            if on_progress is not None:
                on_progress(len(portion))
    return [done[turn.id] for turn in turns]


def _finished(
    path: Path, sampler: Sampler, verifier: Verifier, config: ProfileConfig, seed: int
) -> dict[str, Profile]:
    if not path.exists():
        return {}
    done = {profile.turn_id: profile for profile in read_records(path, Profile)}
    want = (sampler.policy_hash, verifier.name, verifier.version, config.temperature, seed)
    for profile in done.values():
        have = (
            profile.policy_hash,
            profile.verifier,
            profile.verifier_version,
            profile.temperature,
            profile.seed,
        )
        if have != want:
            raise StoreError(
                "these profiles were made under other settings",
                where=str(path),
                got=f"policy, verifier, version, temperature, seed = {have}",
                expected=str(want),
                fix="use another run folder, or run again with --redo profile",
            )
    return done


def _profile_portion(
    sampler: Sampler,
    turns: Sequence[Turn],
    verifier: Verifier,
    environments: RestoredEnvironments | None,
    config: ProfileConfig,
    seed: int,
) -> list[Profile]:
    start = time.perf_counter()
    groups = _sample_portion(sampler, turns, verifier, environments, config, seed)
    repeats = [_ask_again(group, verifier, environments, config.again) for group in groups]
    experts = [judge(turn, [expert_completion(turn)], verifier, environments)[0] for turn in turns]
    seconds = (time.perf_counter() - start) / max(1, len(turns))
    return [
        _as_profile(repeat, expert, sampler, verifier, config, seed, seconds)
        for repeat, expert in zip(repeats, experts, strict=True)
    ]


def _sample_portion(
    sampler: Sampler,
    turns: Sequence[Turn],
    verifier: Verifier,
    environments: RestoredEnvironments | None,
    config: ProfileConfig,
    seed: int,
) -> list[Group]:
    """All samples of every turn; adaptive: the rest only where the first ones do not decide."""

    def sample(some: Sequence[Turn], n: int, seed: int) -> list[Group]:
        return sample_groups(
            sampler,
            some,
            verifier,
            environments,
            n=n,
            temperature=config.temperature,
            seed=seed,
            max_tokens=config.max_tokens,
        )

    adaptive = config.adaptive
    if adaptive is None or adaptive.first >= config.samples:
        return sample(turns, config.samples, seed)
    groups = {group.turn.id: group for group in sample(turns, adaptive.first, seed)}
    open_turns = [turn for turn in turns if _undecided(groups[turn.id], config.samples, adaptive)]
    rest = config.samples - adaptive.first
    for more in sample(open_turns, rest, derive_seed(seed, "more")):
        found = groups[more.turn.id]
        groups[more.turn.id] = Group(
            found.turn,
            found.completions + more.completions,
            found.verdicts + more.verdicts,
            found.cost + more.cost,
        )
    return [groups[turn.id] for turn in turns]


def _undecided(group: Group, samples: int, adaptive: AdaptiveConfig) -> bool:
    """Invalid verdicts decide nothing, and make the whole fewer."""
    rewards = [each.reward for each in group.verdicts if each.reward is not None]
    won = sum(reward >= adaptive.success_at for reward in rewards)
    total = samples - len(group.verdicts) + len(rewards)
    return not is_decided(won, len(rewards), total, adaptive)


class _Repeat(NamedTuple):
    """A group after its verdicts were asked for again, and how many of those said the same."""

    group: Group
    repeated: int = 0
    agreed: int = 0


def _ask_again(
    group: Group, verifier: Verifier, environments: RestoredEnvironments | None, times: int
) -> _Repeat:
    """Where rewards differ, a verdict that does not repeat is invalid: it says nothing.

    A turn on which only the verifier wavers has equal rewards left, and is not mixed.
    """
    rewards = [verdict.reward for verdict in group.verdicts if verdict.reward is not None]
    if not times or not rewards or max(rewards) == min(rewards):
        return _Repeat(group)
    rounds = [judge(group.turn, group.completions, verifier, environments) for _ in range(times)]
    verdicts: list[Verdict] = []
    repeated = agreed = 0
    for first, *others in zip(group.verdicts, *rounds, strict=True):
        answers = [_accepts(each) for each in others if each.reward is not None]
        if first.reward is None or not answers:
            verdicts.append(first)
            continue
        same = answers.count(_accepts(first))
        repeated, agreed = repeated + len(answers), agreed + same
        verdicts.append(first if same == len(answers) else _unrepeatable(first, others))
    cost = sum((judging_cost(each) for each in rounds), group.cost)
    changed = msgspec.structs.replace(group, verdicts=tuple(verdicts), cost=cost)
    return _Repeat(changed, repeated, agreed)


def _accepts(verdict: Verdict) -> bool:
    return verdict.reward is not None and verdict.reward >= _ACCEPTED_AT


def _unrepeatable(first: Verdict, others: Sequence[Verdict]) -> Verdict:
    said = ", ".join("invalid" if v.reward is None else f"{v.reward:g}" for v in (first, *others))
    return Verdict(None, f"asked again the verdict changes: {said}", {UNREPEATABLE: 1.0})


def _failures_and_answers(profiles: Iterable[Profile]) -> list[Verdict]:
    """All verdicts but the unrepeatable: those are reported, and are no failures."""
    verdicts = (sample.verdict for profile in profiles for sample in profile.samples)
    return [verdict for verdict in verdicts if UNREPEATABLE not in verdict.parts]


def repeatability(profiles: Iterable[Profile]) -> tuple[int, int]:
    """(agreed, repeated): how many verdicts that were asked for again said the same."""
    pairs = [(profile.agreed, profile.repeated) for profile in profiles]
    return sum(agreed for agreed, _ in pairs), sum(repeated for _, repeated in pairs)


def _as_profile(
    repeat: _Repeat,
    expert: Verdict,
    sampler: Sampler,
    verifier: Verifier,
    config: ProfileConfig,
    seed: int,
    seconds: float,
) -> Profile:
    group = repeat.group
    return Profile(
        turn_id=group.turn.id,
        prefix_hash=prefix_hash(group.turn),
        policy_hash=sampler.policy_hash,
        verifier=verifier.name,
        verifier_version=verifier.version,
        temperature=config.temperature,
        seed=seed,
        max_tokens=config.max_tokens,
        prompt_tokens=group.completions[0].prompt_length if group.completions else 0,
        expert=expert,
        samples=tuple(
            _as_sample(completion, verdict)
            for completion, verdict in zip(group.completions, group.verdicts, strict=True)
        ),
        cost=group.cost + judging_cost([expert]) + Cost(seconds=seconds),
        repeated=repeat.repeated,
        agreed=repeat.agreed,
    )


def _as_sample(completion: Completion, verdict: Verdict) -> Sample:
    return Sample(
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        message=completion.message,
        outcome=completion.outcome,
        finish=completion.finish,
        verdict=verdict,
        text=completion.text,
        problem=completion.problem,
    )


def rescore(
    profiles: Sequence[Profile],
    turns: Mapping[str, Turn],
    verifier: Verifier,
    environments: RestoredEnvironments | None,
    config: ProfileConfig | None = None,
) -> list[Profile]:
    """The same samples under another verifier, without sampling again.

    Raises `StoreError` for a profile whose turn is not there, `VerifierError` when the share of
    invalid verdicts passes the limit.
    """
    config = config or ProfileConfig()
    scored: list[Profile] = []
    for start in range(0, len(profiles), config.portion):
        for profile in profiles[start : start + config.portion]:
            turn = turns.get(profile.turn_id)
            if turn is None:
                raise StoreError(
                    "a profile of a turn that is not among the trajectories",
                    where=profile.turn_id,
                    fix="verify again over the run folder that the profiles were made in",
                )
            scored.append(_rescore_one(profile, turn, verifier, environments, config.again))
        check_invalid_share(_failures_and_answers(scored), config.invalid_limit, verifier.name)
    return scored


def _rescore_one(
    profile: Profile,
    turn: Turn,
    verifier: Verifier,
    environments: RestoredEnvironments | None,
    again: int,
) -> Profile:
    completions = tuple(_as_completion(sample, profile) for sample in profile.samples)
    verdicts = judge(turn, completions, verifier, environments)
    group = Group(turn, completions, verdicts, judging_cost(verdicts))
    repeat = _ask_again(group, verifier, environments, again)
    expert = judge(turn, [expert_completion(turn)], verifier, environments)[0]
    return msgspec.structs.replace(
        profile,
        samples=tuple(
            msgspec.structs.replace(sample, verdict=verdict)
            for sample, verdict in zip(profile.samples, repeat.group.verdicts, strict=True)
        ),
        expert=expert,
        verifier=verifier.name,
        verifier_version=verifier.version,
        cost=repeat.group.cost + judging_cost([expert]),
        repeated=repeat.repeated,
        agreed=repeat.agreed,
    )


def _as_completion(sample: Sample, profile: Profile) -> Completion:
    return Completion(
        prompt_ids=(),
        token_ids=sample.token_ids,
        logprobs=sample.logprobs,
        message=sample.message,
        outcome=sample.outcome,
        finish=sample.finish,
        temperature=profile.temperature,
        policy_hash=profile.policy_hash,
        text=sample.text,
        problem=sample.problem,
    )
