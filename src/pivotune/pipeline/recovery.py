"""Can the policies of a run recover from the base's pivotal mistakes?

Out: `recovery/states.jsonl` (the same for all), `recovery/replays/POLICY.jsonl` (one record a
replay) and `recovery/scores.json`. The base's episodes, in `recovery/episodes.jsonl`, are also
what the teachers of the methods are tried on before any training, beside the oracle. Nothing is
played where the recipe asks for no states.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.seeds import derive_seed
from pivotune.core.store import AppendLog, read_json, read_records, write_json, write_records
from pivotune.core.types import Cost, Episode, content_hash
from pivotune.domains.catalog import make_environment, suite_tasks
from pivotune.evaluate.recovery import (
    MistakeState,
    RecoveryScore,
    Replay,
    TeacherScore,
    Variant,
    find_mistakes,
    gold_probability,
    replay_states,
    score_recovery,
    score_teacher,
    vary_state,
)
from pivotune.pipeline.evaluation import policies
from pivotune.pipeline.policies import (
    base_settings,
    open_base,
    open_policy,
    open_sampler,
    open_teacher_model,
)
from pivotune.pipeline.recipe import Method
from pivotune.pipeline.run import BASE, Run
from pivotune.pipeline.training import objective_config
from pivotune.train.objective import Materials
from pivotune.train.objectives.pivot_opd import PivotOpdConfig
from pivotune.train.teachers import open_teacher
from pivotune.turns.rollout import EpisodeLimits

_TASKS_PER_STATE = 8
VARIANTS: tuple[Variant, ...] = ("resample", "correct", "assist")


class RecoveryResult(msgspec.Struct, frozen=True):
    """What the base's episodes were like, and how each policy recovers.

    `gold` is the mean probability of the oracle's action where the base made its mistakes, by
    policy. `diagnosis` is how the base does from before its mistakes, or with help. `teachers`
    are those of the methods that let a model find the mistakes.
    """

    episodes: int
    won: int
    failed_with_mistake: float | None
    first_turns: tuple[int, ...]
    left_out: dict[str, int]
    scores: dict[str, RecoveryScore] = {}
    gold: dict[str, float | None] = {}
    diagnosis: dict[str, RecoveryScore] = {}
    teachers: dict[str, TeacherScore] = {}


def measure_recovery(run: Run) -> None:
    """Find the base's mistakes, then replay them with every policy; finished replays are kept."""
    recipe = run.recipe
    if not recipe.recovery.states:
        return
    settings = (
        base_settings(run),
        recipe.recovery,
        recipe.evaluate,
        recipe.profile.max_tokens,
        recipe.seed,
    )
    if run.folder.begin("recovery", settings):
        run.folder.finish("recovery", _find_states(run))
    states = list(read_records(run.folder.recovery / "states.jsonl", MistakeState))
    result = read_json(run.folder.recovery / "states.json", RecoveryResult)
    if run.works_on(BASE):
        result.teachers.update(_score_teachers(run, settings))
        result.diagnosis.update(_diagnose(run, states, settings))
    for name, checkpoint in policies(run).items():
        upstream = () if checkpoint is None else run.folder.settings(f"train/{name}")
        result.scores[name] = _score(run, name, checkpoint, states, (upstream, settings))
        result.gold[name] = _gold(run, name, checkpoint, states)
    if run.only is None:
        write_json(run.folder.recovery / "scores.json", result)


def read_recovery(run: Run) -> RecoveryResult | None:
    """The figures of a run whose recipe asks for them; raises `StoreError` before the stage."""
    if not run.recipe.recovery.states:
        return None
    return read_json(run.folder.recovery / "scores.json", RecoveryResult)


def _diagnose(run: Run, states: Sequence[MistakeState], settings: Any) -> dict[str, RecoveryScore]:
    """The base from before its mistakes, or with help; nothing where the recipe does not ask."""
    found: dict[str, RecoveryScore] = {}
    for variant in VARIANTS if run.recipe.recovery.diagnosis else ():
        varied = [vary_state(state, variant, make_environment) for state in states]
        begun = [state for state in varied if state is not None]
        found[variant] = _score(run, f"{BASE} {variant}", None, begun, settings)
    return found


def _score_teachers(run: Run, settings: Any) -> dict[str, TeacherScore]:
    """Every method's teacher on the base's episodes; methods with equal teachers share one try."""
    known: dict[str, TeacherScore] = {}
    for name, method in run.recipe.methods.items():
        config = objective_config(method)
        if not isinstance(config, PivotOpdConfig) or not config.teacher.is_model:
            continue
        asked = (method.teacher_model, config.teacher, config.marks)
        key = content_hash(asked)
        stage = f"recovery/teacher {key}"
        path = run.folder.recovery / "teachers" / f"{key}.json"
        if run.folder.begin(stage, (asked, settings)):
            score = _score_teacher(run, method, config)
            path.parent.mkdir(exist_ok=True)
            write_json(path, score)
            run.folder.finish(stage, score.cost)
        known[name] = read_json(path, TeacherScore)
        run.watch.say(f"{name}'s teacher: {describe_teacher(known[name])}")
    return known


def _score_teacher(run: Run, method: Method, config: PivotOpdConfig) -> TeacherScore:
    recipe = run.recipe
    other = open_teacher_model(recipe, method.teacher_model)[0] if method.teacher_model else None
    materials = Materials(
        sampler=open_sampler(open_base(run)), teacher=other, make_environment=make_environment
    )
    return score_teacher(
        open_teacher(materials, config.teacher, method.objective),
        list(read_records(run.folder.recovery / "episodes.jsonl", Episode)),
        make_environment,
        limit=config.marks,
        seed=derive_seed(recipe.seed, "teacher"),
    )


def describe_teacher(score: TeacherScore) -> str:
    """One line."""
    if score.precision is None or score.recall is None or score.within_one is None:
        return f"nothing to compare ({score.marks} marks, the oracle's {score.oracle_marks})"
    return (
        f"precision {score.precision:.1%}, recall {score.recall:.1%} of the oracle's "
        f"{score.oracle_marks} marks in {score.episodes} episodes; "
        f"{score.within_one:.1%} within one turn"
    )


def _score(
    run: Run, name: str, checkpoint: Path | None, states: Sequence[MistakeState], settings: Any
) -> RecoveryScore:
    """Replay what has not been replayed, and score it."""
    if run.folder.begin(f"recovery/{name}", settings):
        replays = _replay(run, name, checkpoint, states)
        run.folder.finish(f"recovery/{name}", sum((each.cost for each in replays), Cost()))
    played = list(read_records(run.folder.recovery / "replays" / f"{name}.jsonl", Replay))
    score = score_recovery(states, played)
    run.watch.say(f"{name}: {describe(score)}")
    return score


def _replay(
    run: Run, name: str, checkpoint: Path | None, states: Sequence[MistakeState]
) -> list[Replay]:
    """What a policy's log does not hold yet; all its replays."""
    recipe = run.recipe
    path = run.folder.recovery / "replays" / f"{name}.jsonl"
    done = list(read_records(path, Replay)) if path.exists() else []
    total = len(states) * recipe.recovery.replays
    title = f"{name}: recovery from {len(states)} mistakes"
    path.parent.mkdir(exist_ok=True)
    sampler = open_sampler(open_policy(run, checkpoint))
    with run.watch.progress(title, total, "replays") as advance, AppendLog(path) as log:
        advance(len(done))

        def record(replay: Replay) -> None:
            log.append([replay])
            advance(1)

        return replay_states(
            sampler,
            states,
            make_environment,
            replays=recipe.recovery.replays,
            temperature=recipe.evaluate.temperature,
            seed=derive_seed(recipe.seed, "recovery"),
            limits=_limits(run),
            done={(each.state, each.repeat): each for each in done},
            on_done=record,
        )


def _gold(
    run: Run, name: str, checkpoint: Path | None, states: Sequence[MistakeState]
) -> float | None:
    """The probability of the oracle's actions, kept once it is known."""
    path = run.folder.recovery / "gold" / f"{name}.json"
    if not path.exists():
        policy = open_policy(run, checkpoint)
        found = gold_probability(open_sampler(policy), policy.chat, states)
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"gold": found})
    return read_json(path, dict[str, float | None])["gold"]


def describe(score: RecoveryScore) -> str:
    """One line."""
    rate = score.rate
    if rate.value is None or rate.low is None or rate.high is None:
        return f"recovery undefined ({rate.reason})"
    turns = (
        ""
        if score.turns is None or score.optimum is None
        else f", {score.turns:.1f} turns where {score.optimum:.1f} would do"
    )
    return (
        f"recovers from {rate.value:.1%} ({rate.low:.1%} to {rate.high:.1%}) of "
        f"{score.states} mistakes{turns}"
    )


def _limits(run: Run) -> EpisodeLimits:
    return EpisodeLimits(run.recipe.evaluate.max_turns, run.recipe.profile.max_tokens)


def _find_states(run: Run) -> Cost:
    recipe = run.recipe
    seed = derive_seed(recipe.seed, "recovery")
    wanted = recipe.recovery.states
    tasks = suite_tasks(recipe.evaluate.in_domain, wanted * _TASKS_PER_STATE, seed)
    found = find_mistakes(
        open_sampler(open_base(run)),
        tasks,
        make_environment,
        wanted=wanted,
        temperature=recipe.evaluate.temperature,
        seed=seed,
        limits=_limits(run),
    )
    if not found.states:
        raise DataError(
            "the base made no pivotal mistake that can be recovered from",
            got=f"{found.won} of {len(found.played)} episodes won, left out: {found.left_out}",
            fix="set recovery.states=0, or take a weaker base",
        )
    if len(found.states) < wanted:
        run.watch.say(f"recovery: {len(found.states)} mistakes found, {wanted} asked for")
    folder = run.folder.recovery
    folder.mkdir(exist_ok=True)
    write_records(folder / "states.jsonl", found.states)
    write_records(folder / "episodes.jsonl", found.played)
    result = RecoveryResult(
        len(found.played),
        found.won,
        found.failed_with_mistake,
        found.first_turns,
        found.left_out,
    )
    write_json(folder / "states.json", result)
    return found.cost
