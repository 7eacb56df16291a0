"""Files that were dropped on the page, each drop in a folder of its own.

A pipeline names its network and a folder of clips names its labels, so names must be kept. They come from the
browser and become a path only after the check that names in archives must also pass: ``files.relative_path``.
"""

import secrets
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from crtgen.base import files
from crtgen.base.errors import UsageError

__all__ = ["MOST_BYTES", "Drop", "Drops"]

MOST_BYTES = 64 << 20
"""Bytes of one dropped file."""

_MOST_IN_ALL = 512 << 20
_MOST_FILES, _MOST_DROPS, _DEEPEST = 20_000, 16, 3


@dataclass(slots=True)
class Drop:
    # Files by the names under which they were dropped. ``name`` is the drop's own, hard to guess.

    name: str
    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    nbytes: int = 0
    project: Path | None = None
    """The last project that was generated."""

    def file(self, name: object) -> Path:
        # Return a file of the drop, or the folder of several that were dropped with it.
        if isinstance(name, str) and name in self.files:
            return self.files[name]
        if isinstance(name, str) and any(known.startswith(f"{name}/") for known in self.files):
            return self.folder / "in" / name
        raise UsageError(f"no file {name!r} was dropped", hint="drop it on the page again")


class Drops:
    # All drops of a page below ``folder``; the oldest one goes when there are too many.

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drops: OrderedDict[str, Drop] = OrderedDict()
        self._lock = Lock()

    def __getitem__(self, name: object) -> Drop:
        drop = self._drops.get(name) if isinstance(name, str) else None
        if drop is None:
            raise UsageError("these files are not here any more", hint="drop them on the page again")
        return drop

    def add(self, name: str, path: str, size: int, read: Callable[[int], bytes]) -> Drop:
        """Store ``size`` bytes as the file ``path`` of a drop, or of a new one if ``name`` is empty.

        Raises ``UsageError`` for a path that leads elsewhere, and if the limits are exceeded.
        """
        try:
            relative = files.relative_path(path)
        except ValueError as error:
            raise UsageError(f"the name cannot be used: {error}", hint="rename the file") from error
        parts = relative.split("/")
        if len(parts) > _DEEPEST or any(part.startswith(".") for part in parts):
            raise UsageError(f"{path!r} is hidden, or too deep in folders", hint="drop it by itself")
        with self._lock:
            drop = self[name] if name else self._new()
            if len(drop.files) >= _MOST_FILES or drop.nbytes + size > _MOST_IN_ALL:
                raise UsageError("these files are too many or too large", hint="drop a part of them")
            drop.nbytes += size
        (target,) = files.inside(drop.folder / "in", [relative]).values()
        files.make_directory(target.parent)
        files.write(target, _chunks(size, read), durable=False)
        drop.files[relative] = target
        return drop

    def _new(self) -> Drop:
        while len(self._drops) >= _MOST_DROPS or sum(d.nbytes for d in self._drops.values()) > _MOST_IN_ALL:
            _, old = self._drops.popitem(last=False)
            shutil.rmtree(old.folder, ignore_errors=True)
        name = secrets.token_hex(8)
        drop = self._drops[name] = Drop(name, self._folder / name)
        files.make_directory(drop.folder)
        return drop

    def take(self, path: Path) -> Drop:
        # Return a drop of a file that stays where it is: a pipeline's network is beside it.
        with self._lock:
            drop = self._new()
        drop.files[path.name] = path
        return drop


def _chunks(size: int, read: Callable[[int], bytes]) -> Iterator[bytes]:
    while size:
        chunk = read(min(size, 1 << 20))
        size -= len(chunk)
        yield chunk
