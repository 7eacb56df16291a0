"""File operations that must not lose or mix data: bounded reads, atomic writes, locks.

Only regular files are read, so that no read waits for ever, and no more of a file than the memory limit
allows. A file is written under a temporary name and then renamed, so that nobody sees an incomplete file.
Each system call goes through ``step``, which a test can make fail at the n-th call.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import IO

from crtgen.base import budget
from crtgen.base.errors import UsageError

__all__ = [
    "LEFTOVER",
    "PICTURES",
    "check_writable",
    "digest",
    "hold",
    "inside",
    "locked",
    "make_directory",
    "opened",
    "opened_lock",
    "private_directory",
    "read",
    "read_start",
    "read_text",
    "relative_path",
    "remove",
    "seen",
    "step",
    "take",
    "write",
    "write_new",
]

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    fcntl = None

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")

LEFTOVER = ".crtgen-new"
"""Suffix of a file that is being written. A power cut leaves it behind; the next write replaces it."""

_BINARY = getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY
# Names that are devices on Windows, whatever follows a dot.
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"{device}{n}" for device in ("com", "lpt") for n in range(1, 10)))
)


_seen: ContextVar[dict[str, str] | None] = ContextVar("seen", default=None)


@contextmanager
def seen() -> Iterator[dict[str, str]]:
    """Record the files that ``read`` reads within the block: absolute path to SHA-256 in hexadecimal."""
    found: dict[str, str] = {}
    token = _seen.set(found)
    try:
        yield found
    finally:
        _seen.reset(token)
        if (outer := _seen.get()) is not None:
            outer.update(found)


def step(operation: str, path: Path) -> None:
    """Called before each system call: ``write``, ``sync``, ``rename``, ``remove``, ``mkdir``. Tests replace
    it.
    """


def read(path: Path, what: str = "the file") -> bytes:
    """Return the content of a regular file.

    Raises ``UsageError`` for anything else, and for a file larger than a quarter of the memory limit.
    """
    limit = budget.memory_limit(4)
    try:
        with open(_regular(path, os.O_RDONLY, what), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise _too_large(path, what, size)
            data = file.read(size + 1)
            if len(data) > size:  # it grows, or does not say how long it is
                data += file.read(limit + 1 - len(data))
    except OSError as error:
        raise UsageError(
            f"{what} cannot be read: {error.strerror}",
            where=str(path),
            hint="check the path and the permissions",
        ) from error
    if len(data) > limit:
        raise _too_large(path, what, len(data))
    budget.current().take(len(data), what)
    if (found := _seen.get()) is not None:
        found[str(path.absolute())] = hashlib.sha256(data).hexdigest()
    return data


def opened(path: Path, what: str) -> IO[bytes]:
    """Open a regular file that is too large to be read as a whole. Raises ``UsageError``."""
    try:
        return open(_regular(path, os.O_RDONLY, what), "rb")
    except OSError as error:
        raise UsageError(
            f"{what} cannot be read: {error.strerror}",
            where=str(path),
            hint="check the path and the permissions",
        ) from error


def read_start(path: Path, size: int) -> bytes:
    """Return the first ``size`` bytes of a regular file, such as one on a drive; links are refused.

    Raises ``UsageError``.
    """
    try:
        with open(_regular(path, os.O_RDONLY | _NOFOLLOW, "the file"), "rb") as file:
            return file.read(size)
    except OSError as error:
        raise UsageError(
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            hint="check the path and the permissions",
        ) from error


def write_new(path: Path, data: bytes) -> None:
    """Write a file in place, under its final name, for drives that cannot rename.

    A boot loader takes the drive away as soon as it has the last byte. An existing file of that name is
    removed first. Raises ``UsageError``.
    """
    try:
        _remove(path)
        step("write", path)
        with open(os.open(path, _NEW, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(
            f"the file cannot be written: {error.strerror}",
            where=str(path),
            hint="check the permissions, and that the disk has room",
        ) from error


def _regular(path: Path, flags: int, what: str) -> int:
    # A descriptor of a regular file; nothing else is waited for.
    descriptor = os.open(path, flags | _NONBLOCK | _BINARY, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{what} is not a regular file", where=str(path), hint="name a file")
    return descriptor


def _too_large(path: Path, what: str, nbytes: int) -> UsageError:
    return UsageError(
        f"{what} has {nbytes:,} bytes; at most {budget.memory_limit(4):,} are read",
        where=str(path),
        hint=f"crtgen --limit-memory {4 * nbytes} allows it",
    )


def read_text(path: Path, what: str = "the file") -> str:
    """Read a file as UTF-8 without translating line ends; otherwise like ``read``."""
    try:
        return read(path, what).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8", where=str(path), hint="save it as UTF-8") from error


def digest(path: Path) -> str:
    """SHA-256 of a regular file, in hexadecimal. Raises ``UsageError`` if it cannot be read."""
    try:
        with open(_regular(path, os.O_RDONLY, "the file"), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            hint="check the path and the permissions",
        ) from error


def write(path: Path, data: bytes | Iterable[bytes], *, durable: bool = True, private: bool = False) -> None:
    """Replace ``path`` by a file with this content (bytes, or pieces of it), atomically.

    After a failure the file is unchanged. Only this user can read a ``private`` file. A ``durable`` file is
    on the disk when the call returns, so it survives a power cut. Raises ``UsageError`` if the file cannot be
    written.
    """
    beside = path.with_name(f".{path.name}{LEFTOVER}")
    try:
        _remove(beside)
        step("write", beside)
        with open(os.open(beside, _NEW, 0o600 if private else 0o666), "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            if durable:
                step("sync", beside)
                os.fsync(file.fileno())
        step("rename", path)
        beside.replace(path)
        if durable:
            _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UsageError(
            f"the file cannot be written: {error.strerror}",
            where=str(path),
            hint="check the permissions, and that the disk has room",
        ) from error


def check_writable(path: Path) -> None:
    """Raise ``UsageError`` if a path cannot be written; called before long work begins."""
    if path.is_dir():
        raise UsageError("the path is a directory, expected a file", where=str(path), hint="name a file")
    if not path.parent.is_dir():
        raise UsageError(
            "the directory of this path does not exist", where=str(path), hint=f"mkdir -p {path.parent}"
        )
    if not os.access(path.parent, os.W_OK):
        raise UsageError(
            "the directory of this path cannot be written to", where=str(path), hint="name another place"
        )


def remove(path: Path) -> None:
    try:
        _remove(path)
    except OSError as error:
        raise UsageError(
            f"the path cannot be removed: {error.strerror}",
            where=str(path),
            hint="check the permissions of its folder",
        ) from error


def _remove(path: Path) -> None:
    if os.path.lexists(path):
        step("remove", path)
        path.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    for directory in reversed((path, *path.parents)):
        if directory.is_dir():
            continue
        if directory.exists():
            raise UsageError("Not a directory", where=str(directory), hint="name another place")
        step("mkdir", directory)
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the directory cannot be made: {error.strerror}",
                where=str(directory),
                hint="check the permissions, and that no file has its name",
            ) from error


def private_directory(name: str) -> Path:
    """Return a directory for locks that only this user can write to: in ``XDG_RUNTIME_DIR``, or else among
    temporary files.

    Raises ``UsageError`` if another user owns it or could change its content.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    directory = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"{name}-{user}"
    try:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        status = directory.lstat()
    except OSError as error:
        raise UsageError(
            f"the directory cannot be made: {error.strerror}",
            where=str(directory),
            hint="check the permissions, and that no file has its name",
        ) from error
    mine = not hasattr(os, "getuid") or (status.st_uid == user and not status.st_mode & 0o077)
    if not stat.S_ISDIR(status.st_mode) or not mine:
        hint = "remove it, or set XDG_RUNTIME_DIR to a directory of your own"
        raise UsageError("the directory is not owned by you alone", where=str(directory), hint=hint)
    return directory


@contextmanager
def opened_lock(path: Path) -> Iterator[IO[str]]:
    """Open a lock file for reading and writing, and create it if it is missing. Links are refused."""
    step("lock", path)
    try:
        descriptor = _regular(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW, "the lock")
    except OSError as error:
        raise UsageError(
            f"the lock cannot be opened: {error.strerror}",
            where=str(path),
            hint="check the permissions of its folder",
        ) from error
    with open(descriptor, "r+", encoding="utf-8") as file:
        yield file


def take(descriptor: int, *, wait: bool = True) -> bool:
    """Try to lock an open file or directory; return True on success. Closing the file unlocks it."""
    if fcntl is None:  # no such locks on Windows: two at once are the user's business there
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def hold(directory: Path, *, wait: bool = True) -> int | None:
    """Lock a directory and return the descriptor that holds the lock until it is closed.

    Returns None if another process holds the lock and ``wait`` is false, if the directory is missing or a
    link, or if the system cannot lock directories.
    """
    if fcntl is None:
        return None
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW)
        if take(descriptor, wait=wait):
            return descriptor
    if descriptor is not None:
        os.close(descriptor)
    return None


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a directory within the block, waiting for the lock if necessary. A missing directory is not
    locked.
    """
    descriptor = hold(directory)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _sync_directory(path: Path) -> None:
    # Bring the names in a directory to the disk, where the system can.
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def relative_path(path: str) -> str:
    """Normalise the path of a file below some directory. Raises ``ValueError`` with the reason if it leads
    elsewhere.

    The result is relative and uses ``/``. It contains no ``..``, no control characters and no name that some
    system reserves for a device, so it means the same everywhere.
    """
    if not path.isprintable() or "\\" in path or ":" in path:
        raise ValueError(f"{path!r} has characters that no path may have")
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts:
        raise ValueError(f"{path!r} is not a relative path")
    for part in pure.parts:
        if part == "..":
            raise ValueError(f"{path!r} leads out of its directory")
        if part.partition(".")[0].lower().rstrip() in _RESERVED or part[-1] in ". " or len(part) > 200:
            raise ValueError(f"{path!r} has a name that not every system allows for a file")
    return str(pure)


def inside(directory: Path, paths: Iterable[str]) -> dict[str, Path]:
    """Resolve relative paths below ``directory``. Raises ``UsageError`` if a link is on the way."""
    found = {}
    clear: set[Path] = set()
    for path in paths:
        target = directory / path
        for place in (target, *target.parents):
            if place == directory or place in clear:
                break
            if place.is_symlink():
                raise UsageError(
                    "the path is a link, which could lead out of the directory",
                    where=str(place),
                    hint="remove it, or name a new directory",
                )
            clear.add(place)
        found[path] = target
    return found
