"""Gives jobs to the workers of a Dask cluster, and collects their outcomes.

At any time only a few jobs are with the cluster, two for each worker, so that the scheduler's memory does not
grow with the sweep, and a worker that dies takes hardly another job with it. Jobs that need a board of their
own kind wait in a separate queue, so that a slow board delays no others.
"""

import time
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from crtgen.base.errors import LinkClosedError, LinkTimeoutError
from crtgen.lab.sweep.farm import resource
from crtgen.lab.sweep.job import Outcome, failure
from crtgen.lab.sweep.work import Task, perform

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["PATIENCE", "Done", "run_tasks"]

PATIENCE = 120.0
"""Seconds for which a job waits where no worker can run it."""

# Seconds between two looks at which workers there are.
_LOOK = 1.0

# Jobs for each thread of the workers that are with the cluster.
_AHEAD = 2

# The lane of jobs whose workers died: one at a time, so that it is clear which of them was to blame.
_ALONE = "alone"

Function = Callable[[Task, Mapping[str, bytes]], Outcome]
Done = Callable[[Sequence[tuple[Task, Outcome]]], None]
Workers = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True, eq=False)
class _Attempt:
    """A task in progress: the workers that ``tried`` it, where it may go next, and its last outcome."""

    task: Task
    lane: str
    tried: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    """Addresses of workers; empty for any."""
    number: int = 0
    last: Outcome | None = None
    stranded: float | None = None
    """Since when no worker can run it."""

    def fitting(self, workers: Workers) -> frozenset[str]:
        # The addresses of those who can run it.
        board = self.task.board
        return frozenset(
            address
            for address, worker in workers.items()
            if str(worker["name"]) not in self.tried and (not board or resource(board) in worker["resources"])
        )


@dataclass(slots=True, eq=False)
class _SweepRun:
    client: "Client"
    contents: Mapping[str, bytes]
    function: Function | None
    lanes: dict[str, deque[_Attempt]]
    workers: Workers = field(default_factory=dict)
    files: "dict[str, Future]" = field(default_factory=dict)
    running: "dict[Future, _Attempt]" = field(default_factory=dict)
    ended: "Queue[Future]" = field(default_factory=Queue)
    looked: float = -_LOOK

    def is_over(self) -> bool:
        return not self.running and not any(self.lanes.values())

    def look(self) -> Iterator[tuple[Task, Outcome]]:
        # See which workers there are; what none of them can run any more is given up after a while.
        if time.monotonic() - self.looked < _LOOK:
            return
        try:
            self.workers = self.client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, RuntimeError, ValueError) as error:
            raise _gone() from error
        self.looked = time.monotonic()
        for future, attempt in list(self.running.items()):
            if not self._is_stranded(future, attempt):
                continue
            self._drop(future)
            lost = _nobody(attempt.task.board)
            if not attempt.task.board:
                raise lost
            yield attempt.task, attempt.last or failure(lost)
            waiting = self.lanes[attempt.lane]
            yield from ((waiting.popleft().task, failure(lost)) for _ in range(len(waiting)))

    def _is_stranded(self, future: "Future", attempt: _Attempt) -> bool:
        # True if no worker could run the task for too long. If only other workers can run it, it goes to
        # them.
        fitting = attempt.fitting(self.workers)
        if attempt.allowed and fitting and not attempt.allowed & fitting:
            self._drop(future)
            self._submit(replace(attempt, allowed=fitting))
        if fitting:
            attempt.stranded = None
            return False
        attempt.stranded = attempt.stranded or self.looked
        return self.looked - attempt.stranded >= PATIENCE

    def _drop(self, future: "Future") -> None:
        del self.running[future]
        future.cancel()

    def fill(self) -> None:
        # Give the cluster as much as it needs to be busy.
        busy = dict.fromkeys(self.lanes, 0)
        for attempt in self.running.values():
            busy[attempt.lane] += 1
        for lane, waiting in self.lanes.items():
            for _ in range(min(self._room(lane) - busy[lane], len(waiting))):
                self._submit(waiting.popleft())

    def _room(self, lane: str) -> int:
        # Number of further jobs of a lane that may be with the cluster.
        if lane == _ALONE:
            return 1
        able = (w for w in self.workers.values() if not lane or resource(lane) in w["resources"])
        return max(1, _AHEAD * sum(int(worker["nthreads"]) for worker in able))

    def _submit(self, attempt: _Attempt) -> None:
        task = attempt.task
        attempt.number += 1
        names = task.job.contents
        future = self.client.submit(
            partial(_run, self.function),
            task,
            names,
            *map(self._file, names),
            key=f"crtgen-{task.digest[:32]}-{attempt.number}",
            pure=False,
            workers=sorted(attempt.allowed) or None,
            resources={resource(task.board): 1} if task.board else None,
        )
        self.running[future] = attempt
        future.add_done_callback(self.ended.put)

    def _file(self, digest: str) -> "Future":
        # A file, which travels once to each worker; the scheduler can give it out again if they die.
        if digest not in self.files:
            self.files[digest] = self.client.submit(
                _same, self.contents[digest], key=f"crtgen-file-{digest[:32]}", pure=False
            )
        return self.files[digest]

    def collect(self) -> Iterator[tuple[Task, Outcome]]:
        # The outcomes of what has ended; wait a moment if nothing has.
        ended = [f for f in self._ended() if f in self.running]
        good = [future for future in ended if future.status == "finished"]
        results = dict(zip(good, self._gathered(good), strict=True))
        for future in ended:
            attempt = self.running.pop(future)
            outcome = results[future] if future in results else self._wrong(future, attempt)
            if outcome is not None and not self._goes_elsewhere(attempt, outcome):
                yield attempt.task, outcome

    def _gathered(self, futures: "Sequence[Future]") -> Sequence[Outcome]:
        try:
            return self.client.gather(futures)  # type: ignore[no-any-return]
        except (CancelledError, OSError, RuntimeError) as error:
            raise _gone() from error

    def _ended(self) -> "list[Future]":
        found = []
        try:
            found.append(self.ended.get(timeout=_LOOK))
            while True:
                found.append(self.ended.get_nowait())
        except Empty:
            return list(dict.fromkeys(found))

    def _wrong(self, future: "Future", attempt: _Attempt) -> Outcome | None:
        # Turns Dask's failure of a task into an outcome; None if the task is tried again, alone.
        from distributed.scheduler import KilledWorker

        error = future.exception() if future.status == "error" else None
        if error is None:
            raise _gone()
        if not isinstance(error, KilledWorker):
            return failure(error)
        if not attempt.task.board and attempt.lane != _ALONE:
            self.lanes[_ALONE].append(replace(attempt, lane=_ALONE))
            return None
        name = type(error).__name__
        message = f"workers died while they ran it: {error.allowed_failures + 1} in a row"
        return Outcome(error=name, message=message, log=str(error), worker=str(error.last_worker.name))

    def _goes_elsewhere(self, attempt: _Attempt, outcome: Outcome) -> bool:
        # True if another board of this kind should try a job that failed on the way to its board.
        if not attempt.task.board or not outcome.is_elsewhere_better:
            return False
        more = replace(attempt, tried=attempt.tried | {outcome.worker}, last=outcome, stranded=None)
        others = more.fitting(self.workers)
        if others:
            self._submit(replace(more, allowed=others))
        return bool(others)


def run_tasks(
    client: "Client",
    tasks: Iterable[Task],
    contents: Mapping[str, bytes],
    done: Done,
    function: Function | None = None,
) -> None:
    """Run every task once and pass on the outcomes in batches.

    ``contents`` are the files of jobs by digest. ``function`` replaces ``perform``. Raises
    ``LinkClosedError`` if the scheduler goes away.
    """
    lanes: dict[str, deque[_Attempt]] = {_ALONE: deque()}
    for task in tasks:
        lanes.setdefault(task.board, deque()).append(_Attempt(task, task.board))
    run = _SweepRun(client, contents, function, lanes)
    while not run.is_over():
        given_up = list(run.look())
        run.fill()
        if outcomes := [*given_up, *run.collect()]:
            done(outcomes)


def _run(function: Function | None, task: Task, names: Sequence[str], *contents: bytes) -> Outcome:
    from distributed import get_worker

    from crtgen.lab.sweep.bench import unit_of_worker

    worker = get_worker()
    given = dict(zip(names, contents, strict=True))
    if function is not None:
        outcome = function(task, given)
    else:
        outcome = perform(task, given, unit_of_worker(worker) if task.board else None)
    return replace(outcome, worker=str(worker.name))


def _same(data: bytes) -> bytes:
    return data


def _gone() -> LinkClosedError:
    return LinkClosedError("the scheduler is gone", hint="start the same command again: it goes on")


def _nobody(board: str) -> LinkTimeoutError:
    what = f"no worker has a board {board}" if board else "there is no worker"
    hint = "start crtgen worker where the board is connected" if board else "start one: then this goes on"
    return LinkTimeoutError(f"{what}, for {PATIENCE:g} s", hint=hint)
