"""The rows of a sweep as a table: CSV for spreadsheets, Parquet for data frames."""

import csv
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.lab.settings import METRICS
from crtgen.lab.sweep.store import StoreRow

__all__ = ["FORMATS", "check_export", "export"]

FORMATS = (".parquet", ".csv")
_TEXTS = ("digest", "model", "board", "label", "state")
_NUMBERS = (*METRICS, "seconds")
_MORE = (
    "error",
    "message",
    "log",
    "source",
    "settings",
    "code",
    "toolchain",
    "project",
    "worker",
    "finished",
)
_COLUMNS = (*_TEXTS, *_NUMBERS, *_MORE, "job_seconds")
# Rows that are in memory at a time.
_PART = 10_000


def check_export(path: Path) -> None:
    """Refuse a file that cannot be written later: an unknown kind, a missing directory, a missing package."""
    if path.suffix not in FORMATS:
        raise UsageError(
            f"{path.suffix or 'no suffix'} is not a format for tables",
            where=str(path),
            hint=f"use {' or '.join(FORMATS)}",
        )
    files.check_writable(path)
    if path.suffix == ".parquet":
        _pyarrow()


def export(rows: Iterable[StoreRow], path: Path) -> None:
    """Write the table in the format of the file's suffix. Layers stay in the store only."""
    beside = path.with_name(f".{path.name}{files.LEFTOVER}")
    write = _write_parquet if path.suffix == ".parquet" else _write_csv
    write(map(_cells, rows), beside)
    beside.replace(path)


def _cells(row: StoreRow) -> dict[str, Any]:
    texts = {name: getattr(row, name) for name in (*_TEXTS, *_MORE)}
    return texts | {name: row.figures.get(name) for name in _NUMBERS} | {"job_seconds": row.seconds}


def _write_csv(rows: Iterator[dict[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, _COLUMNS)
        table.writeheader()
        table.writerows(rows)


def _write_parquet(rows: Iterator[dict[str, Any]], path: Path) -> None:
    pyarrow = _pyarrow()
    from pyarrow import parquet

    kinds = {name: pyarrow.int64() for name in METRICS} | dict.fromkeys(
        ("seconds", "job_seconds"), pyarrow.float64()
    )
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in _COLUMNS])
    with parquet.ParquetWriter(path, schema) as file:
        while part := list(islice(rows, _PART)):
            file.write_table(pyarrow.Table.from_pylist(part, schema))


def _pyarrow() -> Any:
    # The package, which is there with an extra only.
    try:
        import pyarrow
    except ImportError as error:
        raise UsageError("Parquet needs the package pyarrow", hint="pip install 'crtgen[sweep]'") from error
    return pyarrow
