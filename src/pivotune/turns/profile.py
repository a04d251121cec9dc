"""Profiling: K samples of every candidate turn under one frozen policy, resumable at any point.

Profiles are appended to a log in portions. Samples depend on (seed, turn id) only, so a run
that was killed and started again writes the same profiles as one that was not.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pivotune.core.errors import StoreError
from pivotune.core.protocols import Sampler, Verifier
from pivotune.core.store import AppendLog, read_records
from pivotune.core.types import Completion, Cost, Profile, Sample, Turn, Verdict
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

    `turns` above 0 profiles that many randomly drawn candidates: a quick look.
    """

    samples: int = 8
    turns: int = 0
    temperature: float = 1.0
    max_tokens: int = 48
    portion: int = 128
    invalid_limit: float = 0.05


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
            verdicts = [sample.verdict for each in done.values() for sample in each.samples]
            check_invalid_share(verdicts, config.invalid_limit, str(path))
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
    groups = sample_groups(
        sampler,
        turns,
        verifier,
        environments,
        n=config.samples,
        temperature=config.temperature,
        seed=seed,
        max_tokens=config.max_tokens,
    )
    experts = [judge(turn, [expert_completion(turn)], verifier, environments)[0] for turn in turns]
    seconds = (time.perf_counter() - start) / max(1, len(turns))
    return [
        _as_profile(group, expert, sampler, verifier, config, seed, seconds)
        for group, expert in zip(groups, experts, strict=True)
    ]


def _as_profile(
    group: Group,
    expert: Verdict,
    sampler: Sampler,
    verifier: Verifier,
    config: ProfileConfig,
    seed: int,
    seconds: float,
) -> Profile:
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
    turns: dict[str, Turn],
    verifier: Verifier,
    environments: RestoredEnvironments | None,
) -> list[Profile]:
    """The same samples under another verifier, without sampling again."""
    scored = []
    for profile in profiles:
        turn = turns[profile.turn_id]
        completions = [_as_completion(sample, profile) for sample in profile.samples]
        verdicts = judge(turn, completions, verifier, environments)
        samples = tuple(
            msgspec.structs.replace(sample, verdict=verdict)
            for sample, verdict in zip(profile.samples, verdicts, strict=True)
        )
        expert = judge(turn, [expert_completion(turn)], verifier, environments)[0]
        scored.append(
            msgspec.structs.replace(
                profile,
                samples=samples,
                expert=expert,
                verifier=verifier.name,
                verifier_version=verifier.version,
                cost=judging_cost([*verdicts, expert]),
            )
        )
    return scored


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
