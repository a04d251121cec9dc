"""`pivotune tax --join`: runs of one recipe that differ in their seed, as one table over seeds.

In: run folders whose recipe asks for a tax, or output folders of `pivotune tax`. Nothing is
played. Out: `seeds.json` with every figure, `seeds.md` with the tables.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.scores import TaxFindings, TaxOverSeeds
from pivotune.core.store import read_json, write_atomic, write_json
from pivotune.core.tally import Tally
from pivotune.evaluate.seeds import join_tax
from pivotune.evaluate.tallies import read_tallies
from pivotune.evaluate.tax import forecast_tax_over
from pivotune.pipeline.compare import Comparison
from pivotune.pipeline.recipe import load_recipe
from pivotune.pipeline.run import BASE, Run, Watch
from pivotune.pipeline.run_folder import RunFolder
from pivotune.pipeline.tax import read_run_tallies, read_tax
from pivotune.report.tables import markdown
from pivotune.report.tax.seeds import over_seeds_tables
from pivotune.report.tax.sentences import forecast_sentence


class _Measured(msgspec.Struct, frozen=True):
    """One run's findings and what they come from; `seed` is None where it is not known."""

    findings: TaxFindings
    tallies: dict[str, dict[str, Tally]]
    seed: int | None = None


def join_runs(given: Sequence[str], out: Path, watch: Watch) -> TaxOverSeeds:
    """Join what the runs have measured; raises `DataError` for what cannot be joined."""
    runs = [_read(Path(each), watch) for each in given]
    seeds = [each.seed for each in runs if each.seed is not None]
    if len(set(seeds)) < len(seeds) or len({Path(each).resolve() for each in given}) < len(given):
        raise DataError(
            "two of these runs have the same seed",
            got=", ".join(given),
            expected="runs of one recipe that differ in their seed",
        )
    first = runs[0].findings.forecast
    forecast = forecast_tax_over(
        [(each.tallies[BASE], _without_base(each.tallies)) for each in runs],
        first.cheap_k,
        first.full_k,
    )
    found = join_tax([each.findings for each in runs], forecast)
    write_json(out / "seeds.json", found)
    write_atomic(out / "seeds.md", seeds_markdown(found).encode())
    return found


def seeds_markdown(found: TaxOverSeeds) -> str:
    """The tables over seeds and the forecast, to be quoted."""
    tables = [f"## {title}\n\n{markdown(shown)}" for title, shown in over_seeds_tables(found)]
    return "\n".join([*tables, forecast_sentence(found.forecast), ""])


def _without_base(tallies: dict[str, dict[str, Tally]]) -> dict[str, dict[str, Tally]]:
    return {name: each for name, each in tallies.items() if name != BASE}


def _read(path: Path, watch: Watch) -> _Measured:
    if (path / "tax.json").is_file():
        found = read_json(path / "tax.json", Comparison).findings
        files = {each.stem: each for each in (path / "tallies").glob("*.csv")}
        return _Measured(found, {name: read_tallies(each) for name, each in files.items()})
    if not (path / "recipe.toml").is_file():
        raise DataError(
            "neither a run folder nor the output of `pivotune tax`",
            where=str(path),
            expected="a folder with recipe.toml or tax.json",
        )
    run = Run(RunFolder(path, load_recipe(path / "recipe.toml")), watch)
    tallies, findings = read_run_tallies(run), read_tax(run)
    if tallies is None or findings is None:
        raise DataError(
            "this run has not measured a tax",
            where=str(path),
            fix=f"pivotune run --run {path} tax.rollouts=64",
        )
    return _Measured(findings, tallies, run.recipe.seed)
