"""The folder whose ``crtgen.toml`` is in force: the one that is named, or that of the project around.

Its file is looked for from the current folder upwards, as far as the project's root: the folder that a
version control system or west calls its top. A ``crtgen.toml`` outside of any project is used once the person
made it by ``crtgen init``, or said ``crtgen trust``; to be in its folder is not enough.
"""

import os
from pathlib import Path

from crtgen.base import trust
from crtgen.base.errors import UsageError

__all__ = ["SETTINGS", "current_folder", "ignored_folder", "use_folder"]

SETTINGS = "crtgen.toml"
_MARKERS = (".git", ".hg", ".jj", ".svn", ".west")

_named: Path | None = None


def use_folder(path: Path | None) -> None:
    """Use a folder whatever is around; None: that of the project. ``UsageError`` if it has no settings."""
    global _named
    if path is not None and not (path / SETTINGS).is_file():
        raise UsageError(f"the folder has no {SETTINGS}", where=str(path), hint="crtgen init makes one")
    _named = path


def current_folder() -> Path | None:
    """The folder in force, relative to the current one; None if there is none."""
    if _named is not None:
        return _named
    found = _nearest()
    return _relative(found) if found is not None and _is_used(found) else None


def ignored_folder() -> Path | None:
    """The folder whose ``crtgen.toml`` would be in force if it belonged to a project, else None."""
    found = _nearest() if _named is None else None
    return _relative(found) if found is not None and not _is_used(found) else None


def _nearest() -> Path | None:
    # The first folder upwards with settings, not beyond a root.
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / SETTINGS).is_file():
            return folder
        if _is_root(folder):
            return None
    return None


def _is_used(folder: Path) -> bool:
    return any(map(_is_root, (folder, *folder.parents))) or trust.is_claimed(folder)


def _is_root(folder: Path) -> bool:
    return any((folder / marker).exists() for marker in _MARKERS)


def _relative(folder: Path) -> Path:
    return Path(os.path.relpath(folder))
