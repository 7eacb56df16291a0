"""A project: every file of it in memory, with a digest; and how it gets onto a disk."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crtgen.errors import UsageError
from crtgen.project.manifest import MANIFEST, read_manifest

__all__ = ["Project"]


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """Firmware sources that build on their own. The same input gives the same files, byte by byte.

    ``platform`` is ``baremetal`` or ``host``, ``type`` is ``server``, ``standalone`` or ``library``;
    ``files`` maps a path (with ``/``, below the project) to its content.
    """

    name: str
    platform: str
    board: str
    type: str
    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """SHA-256 over paths and contents, in hexadecimal."""
        sha = hashlib.sha256()
        for path in sorted(self.files):
            content = self.files[path]
            sha.update(f"{path}\0{len(content)}\0".encode())
            sha.update(content)
        return sha.hexdigest()

    def extract(self, directory: Path) -> None:
        """Make ``directory`` hold this project.

        A new or empty directory is filled. An earlier project is brought up to date: files that are equal
        are left alone, so that a build stays incremental, and files that the earlier one had and this one
        has not are removed. Anything else is refused with ``UsageError``.
        """
        earlier = _earlier_files(directory)
        for path in sorted(earlier - self.files.keys()):
            (directory / path).unlink(missing_ok=True)
        for path, content in sorted(self.files.items()):
            _write(directory / path, content)


def _earlier_files(directory: Path) -> frozenset[str]:
    """What crtgen wrote into the directory before. Raises ``UsageError`` if it may not write there."""
    if not directory.exists():
        return frozenset()
    if not directory.is_dir():
        raise UsageError("it is a file", where=str(directory), hint="name a directory for the project")
    if (directory / MANIFEST).is_file():
        return frozenset(read_manifest(directory).files)
    if any(directory.iterdir()):
        raise UsageError(
            "the directory is not empty and holds no project of crtgen",
            where=str(directory),
            hint="name a new directory",
        )
    return frozenset()


def _write(file: Path, content: bytes) -> None:
    try:
        if file.is_file() and file.read_bytes() == content:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(file)) from error
