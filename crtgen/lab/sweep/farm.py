"""Workers and their boards in Dask's terms: one worker process for each board."""

import asyncio
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crtgen.base.errors import LinkTimeoutError, UsageError
from crtgen.device.local_boards import LocalBoard

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["connected", "is_clear", "local_cluster", "resource", "serve"]

# Seconds for which a scheduler is tried to be reached.
_START = 60.0

_SAFE_PATH = "PYTHONSAFEPATH"
# Dask's errors are raised or stored; at its end it would log tracebacks of closed connections.
_LOG_LEVEL = logging.CRITICAL


def resource(board: str) -> str:
    """Return a board's name as a Dask resource, of which its worker has one."""
    return f"board.{board}"


def is_clear(unit: LocalBoard) -> bool:
    return len(unit.boards) == 1 and bool(unit.port)


def _worker_options(units: Sequence[LocalBoard], count: int) -> Iterator[dict[str, Any]]:
    # Options of one worker per board and of ``count`` without one, each with one thread.
    from crtgen.lab.sweep.bench import Bench

    common = {
        "nthreads": 1,
        "dashboard": False,
        "death_timeout": _START,
        "silence_logs": _LOG_LEVEL,
        "preload": ["crtgen.lab.sweep.bench"],
        "env": {_SAFE_PATH: ""},  # tools that a job starts have their own modules beside them
    }
    here = f"{socket.gethostname()}-{os.getpid()}"
    for unit in units:
        (board,) = unit.boards
        bench = {"resources": {resource(board): 1}, "plugins": (Bench(unit),)}
        yield {"name": f"{here}-{board}-{unit.key}", **common, **bench}
    for number in range(1, count + 1):
        yield {"name": f"{here}-{number}", **common}


def _distributed() -> Any:
    # The package, which is there with an extra only.
    try:
        import distributed
    except ImportError as error:
        hint = "pip install 'crtgen[sweep]'"
        raise UsageError("a sweep needs the package distributed", hint=hint) from error
    return distributed


@contextmanager
def _apart() -> Iterator[None]:
    # Workers import nothing from the folder where the sweep was started. Dask sets the variable in this
    # process, too, where it is not to stay.
    import dask

    before = os.environ.get(_SAFE_PATH)
    with dask.config.set({"distributed.nanny.pre-spawn-environ": {_SAFE_PATH: "1"}}):
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_SAFE_PATH, None)


@contextmanager
def local_cluster(workers: int, units: Sequence[LocalBoard] = ()) -> Iterator["Client"]:
    """Run a scheduler and workers on this computer within the context.

    Secret keys prevent other users of the computer from sending them code.
    """
    distributed = _distributed()
    with _apart():
        security = distributed.Security.temporary()
        here = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
        dashboard = {"dashboard": True, "dashboard_address": "127.0.0.1:0"}
        cluster = distributed.SpecCluster(
            scheduler={"cls": distributed.Scheduler, "options": {**here, **dashboard, "port": 0}},
            workers={
                options.pop("name"): {"cls": distributed.Nanny, "options": {**options, **here}}
                for options in _worker_options(units, workers)
            },
            security=security,
            silence_logs=_LOG_LEVEL,
        )
        with cluster, distributed.Client(cluster) as client:
            yield client


@contextmanager
def connected(scheduler: str) -> Iterator["Client"]:
    distributed = _distributed()
    try:
        client = distributed.Client(timeout=_START, **_place(scheduler))
    except (OSError, ValueError) as error:
        raise _unreachable(scheduler) from error
    with client:
        yield client


def _place(scheduler: str) -> dict[str, str]:
    # Arguments that tell Dask's classes where the scheduler is.
    if "://" in scheduler:
        return {"address": scheduler}
    if not Path(scheduler).is_file():
        hint = (
            "name an address, as tcp://computer:8786, or the file that dask scheduler --scheduler-file wrote"
        )
        raise UsageError("the address does not belong to a Dask scheduler", where=scheduler, hint=hint)
    return {"scheduler_file": scheduler}


def _unreachable(scheduler: str) -> LinkTimeoutError:
    hint = "start one with dask scheduler, and check its address"
    return LinkTimeoutError("no scheduler answers", where=scheduler, hint=hint)


def serve(scheduler: str, units: Sequence[LocalBoard], workers: int) -> None:
    """Run workers of a scheduler until it ends: one per board, and ``workers`` without a board."""
    logging.getLogger("distributed").setLevel(_LOG_LEVEL)
    distributed = _distributed()
    with _apart():
        asyncio.run(_serve(distributed, scheduler, units, workers))


async def _serve(distributed: Any, scheduler: str, units: Sequence[LocalBoard], workers: int) -> None:
    place = _place(scheduler)
    place = {"scheduler_ip": place["address"]} if "address" in place else place
    nannies = [distributed.Nanny(**place, **options) for options in _worker_options(units, workers)]
    async with AsyncExitStack() as stack:
        try:
            await asyncio.gather(*(stack.enter_async_context(nanny) for nanny in nannies))
        except (OSError, RuntimeError) as error:
            raise _unreachable(scheduler) from error
        await asyncio.gather(*(nanny.finished() for nanny in nannies))
