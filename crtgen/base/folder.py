"""The folder whose ``crtgen.toml`` applies: a named one, or that of the surrounding project.

The file is searched for from the current folder upwards, as far as the project's root: the folder that a
version control system or west considers the top. A ``crtgen.toml`` outside of any project is used only if
``crtgen init`` made it on this computer, or after ``crtgen trust``.
"""

import os
from pathlib import Path

from crtgen.base import trust
from crtgen.base.errors import UsageError

__all__ = ["SETTINGS", "current_folder", "ignored_folder", "named_folder", "use_folder"]

SETTINGS = "crtgen.toml"
_MARKERS = (".git", ".hg", ".jj", ".svn", ".west")

_named: Path | None = None


def use_folder(path: Path | None) -> None:
    """Use this folder's ``crtgen.toml``; with None, the project's. Raises ``UsageError`` if there is none."""
    global _named
    if path is not None and not (path / SETTINGS).is_file():
        raise UsageError(f"the folder has no {SETTINGS}", where=str(path), hint="crtgen init makes one")
    _named = path


def named_folder() -> Path | None:
    return _named


def current_folder() -> Path | None:
    if _named is not None:
        return _named
    found = _nearest()
    return _relative(found) if found is not None and _is_used(found) else None


def ignored_folder() -> Path | None:
    """Return the folder whose ``crtgen.toml`` is ignored because it belongs to no project, or None."""
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
