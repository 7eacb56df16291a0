"""What a person allowed: files by their content, folders by their place.

What is computed comes from files. Whether something may be done, a program run, code compiled, a line opened,
a file written elsewhere, comes from the person: by an option, by the person's own environment, or by
``crtgen trust``, whose answers are kept here (docs/decisions/0026-a-folder-is-data.md).

An answer is a file in ``$XDG_DATA_HOME/crtgen/allowed`` whose name is a SHA-256 and whose
text says what it is about. A file that is changed has another digest, and is asked about again.
``CRTGEN_TRUST=1`` allows everything, for CI on a repository of one's own.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from crtgen import files
from crtgen.errors import UsageError

__all__ = ["VARIABLE", "allow", "claim", "digest", "is_allowed", "is_claimed", "require"]

VARIABLE = "CRTGEN_TRUST"


def digest(content: bytes) -> str:
    """How a file's content is written where it is allowed: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def is_allowed(content: str, file: Path | None = None) -> bool:
    """Whether a content, by its ``digest``, is allowed: in this place, or, without ``file``, anywhere."""
    return _has(_content(content, file))


def allow(content: str, file: Path | None = None) -> None:
    """Allow a content from now on, in this place or anywhere."""
    _keep(_content(content, file))


def is_claimed(folder: Path) -> bool:
    """Whether the person said, or showed by making it, that a folder is to be used."""
    return _has(_place(folder))


def claim(folder: Path) -> None:
    """Remember that the person wants a folder to be used, where this computer remembers anything.

    Without a home of its own, as in some containers, the folder has to be named each time.
    """
    with suppress(UsageError):
        _keep(_place(folder))


def require(file: Path, content: str, asks: Sequence[str]) -> None:
    """Raise ``UsageError`` if a file ``asks`` for something, as ``runs x``, and nobody allowed that."""
    if asks and not is_allowed(content, file):
        raise UsageError(
            f"it {', and '.join(asks)}, which only you can allow",
            where=str(file),
            hint=f"look at it; if you agree: crtgen trust {file}",
        )


def _content(content: str, file: Path | None) -> str:
    return f"{content} {file.resolve()}" if file else content


def _place(folder: Path) -> str:
    return f"folder {folder.resolve()}"


def _entry(text: str) -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return (
        Path(home) / "crtgen" / "allowed" / hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    )


def _has(text: str) -> bool:
    return os.environ.get(VARIABLE) == "1" or _entry(text).is_file()


def _keep(text: str) -> None:
    entry = _entry(text)
    files.make_directory(entry.parent)
    files.write(entry, f"{text}\n".encode(errors="surrogateescape"))
