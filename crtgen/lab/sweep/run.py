"""Runs a sweep, from its file to its rows; known results are not measured again."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crtgen.base.errors import LinkTimeoutError, UsageError
from crtgen.base.resources import code_digest
from crtgen.boards import find_board
from crtgen.device.local_boards import connected_units
from crtgen.lab.measure.targets import target_of
from crtgen.lab.sweep.address import tool_version, toolchain_text
from crtgen.lab.sweep.engine import PATIENCE, Function, run_tasks
from crtgen.lab.sweep.farm import connected, is_clear, local_cluster
from crtgen.lab.sweep.job import KIND, Job, Outcome
from crtgen.lab.sweep.matrix import Sweep
from crtgen.lab.sweep.store import JobStore, StoreEntry, SweepInfo
from crtgen.lab.sweep.work import Task

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Watch", "WorkerPool", "run_sweep"]


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Workers for jobs: those of ``scheduler``, or ``count`` processes on this computer.

    Local workers use the boards that are connected here; ``hardware_map`` lists them.
    """

    scheduler: str | None = None
    workers: int = 1
    hardware_map: Path | None = None


class Watch:
    def begun(self, counts: Mapping[str, int]) -> None:
        """Report how many jobs are waiting, done, and already failed."""

    def running(self, dashboard: str) -> None:
        """Report that workers are ready; ``dashboard`` is the address of Dask's page, or empty."""

    def finished(self, outcomes: Sequence[tuple[Task, Outcome]]) -> None: ...


def run_sweep(
    sweep: Sweep,
    store: JobStore,
    place: WorkerPool,
    *,
    retry_failed: bool = False,
    watch: Watch | None = None,
    function: Function | None = None,
) -> SweepInfo:
    """Run the jobs of a sweep that have no outcome in the store; with ``retry_failed``, also those that
    failed.

    ``function`` replaces ``perform`` in tests. Raises ``UsageError`` if workers differ in crtgen or tools,
    ``LinkError`` if the scheduler or all workers are gone; finished jobs are stored.
    """
    watch = watch or Watch()
    with ExitStack() as stack:
        there = stack.enter_context(connected(place.scheduler)) if place.scheduler else None
        tasks = _tasks(sweep.jobs, there)
        info = store.begin(sweep.path.name, list(map(_entry, tasks)))
        if retry_failed:
            store.retry(info)
        watch.begun(store.counts(info))
        waiting = store.waiting(info)
        left = [task for task in tasks if task.digest in waiting]
        if not left:
            return info
        client = there or stack.enter_context(_own_cluster(place, {task.board for task in left}))
        watch.running(str(client.dashboard_link or ""))

        def done(outcomes: Sequence[tuple[Task, Outcome]]) -> None:
            store.finish((task.digest, outcome) for task, outcome in outcomes)
            watch.finished(outcomes)

        run_tasks(client, left, sweep.contents, done, function)
    return info


def _own_cluster(place: WorkerPool, boards: set[str]) -> "AbstractContextManager[Client]":
    # Workers of this computer, some with boards that are wanted.
    units = connected_units(place.hardware_map) if boards - {""} else ()
    return local_cluster(place.workers, [u for u in units if is_clear(u) and u.boards[0] in boards])


def _tasks(jobs: Sequence[Job], client: "Client | None") -> list[Task]:
    # The jobs with their addresses, which the tools of the workers are a part of.
    boards = {name: find_board(name) for name in {job.board for job in jobs}}
    tools = [job.tools(boards[job.board]) for job in jobs]
    names = tuple(dict.fromkeys(name for listed in tools for name in listed))
    code, versions = _known(names) if client is None else _known_there(client, names)
    made = []
    for job, listed in zip(jobs, tools, strict=True):
        own = {name: versions[name] for name in listed}
        board = job.board if target_of(boards[job.board], job.site(boards[job.board])) == "board" else ""
        made.append(Task(job, job.digest(code, toolchain_text(own)), code, own, board))
    return made


def _known(tools: Sequence[str]) -> tuple[str, dict[str, str]]:
    # Versions of crtgen and of the tools of this computer.
    return code_digest(), {tool: tool_version(tool) for tool in tools}


def _known_there(client: "Client", tools: Sequence[str]) -> tuple[str, dict[str, str]]:
    # Versions of all workers, which must agree.
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        raise LinkTimeoutError(
            f"the scheduler has had no worker for {PATIENCE:g} s",
            hint="start some: crtgen worker, or dask worker --nthreads 1",
        ) from error
    found = client.run(_known, tools)
    (first, known), *others = found.items()
    for worker, other in others:
        if other != known:
            raise UsageError(
                f"the workers differ: {first} has {_said(known, other)}, {worker} has {_said(other, known)}",
                hint="install the same crtgen and tools on all of them, and start them again",
            )
    return known  # type: ignore[no-any-return]


def _said(mine: tuple[str, dict[str, str]], other: tuple[str, dict[str, str]]) -> str:
    # Differences between two sets of versions.
    ours, theirs = ({"crtgen": code, **versions} for code, versions in (mine, other))
    return "; ".join(f"{name} {text}" for name, text in ours.items() if theirs[name] != text)


def _entry(task: Task) -> StoreEntry:
    job = task.job
    return StoreEntry(
        digest=task.digest,
        kind=KIND,
        model=job.model,
        board=job.board,
        label=job.options.label(),
        source=job.source,
        settings=job.settings(),
        code=task.code,
        toolchain=toolchain_text(task.tools),
    )
