"""Temporary directories that are removed at the end or, after a crash, by the next run of crtgen."""

import os
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from crtgen.base import files

__all__ = ["TemporaryFolder"]

_PREFIX = "crtgen-work-"
# Windows has no users of this kind: their directories all belong to user 0.
_USER = os.getuid() if hasattr(os, "getuid") else 0
# Seconds for which a directory without a lock may just be being made.
_YOUNG = 60.0


class TemporaryFolder(AbstractContextManager[Path]):
    """A directory that belongs to this process, at ``path``, until ``close`` or the end of the object.

    The owner holds a lock on it, which ends with the owner, so a directory that can be locked is abandoned.
    As a context manager it gives its path.
    """

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        self.close = weakref.finalize(self, _remove, self.path, files.hold(self.path, wait=False))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exc: object) -> None:
        self.close()


def _remove(path: Path, lock: int | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    # Remove what dead processes of this user left. What cannot be removed is left to the system.
    for path in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            state = path.lstat()
            is_old = time.time() - state.st_mtime > _YOUNG
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != _USER or not is_old:
                continue
            lock = files.hold(path, wait=False)
            if lock is not None:
                _remove(path, lock)
