"""The build folder of a project, trusted only if this user's last build left it as it is.

CMake and Ninja execute its contents: ``CMakeCache.txt`` may name a file to include, ``build.ninja`` has
command lines, object files are linked. A clone may bring all of these, even into a project that is the user's
own, since git overwrites ignored files. So each build ends with a mark (``crtgen.base.trust``) over every
file in the folder, and a folder whose mark does not fit is removed: the build then starts from nothing.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crtgen.base import files, trust
from crtgen.base.errors import UsageError

__all__ = ["own_build"]

_MARK = "crtgen.mark"


@contextmanager
def own_build(root: Path) -> Iterator[Path]:
    """Prepare the build folder of a project: empty it unless it is as the last build left it, and mark it
    afterwards.

    Raises ``UsageError`` if the folder is a link.
    """
    build = root / "build"
    if build.is_symlink():
        hint = "remove it, and crtgen makes a folder"
        raise UsageError("the path is a link, which could lead elsewhere", where=str(build), hint=hint)
    seal = trust.Seal(build)
    if build.is_dir() and not _is_own(build, seal):
        _empty(build)
    try:
        yield build
    finally:
        if build.is_dir() and (mark := seal.mark(_content(build))):
            with suppress(UsageError):  # a full disk: the next build starts from nothing
                files.write(build / _MARK, mark.encode(), durable=False)


def _is_own(build: Path, seal: trust.Seal) -> bool:
    if trust.everything():
        return True
    mark = build / _MARK
    if mark.is_symlink() or not mark.is_file():
        return False
    return seal.fits(_content(build), files.read_start(mark, 64).decode(errors="replace"))


def _empty(build: Path) -> None:
    try:
        shutil.rmtree(build)  # which follows no links
    except OSError as error:
        hint = "remove it yourself"
        raise UsageError(
            f"the path cannot be removed: {error.strerror}", where=str(build), hint=hint
        ) from error


def _content(build: Path) -> Iterator[bytes]:
    # Path and content of everything below, in an order that does not depend on the file system.
    for folder, folders, names in os.walk(build):
        folders.sort()
        place = Path(folder)
        for name in sorted(names + [each for each in folders if (place / each).is_symlink()]):
            path = place / name
            if path == build / _MARK:
                continue
            yield os.fsencode(path.relative_to(build))
            yield _digest(path)


def _digest(path: Path) -> bytes:
    if path.is_symlink():
        return b"link " + os.fsencode(path.readlink())
    if not path.is_file():  # a pipe is nobody's build
        return b"other"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
