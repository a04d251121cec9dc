"""`pivotune verify`: what a verifier's verdicts are worth, and stored samples judged again."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from pivotune.cli.screen import Screen
from pivotune.core.errors import DataError, RecipeError
from pivotune.core.seeds import derive_seed
from pivotune.core.store import read_records, write_json, write_records
from pivotune.core.types import Profile, Turn
from pivotune.ingest import read_trajectories, split_turns
from pivotune.pipeline.recipe import Recipe, load_recipe
from pivotune.pipeline.run import Advance, Run
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.verifiers import open_environments, open_verifier
from pivotune.turns.candidates import is_expert
from pivotune.turns.pivots import profile_stats
from pivotune.turns.profile import repeatability
from pivotune.turns.profile import rescore as judge_again
from pivotune.verify import selftest as score_perturbed
from pivotune.verify.pairs import FAMILIES, read_pairs, score_pairs

app = typer.Typer(
    help="Error rates of verifiers; other verdicts on stored samples.", no_args_is_help=True
)

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [KEY=VALUE]...",
        help="A recipe (TOML) whose [verifiers.NAME] set the verifier, and overrides.",
    ),
]
VerifierOption = Annotated[
    str, typer.Option("--verifier", "-v", help="A family, or a name that the recipe sets.")
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the whole report here.")]


@app.command()
def selftest(
    traces: Annotated[Path, typer.Argument(help="A file or folder of traces, any dialect.")],
    verifier: VerifierOption,
    settings: Settings = None,
    turns: Annotated[int, typer.Option(help="At most that many, drawn by the seed. 0: all.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Verdicts on each pair.")] = 2,
    json: JsonOption = None,
) -> None:
    """Score respelt and changed expert actions: false rejects and accepts by kind.

    Traces without tool schemas: add traces.tools=FILE or traces.tools=infer. A judge with a
    cache always agrees with itself: leave the cache out here.
    """
    screen = Screen(Console())
    recipe = _load(settings)
    judge = open_verifier(recipe, verifier)
    environments = open_environments(judge)
    chosen = _read_turns(traces, recipe, turns, screen)
    with screen.progress("verifying", len(chosen), "turns") as advance:
        report = score_perturbed(
            _counted(chosen, advance),
            judge,
            repeats=repeats,
            success_at=recipe.candidates.success_at,
            environment_at=environments.at if environments else None,
        )
    for line in report.lines():
        screen.say(line)
    if json is not None:
        write_json(json, report)


@app.command()
def pairs(
    settings: Settings = None,
    verifier: Annotated[
        str, typer.Option("--verifier", "-v", help="One verifier, its mistakes listed.")
    ] = "",
    json: JsonOption = None,
) -> None:
    """Error rates on 200 pairs of actions over five domains, labelled by hand.

    Verifiers that need an environment are given the household pairs, which can be executed.
    """
    screen = Screen(Console())
    recipe = _load(settings)
    labelled = read_pairs()
    reports = {}
    for name in [verifier] if verifier else FAMILIES:
        judge = open_verifier(recipe, name)
        environments = open_environments(judge)
        fitting = [pair for pair in labelled if pair.executable or environments is None]
        reports[name] = score_pairs(
            fitting,
            judge,
            success_at=recipe.candidates.success_at,
            environment_at=environments.at if environments else None,
        )
    screen.say(f"{'verifier':14} {'domain':10} {'false rejects':>16} {'false accepts':>16} invalid")
    for name, report in reports.items():
        for domain, found in report.items():
            rejects = f"{found.false_rejects} of {found.same} {found.false_reject_rate:4.0%}"
            accepts = f"{found.false_accepts} of {found.different} {found.false_accept_rate:4.0%}"
            screen.say(f"{name:14} {domain:10} {rejects:>16} {accepts:>16} {found.invalid:7}")
        for line in report["all"].wrong if verifier else ():
            screen.say(f"  {line}")
    if json is not None:
        write_json(json, reports)


@app.command()
def rescore(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has been profiled.")],
    verifier: VerifierOption,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides.")
    ] = None,
) -> None:
    """Judge the samples of a run again under another verifier; nothing is sampled.

    Writes profiles/NAME.jsonl beside the run's own and compares the two.
    """
    screen = Screen(Console())
    if not (run / "recipe.toml").exists():
        raise RecipeError("no run lies here", where=str(run), expected="a folder with recipe.toml")
    opened = Run(RunFolder(run, load_recipe(run / "recipe.toml")), screen)
    recipe = load_recipe(run / "recipe.toml", settings or ())
    before = list(read_records(opened.folder.profiles(opened.recipe.verifier), Profile))
    turns = {turn.id: turn for turn in opened.turns(profile.turn_id for profile in before)}
    judge = open_verifier(recipe, verifier)
    after = judge_again(before, turns, judge, open_environments(judge), recipe.profile)
    path = opened.folder.profiles(verifier)
    if verifier != opened.recipe.verifier:
        write_records(path, after)
        screen.say(f"written: {path}")
    for name, profiles in ((opened.recipe.verifier, before), (verifier, after)):
        screen.say(_describe(name, profiles, recipe.candidates.success_at))
    screen.say(_compare(before, after, recipe.candidates.success_at))


def _load(settings: Sequence[str] | None) -> Recipe:
    """A recipe file, where one is named, and the overrides behind it."""
    given = list(settings or ())
    recipes = [Path(each) for each in given if "=" not in each]
    if len(recipes) > 1:
        raise RecipeError("more than one recipe", got=" ".join(map(str, recipes)))
    return load_recipe(recipes[0] if recipes else None, [each for each in given if "=" in each])


def _read_turns(path: Path, recipe: Recipe, limit: int, screen: Screen) -> list[Turn]:
    """Turns of the traces that did not fail; at most `limit` of them, drawn by the seed."""
    traces = recipe.traces
    reader = read_trajectories(
        path,
        dialect=traces.dialect or None,
        domain=traces.domain,
        tools=traces.tools or None,
        merge=traces.merge_roles,
    )
    experts = [each for each in reader if is_expert(each, recipe.candidates)]
    for line in reader.report.lines():
        screen.say(line)
    reader.report.require_trajectories()
    turns = [turn for trajectory in experts for turn in split_turns(trajectory)]
    left_out = reader.report.turns - len(turns)
    if left_out:
        screen.say(f"{left_out} turns of failed runs left out (candidates.keep_failed=true)")
    if not turns:
        raise DataError(
            "no turn of a run that succeeded",
            where=str(path),
            fix="candidates.keep_failed=true takes the failed runs as well",
        )
    if limit and limit < len(turns):
        rng = np.random.default_rng(derive_seed(recipe.seed, "selftest"))
        turns = [turns[i] for i in sorted(rng.permutation(len(turns))[:limit])]
    return turns


def _counted(turns: Sequence[Turn], advance: Advance) -> Iterator[Turn]:
    for turn in turns:
        yield turn
        advance(1)


def _describe(name: str, profiles: Sequence[Profile], success_at: float) -> str:
    stats = [profile_stats(profile, success_at) for profile in profiles]
    known = [each for each in stats if each is not None]
    mean = sum(each.mean for each in known) / len(known) if known else 0.0
    invalid = sum(len(profile.samples) - len(profile.rewards) for profile in profiles)
    wrong = sum((p.expert.reward or 0.0) < success_at for p in profiles)
    agreed, repeated = repeatability(profiles)
    wavers = f", {agreed} of {repeated} repeated verdicts agree" if repeated else ""
    return (
        f"{name}: {len(profiles)} turns, mean reward {mean:.3f}, "
        f"{sum(each.mixed for each in known)} mixed, {invalid} invalid verdicts, "
        f"{wrong} experts that fail it{wavers}"
    )


def _compare(before: Sequence[Profile], after: Sequence[Profile], success_at: float) -> str:
    pairs = [
        (first.verdict.reward >= success_at, second.verdict.reward >= success_at)
        for one, other in zip(before, after, strict=True)
        for first, second in zip(one.samples, other.samples, strict=True)
        if first.verdict.reward is not None and second.verdict.reward is not None
    ]
    gained = sum(second and not first for first, second in pairs)
    lost = sum(first and not second for first, second in pairs)
    return f"of {len(pairs)} samples {gained} are newly accepted and {lost} newly rejected"
