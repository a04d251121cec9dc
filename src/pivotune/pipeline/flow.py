"""The flow of one run on one page: which stage follows which.

    import -> (warm start) -> plan -> profile -> select -> train -> evaluate -> (tax) -> (recovery)
    -> report

Every stage reads and writes the run folder only, is skipped when it is finished, and goes on
where it stopped when it was killed.
"""

from collections.abc import Callable, Collection
from copy import copy

import msgspec

from pivotune.core.errors import NoPivots
from pivotune.pipeline.evaluation import evaluate
from pivotune.pipeline.plan import plan
from pivotune.pipeline.profiling import profile_candidates, select
from pivotune.pipeline.recipe import RecoveryConfig, TaxConfig
from pivotune.pipeline.recovery import measure_recovery
from pivotune.pipeline.reporting import report
from pivotune.pipeline.run import Run
from pivotune.pipeline.tax import measure_tax
from pivotune.pipeline.traces import import_traces
from pivotune.pipeline.training import train_methods
from pivotune.pipeline.warm_start import warm_start

STAGES: dict[str, Callable[[Run], None]] = {
    "import": import_traces,
    "warm": warm_start,
    "plan": plan,
    "profile": profile_candidates,
    "select": select,
    "train": train_methods,
    "evaluate": evaluate,
    "tax": measure_tax,
    "recovery": measure_recovery,
    "report": report,
}


def run_stages(run: Run, last: str = "report", *, skip: Collection[str] = ()) -> None:
    """Every stage up to and including `last`, but those in `skip`.

    Without pivots the report on the profile is written, and then `NoPivots` is raised.
    """
    for name, stage in STAGES.items():
        try:
            if name not in skip:
                stage(run)
        except NoPivots:
            report(profiled_only(run))
            raise
        if name == last:
            return


def profiled_only(run: Run) -> Run:
    """The run as far as it came without training anything."""
    folder = copy(run.folder)
    folder.recipe = msgspec.structs.replace(
        run.recipe,
        methods={},
        evaluate=msgspec.structs.replace(run.recipe.evaluate, episodes=0, items=0),
        tax=TaxConfig(),
        recovery=RecoveryConfig(),
    )
    return Run(folder, run.watch)
