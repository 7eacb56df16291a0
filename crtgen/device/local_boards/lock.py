"""A lock per board: processes of this computer wait for each other."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from crtgen.base import files
from crtgen.base.errors import LinkTimeoutError

__all__ = ["board_lock"]

_INTERVAL = 0.05
# Characters of a key that are in the name of its file.
_LONGEST = 200


@contextmanager
def board_lock(key: str, timeout: float = 600.0) -> Iterator[None]:
    """Hold the lock of the board named ``key`` within the block; it is released at the latest when the
    process ends.

    Raises ``LinkTimeoutError`` after ``timeout`` seconds, naming the process that holds it, and
    ``UsageError`` if other users could tamper with the lock.
    """
    name = re.sub(r"[^A-Za-z0-9_]+", "-", key).strip("-")[:_LONGEST]
    with files.opened_lock(files.private_directory("crtgen") / f"{name}.lock") as file:
        deadline = time.monotonic() + timeout
        while not files.take(file.fileno(), wait=False):
            if time.monotonic() > deadline:
                holder = file.read(32).strip() or "unknown"
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
