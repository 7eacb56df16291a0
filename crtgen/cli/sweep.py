"""``crtgen sweep``: measures models on boards with all combinations of options, into a store."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from crtgen.base import files
from crtgen.base.errors import CrtgenError
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, Output, guarded, log, note, table
from crtgen.lab.html import render_sweep, require_charts
from crtgen.lab.sweep.changes import Changes, compare
from crtgen.lab.sweep.export import check_export, export
from crtgen.lab.sweep.job import Outcome
from crtgen.lab.sweep.matrix import SWEEP, read_sweep
from crtgen.lab.sweep.run import Watch, WorkerPool, run_sweep
from crtgen.lab.sweep.store import STORE, JobStore, SweepInfo
from crtgen.lab.sweep.work import Task

__all__ = ["command"]

# Jobs that are printed one by one; more are for tables and pages.
_SHOWN = 50

_FIGURES = {
    "instructions": "instructions",
    "flash_bytes": "flash",
    "ram_bytes": "RAM",
    "stack_bytes": "stack",
}

Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|FILE", help="Use the workers of this Dask scheduler; default: this computer."
    ),
]


def command(
    sweep: Annotated[Path, typer.Argument(help="The matrix of models, boards and options.")] = Path(SWEEP),
    store: Annotated[Path, typer.Option(help="The store of results.")] = Path(STORE),
    scheduler: Scheduler = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of this computer; default: one per core.")
    ] = None,
    hardware_map: options.HardwareMap = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed jobs again.")] = False,
    export_to: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write a table: .parquet or .csv.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page: figures, what changed, what failed.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure every combination of models, boards and options.

    What is known is not measured again, and an interrupted sweep continues where it was. Jobs run on all
    cores of this computer, or on the workers of a Dask cluster.
    """
    with guarded(as_json, debug) as out:
        if export_to:
            check_export(export_to)
        if report:
            require_charts()
            files.check_writable(report)
        found = read_sweep(sweep)
        place = WorkerPool(scheduler, workers or os.cpu_count() or 1, hardware_map)
        with JobStore(store) as db:
            watch = _Live()
            with watch.progress, _goes_on(store):
                info = run_sweep(found, db, place, retry_failed=retry_failed, watch=watch)
            if export_to:
                export(db.rows(info), export_to)
            before = db.before(info)
            changes = compare(db.rows(before), list(db.rows(info))) if before else None
            if report:
                files.write(report, render_sweep(info, list(db.rows(info)), before, changes).encode())
            _result(out, db, info, changes)


@contextmanager
def _goes_on(store: Path) -> Iterator[None]:
    # Somebody who interrupts a sweep is told that nothing is lost.
    try:
        yield
    except KeyboardInterrupt:
        note(f"what is done is in {store}: start the same command again, and it goes on")
        raise


class _Live(Watch):
    """Shows a sweep's progress: a changing line on a terminal, failures as they come."""

    def __init__(self) -> None:
        columns = (
            BarColumn(bar_width=30),
            TextColumn("{task.completed:,} of {task.total:,} jobs, {task.fields[failed]:,} failed"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=log, transient=True, disable=not log.is_terminal)
        self._failed = self._done = 0
        self._start = 0.0

    def begun(self, counts: Mapping[str, int]) -> None:
        known, total = counts["done"] + counts["failed"], sum(counts.values())
        self._failed = counts["failed"]
        self._task = self.progress.add_task("", total=total, completed=known, failed=self._failed, rate="")
        if known:
            note(f"{known:,} of {total:,} jobs are known already")

    def running(self, dashboard: str) -> None:
        self._start = time.monotonic()
        if dashboard:
            note(f"Dask's dashboard: {dashboard}")

    def finished(self, outcomes: Sequence[tuple[Task, Outcome]]) -> None:
        for task, outcome in outcomes:
            if outcome.error:
                self._failed += 1
                job = task.job
                note(f"failed: {job.model} on {job.board}, {job.options.label()}: {outcome.message}")
        self._done += len(outcomes)
        rate = 60 * self._done / (time.monotonic() - self._start)
        self.progress.update(
            self._task, advance=len(outcomes), failed=self._failed, rate=f"{rate:,.1f} a minute"
        )


def _result(out: Output, store: JobStore, sweep: SweepInfo, changes: Changes | None) -> None:
    # Prints what the store holds; if jobs failed, the command fails once.
    counts = store.counts(sweep)
    data: dict[str, Any] = {"store": str(store.path), "sweep": sweep.number, **counts}
    if out.as_json:
        data["jobs"] = [asdict(row) for row in store.rows(sweep)]
        data["changes"] = changes.to_dict() if changes else None
    out.result(data, lambda console: _print(console, store, sweep, changes))
    if counts["failed"]:
        raise typer.Exit(CrtgenError.exit_code)


def _print(console: Console, store: JobStore, sweep: SweepInfo, changes: Changes | None) -> None:
    counts = store.counts(sweep)
    total = sum(counts.values())
    if total <= _SHOWN:
        rows = table("model", "board", "options", *_FIGURES.values(), right=tuple(_FIGURES.values()))
        for row in store.rows(sweep):
            numbers = (row.figures.get(metric) for metric in _FIGURES)
            cells = ("" if n is None else f"{n:,}" for n in numbers)
            rows.add_row(*row.cell, *cells) if row.state == "done" else rows.add_row(*row.cell, row.error)
        console.print(rows)
    for change in changes.changed if changes else ():
        console.print(str(change))
    failed = f", {counts['failed']:,} failed: --retry-failed runs them again" if counts["failed"] else ""
    console.print(f"{total:,} jobs in {store.path}{failed}")
