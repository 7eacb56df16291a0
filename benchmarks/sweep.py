"""What the engine of sweeps costs: ``python benchmarks/sweep.py wait [JOBS]``, ``jobs SWEEP.toml [ROUNDS]``.

``wait`` runs so many jobs that do nothing but wait, with two workers: what each of them costs beside its
wait, and the memory of the scheduler, which is in this process. ``jobs`` runs a sweep with one and with two
workers in turn, each time into a new store. Beside the time it prints what part of it the workers were at
work, the CPU time of all processes, and that of the engine, which is in this one: on a computer that others
use as well, only those and ratios within a round mean something.
"""

import argparse
import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path

from crtgen.base.temporary import TemporaryFolder
from crtgen.lab.sweep.job import Job, Outcome
from crtgen.lab.sweep.matrix import Sweep, read_sweep
from crtgen.lab.sweep.run import WorkerPool, run_sweep
from crtgen.lab.sweep.store import JobStore
from crtgen.lab.sweep.work import Task

WAIT = 0.02
SOURCE = "s" * 64


def _wait(task: Task, contents: Mapping[str, bytes]) -> Outcome:
    time.sleep(WAIT)
    return Outcome({"instructions": 1}, seconds=WAIT)


def wait(count: int) -> None:
    """Jobs that wait."""
    for jobs in sorted({count // 10, count}):
        made = tuple(Job(f"m{n}.tflite", SOURCE, "host") for n in range(jobs))
        with TemporaryFolder() as folder, JobStore(folder / "s.db") as store:
            sweep = Sweep(Path("wait"), made, {SOURCE: bytes(100_000)})
            first, _ = _timed(sweep, store, 2, _wait)
            again, _ = _timed(sweep, store, 2, _wait)
            size = os.path.getsize(store.path)
        each = (first - jobs * WAIT / 2) / jobs
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{jobs:,} jobs of {WAIT * 1e3:g} ms: {first:.1f} s, {each * 1e3:.2f} ms each beside the wait;"
            f" again {again:.2f} s; {memory:.0f} MB; store {size / jobs:,.0f} bytes a job",
            flush=True,
        )


def jobs(file: Path, rounds: int) -> None:
    """A real sweep."""
    sweep = read_sweep(file)
    for number in range(1, rounds + 1):
        walls = {}
        for workers in (1, 2):
            cpu = _cpu()
            with TemporaryFolder() as folder, JobStore(folder / "s.db") as store:
                walls[workers], busy = _timed(sweep, store, workers)
            own, everything = (after - before for after, before in zip(_cpu(), cpu, strict=True))
            print(
                f"round {number}, {workers} workers, {len(sweep.jobs)} jobs: {walls[workers]:.1f} s,"
                f" at work {busy:.1%}; {everything:.1f} s of CPU, {own:.2f} s of them the engine's",
                flush=True,
            )
        print(f"round {number}: {walls[1] / walls[2]:.2f} times as fast", flush=True)


def _cpu() -> tuple[float, float]:
    """CPU seconds of this process, and of it with all processes that have ended."""
    mine, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = mine.ru_utime + mine.ru_stime
    return own, own + others.ru_utime + others.ru_stime


def _timed(sweep: Sweep, store: JobStore, workers: int, function: object = None) -> tuple[float, float]:
    """Seconds, and the part of them that the workers were at work."""
    start = time.perf_counter()
    info = run_sweep(sweep, store, WorkerPool(workers=workers), function=function)  # type: ignore[arg-type]
    seconds = time.perf_counter() - start
    return seconds, sum(row.seconds for row in store.rows(info)) / (workers * seconds)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("wait", "jobs"))
    parser.add_argument("given", nargs="*")
    chosen = parser.parse_args()
    if chosen.what == "wait":
        wait(int(chosen.given[0]) if chosen.given else 10_000)
    else:
        jobs(Path(chosen.given[0]), int(chosen.given[1]) if len(chosen.given) > 1 else 3)


if __name__ == "__main__":
    main()
