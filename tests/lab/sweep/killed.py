"""A sweep of jobs that cost nothing, as a program that can be killed: COUNT STORE."""

import sys
from pathlib import Path

from crtgen.lab.sweep.run import WorkerPool, run_sweep
from crtgen.lab.sweep.store import JobStore
from tests.lab.sweep.jobs import cluster, figures, sweep_of


def main(count: int, store: Path) -> None:
    with cluster() as made, JobStore(store) as db:
        run_sweep(sweep_of(count), db, WorkerPool(made.scheduler_address), function=figures)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
