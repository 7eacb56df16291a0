"""What a worker has on its bench, as Dask's workers keep it; only where the package distributed is there."""

from distributed import Worker, WorkerPlugin

from crtgen.attached import Unit

__all__ = ["Bench", "unit_of_worker"]

_NAME = "crtgen-bench"


class Bench(WorkerPlugin):  # type: ignore[misc]  # Dask's has no types
    """A board that jobs of this worker run on."""

    def __init__(self, unit: Unit) -> None:
        self.name = _NAME
        self.unit = unit


def unit_of_worker(worker: Worker) -> Unit | None:
    """The board of a worker; None if it has none."""
    found = worker.plugins.get(_NAME)
    return found.unit if isinstance(found, Bench) else None
