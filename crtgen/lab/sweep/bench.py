"""Dask plugin that gives a worker its board. Imported only if the package distributed is installed."""

import signal

from distributed import Worker, WorkerPlugin

from crtgen.device.local_boards import LocalBoard

__all__ = ["Bench", "dask_setup", "unit_of_worker"]

_NAME = "crtgen-bench"


class Bench(WorkerPlugin):  # type: ignore[misc]  # Dask's has no types
    def __init__(self, unit: LocalBoard) -> None:
        self.name = _NAME
        self.unit = unit


def dask_setup(worker: Worker) -> None:
    """Called by Dask in the process of a worker.

    A keyboard interrupt reaches all processes; a worker ignores it, since the process that started it also
    ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def unit_of_worker(worker: Worker) -> LocalBoard | None:
    found = worker.plugins.get(_NAME)
    return found.unit if isinstance(found, Bench) else None
