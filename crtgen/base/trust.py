"""The user's answers to questions of trust, and marks on the state that crtgen made for this user.

Files decide what is computed. Running a program, compiling code, opening a port or writing elsewhere needs
the user's permission: by an option, by the environment, or by ``crtgen trust``, whose answers are kept here
(docs/decisions/0026-a-folder-is-data.md).

Answers
    An answer is a file in ``$XDG_DATA_HOME/crtgen/allowed``. Its name is a SHA-256 and its text says what was
    answered. A changed file has another digest, so it is asked about again. ``CRTGEN_TRUST=1`` answers
    everything with yes, for CI on a repository of one's own.

Marks
    State is where anybody can put it: a store of measurements, a build folder, a cache may come with a
    clone. It is believed only with a mark: an HMAC-SHA256, with a key that never leaves this person's data
    (``$XDG_DATA_HOME/crtgen/key``, mode 0600), over the absolute path and the content. A clone has no key, so
    it cannot mark; and a mark that was copied from another folder or from an older content does not fit.
    State without a mark is made anew, or believed once the person says so.

Paths are compared by their own name, not by where they lead: a final component that is a link is not
followed, so a link to an allowed file is not itself allowed.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UsageError

__all__ = [
    "VARIABLE",
    "Seal",
    "allow",
    "claim",
    "digest",
    "everything",
    "has_made",
    "is_allowed",
    "is_claimed",
    "made",
    "place_of",
    "read_marked",
    "remembers",
    "require",
]

VARIABLE = "CRTGEN_TRUST"
_KEY_BYTES = 32


def digest(content: bytes) -> str:
    """Digest of a content as stored in answers and files: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def everything() -> bool:
    return os.environ.get(VARIABLE) == "1"


def is_allowed(content: str, file: Path | None = None) -> bool:
    return _has(_content(content, file))


def allow(content: str, file: Path | None = None) -> None:
    """Allow a content from now on: in ``file`` only, or in any file if None."""
    _keep(_content(content, file))


def is_claimed(folder: Path) -> bool:
    """Return True if this user made the folder or store, or allowed its use."""
    return _has(_place(folder))


def claim(folder: Path) -> None:
    """Remember that this user wants a folder or store to be used, if this computer keeps such answers.

    Without a home directory, as in some containers, the folder has to be named each time.
    """
    with suppress(UsageError):
        _keep(_place(folder))


def require(file: Path, content: str, asks: Sequence[str]) -> None:
    """Raise ``UsageError`` if a file ``asks`` for something, such as ``runs x``, that the user has not
    allowed.
    """
    if asks and not is_allowed(content, file):
        raise UsageError(
            f"the file {', and '.join(asks)}, which only you can allow",
            where=str(file),
            hint=f"read it; if you agree: crtgen trust {file}",
        )


class Seal:
    """Marks for one place: ``mark`` makes one, ``fits`` checks one."""

    def __init__(self, path: Path) -> None:
        self._place = os.fsencode(place_of(path))
        self._key = _key()

    def mark(self, parts: Iterable[bytes]) -> str:
        """Return the mark of a content, given in parts whose order matters; empty if this computer keeps no
        key.
        """
        if self._key is None:
            return ""
        code = hmac.new(self._key, digestmod="sha256")
        for part in (self._place, *parts):
            code.update(len(part).to_bytes(8, "little"))
            code.update(part)
        return code.hexdigest()

    def fits(self, parts: Iterable[bytes], found: str) -> bool:
        """Return True if ``found`` is this user's mark of the content, or the environment allows
        everything.
        """
        if everything():
            return True
        wanted = self.mark(parts)
        return bool(wanted) and hmac.compare_digest(wanted.encode(), found.encode(errors="replace"))


def read_marked(path: Path) -> bytes | None:
    """Return the content of a file without its first line, which is its mark; None if the file is missing or
    the mark does not fit.
    """
    if not path.is_file():
        return None
    mark, _, content = files.read(path).partition(b"\n")
    return content if Seal(path).fits([content], mark.decode(errors="replace")) else None


def remembers() -> bool:
    """Return True if this computer keeps anything for the user; some containers have no home directory."""
    return _key() is not None


def made(what: str) -> None:
    """Remember that this computer made a result, such as a proof, by the digest of everything that it depends
    on.
    """
    with suppress(UsageError):
        _keep(f"made {what}")


def has_made(what: str) -> bool:
    """Return True if this computer made the result itself; ``CRTGEN_TRUST`` does not count."""
    return _entry(f"made {what}").is_file()


def place_of(path: Path) -> Path:
    """Make a path absolute and resolve links, except for a link as its final component."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def _key() -> bytes | None:
    # Read the key, or make it; None if this computer keeps nothing.
    file = _home() / "key"
    with suppress(OSError):
        key = file.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    try:
        files.make_directory(file.parent)
        with files.locked(file.parent):
            if not file.is_file() or file.stat().st_size != _KEY_BYTES:
                files.write(file, os.urandom(_KEY_BYTES), private=True)
            return file.read_bytes()
    except (UsageError, OSError):
        return None


def _content(content: str, file: Path | None) -> str:
    return f"{content} {place_of(file)}" if file else content


def _place(folder: Path) -> str:
    return f"folder {place_of(folder)}"


def _home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "crtgen"


def _entry(text: str) -> Path:
    return _home() / "allowed" / hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _has(text: str) -> bool:
    return everything() or _entry(text).is_file()


def _keep(text: str) -> None:
    entry = _entry(text)
    files.make_directory(entry.parent)
    files.write(entry, f"{text}\n".encode(errors="surrogateescape"))
