"""A lock per board, held by one process of this computer: others wait instead of fighting."""

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crtgen.errors import LinkTimeoutError

__all__ = ["board_lock"]

_INTERVAL = 0.05


@contextmanager
def board_lock(key: str, timeout: float = 600.0) -> Iterator[None]:
    """Hold the lock of the board that ``key`` names. It ends with the process, however that ends.

    Raises ``LinkTimeoutError`` after ``timeout`` seconds, naming the process that has it.
    """
    name = re.sub(r"\W+", "-", key).strip("-")
    directory = Path(tempfile.gettempdir()) / f"crtgen-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    with (directory / f"{name}.lock").open("a+", encoding="utf-8") as file:
        deadline = time.monotonic() + timeout
        while not _take(file.fileno()):
            if time.monotonic() > deadline:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise LinkTimeoutError(
                    f"process {holder} has used the board for {timeout:g} s",
                    where=key,
                    hint="wait, or end it",
                )
            time.sleep(_INTERVAL)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
