"""Parts of several runs, worked off here one by one, or by processes of their own at once.

    base      what the policies of a run share, and the base's own figures
    METHOD    one method, trained and measured                                 after the base
    report    the whole run again: everything is found finished, but the page  after all methods

A process is our own command line on a run folder. What it says is shown behind the part's name
and kept in `logs/PART.log`; a part that failed holds up only those that need it.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from pivotune.core.errors import PivotuneError
from pivotune.core.store import locked
from pivotune.pipeline.flow import run_stages
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run import Run, Watch
from pivotune.pipeline.run_folder import RunFolder

_SHOWN = 15
"""Last lines of a failed part's log that are shown."""


class Part(msgspec.Struct, frozen=True):
    """A piece of a run. `only` is its policy, empty for the whole; `after` names what it needs."""

    folder: Path
    recipe: Recipe
    command: str
    only: str = ""
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.folder.name} {self.only or 'report'}"


def run_parts(parts: Sequence[Part], jobs: int, watch: Watch) -> None:
    """Work off all parts, `jobs` at once; parts stand behind those that they need.

    Raises `PivotuneError` when all that could run has ended and some of it failed.
    """
    if jobs > 1:
        _Processes(parts, watch).run(jobs)
        return
    for part in parts:
        only = frozenset([part.only]) if part.only else None
        run = Run(RunFolder(part.folder, part.recipe), watch, only)
        run_stages(run, _last_stage(part))


def _last_stage(part: Part) -> str:
    if part.command == "run":
        return "recovery" if part.only else "report"
    return part.command


class _Processes:
    """The child processes of a study while it lasts."""

    def __init__(self, parts: Sequence[Part], watch: Watch) -> None:
        self._waiting = list(parts)
        self._watch = watch
        self._finished: set[str] = set()
        self._failed: list[str] = []
        self._alive: list[subprocess.Popen[str]] = []
        for part in parts:
            RunFolder(part.folder, part.recipe)  # children find their recipe there

    def run(self, jobs: int) -> None:
        with ThreadPoolExecutor(jobs) as pool:
            try:
                self._work_off(pool, jobs)
            except BaseException:
                for process in self._alive:
                    process.terminate()
                raise
        if self._failed or self._waiting:
            raise PivotuneError(
                f"{len(self._failed)} parts failed",
                got=", ".join(self._failed),
                fix="see what they said above or in their logs, mend it and run the same command "
                "again: finished parts are kept",
            )

    def _work_off(self, pool: ThreadPoolExecutor, jobs: int) -> None:
        running: dict[Future[bool], Part] = {}
        while True:
            for part in self._ready()[: jobs - len(running)]:
                self._waiting.remove(part)
                running[pool.submit(self._run_part, part)] = part
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                part = running.pop(future)
                if future.result():
                    self._finished.add(part.name)
                else:
                    self._failed.append(part.name)

    def _ready(self) -> list[Part]:
        return [part for part in self._waiting if self._finished.issuperset(part.after)]

    def _run_part(self, part: Part) -> bool:
        """One child process; whether it ended well."""
        log = part.folder / "logs" / f"{part.only or 'report'}.log"
        log.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pivotune.cli.main", part.command, "--run"]
        command += [str(part.folder), *(("--only", part.only) if part.only else ())]
        said: list[str] = []
        # The child inherits the lock: where one outlived a killed study, a new one waits for it.
        with locked(log.with_suffix(".lock")) as lock, log.open("a", encoding="utf-8") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                pass_fds=(lock,) if sys.platform != "win32" else (),
            )
            self._alive.append(process)
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                file.flush()
                said.append(line.rstrip())
                self._watch.say(f"[{part.name}] {said[-1]}")
            code = process.wait()
            self._alive.remove(process)
        if code:
            self._watch.say(f"[{part.name}] failed with exit code {code}; the end of {log}:")
            for line in said[-_SHOWN:]:
                self._watch.say(f"  {line}")
        return code == 0
