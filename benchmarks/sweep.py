"""What the engine of sweeps costs: ``python benchmarks/sweep.py wait [JOBS]``, ``jobs SWEEP.toml [ROUNDS]``.

``wait`` runs so many jobs that do nothing but wait, with two workers: what each of them costs beside its
wait, and the memory of the scheduler, which is in this process. ``jobs`` runs a sweep with one and with two
workers in turn, each time into a new store. Beside the time it prints what part of it the workers were at
work: on a computer that others use as well, only that and ratios within a round mean something.
"""

import argparse
import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path

from crtgen.sweep.job import Job, Outcome
from crtgen.sweep.matrix import Sweep, read_sweep
from crtgen.sweep.run import Place, run_sweep
from crtgen.sweep.store import Store
from crtgen.sweep.work import Task
from crtgen.temporary import TemporaryFolder

WAIT = 0.02
SOURCE = "s" * 64


def _wait(task: Task, contents: Mapping[str, bytes]) -> Outcome:
    time.sleep(WAIT)
    return Outcome({"instructions": 1}, seconds=WAIT)


def wait(count: int) -> None:
    """Jobs that wait."""
    for jobs in sorted({count // 10, count}):
        made = tuple(Job(f"m{n}.tflite", SOURCE, "host") for n in range(jobs))
        with TemporaryFolder() as folder, Store(folder / "s.db") as store:
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
            with TemporaryFolder() as folder, Store(folder / "s.db") as store:
                walls[workers], busy = _timed(sweep, store, workers)
            print(
                f"round {number}, {workers} workers: {walls[workers]:.1f} s, at work {busy:.1%}", flush=True
            )
        gain = walls[1] / walls[2]
        print(f"round {number}: {len(sweep.jobs)} jobs, {gain:.2f} times as fast, {gain / 2:.1%}", flush=True)


def _timed(sweep: Sweep, store: Store, workers: int, function: object = None) -> tuple[float, float]:
    """Seconds, and the part of them that the workers were at work."""
    start = time.perf_counter()
    info = run_sweep(sweep, store, Place(workers=workers), function=function)  # type: ignore[arg-type]
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
