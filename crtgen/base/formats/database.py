"""SQLite files, opened so that a malicious file can do no harm.

A rollback journal (``x.db-journal``) may name a super-journal, and SQLite removes the file of that name when
it opens the database. So a database with a journal is refused before SQLite sees it. crtgen's own databases
never have one: they are created in a temporary folder, and use a write-ahead log (``x.db-wal``), which names
no files.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from crtgen.base import budget, files
from crtgen.base.errors import UsageError
from crtgen.base.temporary import TemporaryFolder

__all__ = ["Connection", "DatabaseError", "is_database", "open_database"]

Connection = sqlite3.Connection
DatabaseError = (sqlite3.Error, UnicodeError)
"""Exceptions for damaged files. Python cannot decode all of SQLite's messages, hence
``UnicodeDecodeError``.
"""

# Seconds that a write waits for another process's.
_BUSY = 60.0

_MAGIC = b"SQLite format 3\0"
_BESIDE = ("-journal", "-wal", "-shm")


def is_database(path: Path) -> bool:
    """Return True for a regular file, not a link, that begins with SQLite's signature."""
    return not path.is_symlink() and files.read_start(path, len(_MAGIC)) == _MAGIC


def open_database(path: Path, fill: Callable[[Connection], None]) -> Connection:
    """Open a database in which every statement is its own transaction; ``fill`` initialises a new one.

    Raises ``UsageError`` for links and journals, ``DatabaseError`` for a file that is not a database.
    """
    _refuse_company(path)
    with files.locked(path.parent):
        if not path.exists() or not path.stat().st_size:
            _make(path, fill)
    return _connected(path)


def _refuse_company(path: Path) -> None:
    # Raise ``UsageError`` for what SQLite would follow out of the folder.
    for end in ("", *_BESIDE):
        file = path.with_name(path.name + end)
        if file.is_symlink():
            raise UsageError(
                "the path is a link, which could lead elsewhere", where=str(file), hint="remove it"
            )
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists():
        raise UsageError(
            "the file is a rollback journal, which could make SQLite remove other files; crtgen writes none",
            where=str(journal),
            hint="remove it",
        )


def _make(path: Path, fill: Callable[[Connection], None]) -> None:
    # Make the file at once, so that there is no moment at which it has a journal.
    for end in _BESIDE:
        if (beside := path.with_name(path.name + end)).exists():
            raise UsageError(
                "the file belongs to a database that does not exist", where=str(beside), hint="remove it"
            )
    with TemporaryFolder() as folder:
        db = _connected(folder / "new.db")
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            fill(db)
            db.execute("COMMIT")
        finally:
            db.close()
        files.write(path, (folder / "new.db").read_bytes())


def _connected(path: Path) -> Connection:
    db = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, budget.memory_limit(4))
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA mmap_size = 0")
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db
