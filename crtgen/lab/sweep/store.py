"""The store: an SQLite file with one row for each job, by the address of its content.

A row is created before its job runs and gets its outcome in one transaction, so a kill at any moment leaves a
store that can be continued. Rows are never duplicated, since the address is unique. A sweep is the set of its
jobs, so running the same sweep again gives the same sweep. The store may also hold measurements of another
``kind``.

A store may come with a clone, so it is used only if this user created it at this path, and each row has the
user's mark over its columns (``crtgen.base.trust``). ``adopt`` marks a store that somebody else created.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from crtgen.base import files, trust
from crtgen.base.errors import UsageError
from crtgen.base.formats.database import Connection, DatabaseError, open_database
from crtgen.lab.sweep.address import content_digest
from crtgen.lab.sweep.job import Outcome

__all__ = ["STORE", "JobStore", "StoreEntry", "StoreRow", "SweepInfo", "adopt", "measurements_in"]

STORE = "sweep.db"
_APPLICATION = 0x63727473
_VERSION = 2

_SCHEMA = """
CREATE TABLE job (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  board TEXT NOT NULL,
  label TEXT NOT NULL,
  source TEXT NOT NULL,
  settings TEXT NOT NULL,
  code TEXT NOT NULL,
  toolchain TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'done', 'failed')),
  figures TEXT NOT NULL DEFAULT '{}',
  layers TEXT NOT NULL DEFAULT '{}',
  project TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT '',
  message TEXT NOT NULL DEFAULT '',
  log TEXT NOT NULL DEFAULT '',
  worker TEXT NOT NULL DEFAULT '',
  seconds REAL NOT NULL DEFAULT 0,
  finished TEXT NOT NULL DEFAULT '',
  mark TEXT NOT NULL DEFAULT ''
);
CREATE TABLE sweep (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  run INTEGER NOT NULL,
  started TEXT NOT NULL
);
CREATE TABLE member (
  sweep INTEGER NOT NULL REFERENCES sweep,
  job INTEGER NOT NULL REFERENCES job,
  PRIMARY KEY (sweep, job)
) WITHOUT ROWID;
"""
_MADE = ("digest", "kind", "model", "board", "label", "source", "settings", "code", "toolchain")
_FOUND = ("figures", "layers", "project", "error", "message", "log", "worker", "seconds", "finished")
_COLUMNS = ("state", *_MADE, *_FOUND)
_TABLES = ("figures", "layers")


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A row of the store: ``digest`` is the job's address, computed from the last four fields.

    ``source`` is the digest of the model's file, ``settings`` are the options as JSON, and ``label`` is their
    readable form.
    """

    digest: str
    kind: str
    model: str
    board: str
    label: str
    source: str
    settings: str
    code: str
    toolchain: str


@dataclass(frozen=True)
class StoreRow(StoreEntry):
    """A row. ``state`` is waiting, done or failed; ``finished`` is a time in UTC; ``Outcome`` has the
    rest.
    """

    state: str
    figures: Mapping[str, float]
    layers: Mapping[str, int]
    project: str
    error: str
    message: str
    log: str
    worker: str
    seconds: float
    finished: str

    @property
    def cell(self) -> tuple[str, str, str]:
        """Model, board and label, which identify a row across sweeps."""
        return self.model, self.board, self.label

    @property
    def instructions(self) -> int | None:
        return self._whole("instructions")

    @property
    def flash_bytes(self) -> int | None:
        return self._whole("flash_bytes")

    @property
    def ram_bytes(self) -> int | None:
        return self._whole("ram_bytes")

    def _whole(self, metric: str) -> int | None:
        value = self.figures.get(metric)
        return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class SweepInfo:
    """A sweep of the store: its number, the name of its file, and its start time in UTC."""

    number: int
    name: str
    started: str


class JobStore:
    def __init__(self, path: Path, *, adopted: bool = False) -> None:
        """Open the store, or create it.

        Raises ``UsageError`` for another kind of file, and for one that this user did not create, unless it
        is ``adopted``.
        """
        self.path = path
        files.check_writable(path)
        if not path.exists():
            trust.claim(path)
        elif not (adopted or trust.is_claimed(path)):
            raise self._strange("you did not make this store")
        self._seal = trust.Seal(path)
        try:
            self._db = open_database(path, _fill)
        except DatabaseError as error:
            raise self._error(error) from error
        try:
            self._check_tables()
            if not adopted:
                self._check_marks()
        except BaseException:
            self._db.close()
            raise

    def _check_tables(self) -> None:
        if self._pragma("application_id") != _APPLICATION:
            raise UsageError(
                "the file is a database, but not a store of sweeps",
                where=str(self.path),
                hint="name a new file for the store",
            )
        if (version := self._pragma("user_version")) != _VERSION:
            raise UsageError(
                f"the store is of version {version}, this crtgen knows {_VERSION}",
                where=str(self.path),
                hint="name another file, or use the crtgen that wrote it",
            )
        if self._tables() != {" ".join(statement.split()) for statement in _SCHEMA.split(";")[:-1]}:
            raise self._damaged("the tables of the store are not those that crtgen makes")

    def _check_marks(self) -> None:
        if trust.everything():
            return
        for *values, found in self._read(f"SELECT {', '.join(_COLUMNS)}, mark FROM job"):
            if not self._seal.fits(_parts(values), str(found)):
                raise self._strange(f"you did not make the measurement {values[1]!s:.40}")

    def _strange(self, what: str) -> UsageError:
        return UsageError(
            f"{what}, so crtgen does not use the store",
            where=str(self.path),
            hint=f"crtgen trust {self.path} makes crtgen use it; or remove the file to measure anew",
        )

    def _sign(self, digests: Iterable[str]) -> None:
        # Mark rows as they are, within a transaction.
        for digest in digests:
            row = self._db.execute(f"SELECT {', '.join(_COLUMNS)} FROM job WHERE digest = ?", (digest,))
            if (values := row.fetchone()) is not None:
                mark = self._seal.mark(_parts(values))
                self._db.execute("UPDATE job SET mark = ? WHERE digest = ?", (mark, digest))

    def _pragma(self, name: str) -> int:
        return int(self._read(f"PRAGMA {name}")[0][0])

    def _tables(self) -> set[str]:
        # The statements that made what is in the file: tables, and whatever else somebody put there.
        rows = self._read("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {" ".join(str(sql).split()) for (sql,) in rows}

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(query, values).fetchall()
        except DatabaseError as error:
            raise self._error(error) from error

    def _damaged(self, reason: str) -> UsageError:
        return UsageError(
            f"the store is damaged: {reason}", where=str(self.path), hint="remove it, or name another file"
        )

    def _error(self, error: Exception) -> UsageError:
        return UsageError(
            f"the store cannot be used: {error}", where=str(self.path), hint="name another file"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # All of it or nothing, and nobody else's between.
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except DatabaseError as error:
            raise self._error(error) from error

    def begin(self, name: str, entries: Sequence[StoreEntry]) -> SweepInfo:
        """Begin a sweep with these jobs and make it the latest; jobs without a row get one that is
        waiting.
        """
        address = content_digest("\n".join(sorted(e.digest for e in entries)).encode())
        with self._transaction():
            marks = ", ".join("?" * len(_MADE))
            rows = ([getattr(entry, column) for column in _MADE] for entry in entries)
            self._db.executemany(f"INSERT OR IGNORE INTO job ({', '.join(_MADE)}) VALUES ({marks})", rows)
            self._sign(d for (d,) in self._db.execute("SELECT digest FROM job WHERE mark = ''").fetchall())
            run = "(SELECT coalesce(max(run), 0) + 1 FROM sweep)"
            now = datetime.now(UTC).isoformat(timespec="seconds")
            (number, started) = self._db.execute(
                f"INSERT INTO sweep (digest, name, run, started) VALUES (?, ?, {run}, ?)"
                f" ON CONFLICT (digest) DO UPDATE SET run = {run}, name = excluded.name"
                " RETURNING id, started",
                (address, name, now),
            ).fetchone()
            self._db.executemany(
                "INSERT OR IGNORE INTO member SELECT ?, id FROM job WHERE digest = ?",
                ((number, entry.digest) for entry in entries),
            )
        return self._sweep(number, name, started)

    def before(self, sweep: SweepInfo) -> SweepInfo | None:
        found = self._read(
            "SELECT id, name, started FROM sweep WHERE name = ? AND id != ? ORDER BY run DESC LIMIT 1",
            (sweep.name, sweep.number),
        )
        return self._sweep(*found[0]) if found else None

    def _sweep(self, number: Any, name: Any, started: Any) -> SweepInfo:
        if not (isinstance(number, int) and isinstance(name, str) and isinstance(started, str)):
            raise self._damaged(f"the sweep {number!r} has no name or no time")
        return SweepInfo(number, name, started)

    def waiting(self, sweep: SweepInfo) -> set[str]:
        return {
            digest
            for (digest,) in self._read(
                "SELECT digest FROM job JOIN member ON job = id WHERE sweep = ? AND state = 'waiting'",
                (sweep.number,),
            )
        }

    def retry(self, sweep: SweepInfo) -> None:
        with self._transaction():
            changed = self._db.execute(
                "UPDATE job SET state = 'waiting' WHERE state = 'failed'"
                " AND id IN (SELECT job FROM member WHERE sweep = ?) RETURNING digest",
                (sweep.number,),
            ).fetchall()
            self._sign(digest for (digest,) in changed)

    def finish(self, outcomes: Iterable[tuple[str, Outcome]]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        columns = ", ".join(f"{column} = ?" for column in ("state", *_FOUND))
        with self._transaction():
            for digest, outcome in outcomes:
                self._db.execute(
                    f"UPDATE job SET {columns} WHERE digest = ?", (*_stored(outcome), now, digest)
                )
                self._sign([digest])

    def adopt(self) -> None:
        with self._transaction():
            self._sign(digest for (digest,) in self._db.execute("SELECT digest FROM job").fetchall())
        trust.claim(self.path)

    def size(self) -> int:
        return int(self._read("SELECT count(*) FROM job WHERE state != 'waiting'")[0][0])

    def rows(self, sweep: SweepInfo) -> Iterator[StoreRow]:
        columns = ", ".join(_COLUMNS)
        for values in self._read(
            f"SELECT {columns} FROM job JOIN member ON job = id WHERE sweep = ? ORDER BY id", (sweep.number,)
        ):
            yield self._row(dict(zip(_COLUMNS, values, strict=True)))

    def _row(self, named: dict[str, Any]) -> StoreRow:
        # A row whose columns are what crtgen writes there: SQLite keeps any type in any column.
        digest = str(named["digest"])[:40]
        for column in _TABLES:
            try:
                named[column] = json.loads(named[column])
            except (TypeError, ValueError, RecursionError) as error:
                raise self._damaged(f"the {column} of job {digest} are no JSON") from error
            if not isinstance(named[column], dict) or not all(map(_is_number, named[column].values())):
                raise self._damaged(f"the {column} of job {digest} are no numbers by name")
        for column in (c for c in _COLUMNS if c not in _TABLES):
            fits = _is_number(named[column]) if column == "seconds" else isinstance(named[column], str)
            if not fits:
                raise self._damaged(f"the {column} of job {digest} is a {type(named[column]).__name__}")
        return StoreRow(**named)

    def counts(self, sweep: SweepInfo) -> dict[str, int]:
        found = self._read(
            "SELECT state, count(*) FROM job JOIN member ON job = id WHERE sweep = ? GROUP BY state",
            (sweep.number,),
        )
        return {"waiting": 0, "done": 0, "failed": 0} | dict(found)


def measurements_in(path: Path) -> int:
    """Return the number of measurements in a store, whoever made it. Raises ``UsageError``."""
    with JobStore(path, adopted=True) as store:
        return store.size()


def adopt(path: Path) -> None:
    with JobStore(path, adopted=True) as store:
        store.adopt()


def _fill(db: Connection) -> None:
    for statement in _SCHEMA.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.execute(f"PRAGMA user_version = {_VERSION}")


def _parts(values: Sequence[Any]) -> list[bytes]:
    # Columns of a row, as a mark covers them.
    return [repr(value).encode(errors="surrogateescape") for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _stored(outcome: Outcome) -> tuple[Any, ...]:
    # The state, and the columns up to ``finished``.
    state = "failed" if outcome.error else "done"
    figures, layers = (json.dumps(dict(table)) for table in (outcome.figures, outcome.layers))
    texts = (outcome.project, outcome.error, outcome.message, outcome.log, outcome.worker)
    return (state, figures, layers, *texts, outcome.seconds)
