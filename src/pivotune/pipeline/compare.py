"""`pivotune tax`: any number of models against a base, from tallies or by playing a suite.

Models are named and counted as `counting.py` says; beside the outcomes and tallies the output
folder holds

    tax.json tax.html   every figure, and the page
    tax.md              the main tables, to be quoted
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

import pivotune
from pivotune.core.errors import DataError
from pivotune.core.scores import Matched, TaxFindings
from pivotune.core.store import write_atomic, write_json
from pivotune.evaluate.tax import CONVENTION, find_tax
from pivotune.pipeline.counting import (
    Model,
    Wanted,
    common_rollouts,
    open_models,
    run_recipe,
    settings_of,
    tell_apart,
    write_tallies,
)
from pivotune.pipeline.run import BASE, Run, Watch
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.tax import TaxSettings, read_matched, tax_budget, tax_settings
from pivotune.report.data import Fact, MethodCurves, ReportData
from pivotune.report.page import build_page
from pivotune.report.tables import markdown
from pivotune.report.tax.budgets import budgets, pick_model
from pivotune.report.tax.sentences import forecast_sentence
from pivotune.report.tax.tables import matched_table, router_table, score_table


class Comparison(msgspec.Struct, frozen=True):
    """`tax.json`: the findings, which model to ask at each budget, and how it was measured."""

    findings: TaxFindings
    router: dict[int, str]
    sources: dict[str, str]
    convention: str
    software: str


def compare(base: str, posts: Sequence[str], wanted: Wanted, out: Path, watch: Watch) -> Comparison:
    """Count every model and write the output folder.

    A run folder as `base` with no `posts` compares its own methods with its own base.
    """
    first, *own = open_models(base, out, watch, wanted.base_prompts)
    others = [model for each in posts for model in _posts(open_models(each, out, watch))]
    named = tell_apart(others if posts else own)
    if not named:
        raise DataError(
            "there is nothing to compare the base with",
            got=base,
            fix="name a second model, or a run folder that has trained methods",
        )
    models = [msgspec.structs.replace(first, name=BASE), *named]
    settings = settings_of([base, *posts], wanted)
    counted = {model.name: model.count(settings) for model in models}
    tallies = {name: each.tallies for name, each in counted.items()}
    others_tallies = {name: each for name, each in tallies.items() if name != BASE}
    findings = find_tax(
        tallies[BASE], others_tallies, tax_budget(max(2, common_rollouts(tallies)), wanted.k)
    )
    if not posts:
        findings = msgspec.structs.replace(
            findings, matched=_counted_matches(base, settings, findings.k, watch)
        )
    found = Comparison(
        findings,
        {k: pick_model(findings.comparisons, k) for k in budgets(findings.k)},
        {name: each.source for name, each in counted.items()},
        CONVENTION,
        f"pivotune {pivotune.__version__}",
    )
    write_tallies(out, tallies)
    write_json(out / "tax.json", found)
    write_atomic(out / "tax.html", build_page(_page_data(found, named)).encode())
    write_atomic(out / "tax.md", _markdown(found).encode())
    return found


def _counted_matches(base: str, settings: TaxSettings, k: int, watch: Watch) -> tuple[Matched, ...]:
    """The pairs that a run has counted itself under the same settings."""
    run = Run(RunFolder(Path(base), run_recipe(Path(base))), watch)
    same = run.recipe.tax.rollouts and settings == tax_settings(run.recipe)
    found = read_matched(run) if same else ()
    return found if all(each.k == k for each in found) else ()


def _posts(models: list[Model]) -> list[Model]:
    """A run folder named after the base contributes its methods only."""
    return models[1:] if len(models) > 1 else models


# Output


def _markdown(found: Comparison) -> str:
    tables = [
        ("Scores", score_table(found.findings.comparisons)),
        ("Which model to ask", router_table(found.findings.comparisons)),
    ]
    if found.findings.matched:
        tables.append(("At equal first tries", matched_table(found.findings.matched)))
    parts = [f"## {title}\n\n{markdown(shown)}" for title, shown in tables]
    return "\n".join([*parts, forecast_sentence(found.findings.forecast), ""])


def _page_data(found: Comparison, models: Sequence[Model]) -> ReportData:
    names = [each.name for each in found.findings.comparisons]
    return ReportData(
        title=f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''} against the base",
        main=names[0],
        tax=found.findings,
        curves=tuple(
            MethodCurves(each.name, each.objective, {}, verifier=each.verifier)
            for each in models
            if each.objective
        ),
        facts=(
            *(Fact(name, source) for name, source in found.sources.items()),
            Fact("Convention", found.convention),
            Fact("Software", found.software),
        ),
    )
