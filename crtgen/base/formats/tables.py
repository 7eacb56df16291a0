"""Tables of comma-separated values."""

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path

from crtgen.base import files
from crtgen.base.formats.foreign import foreign

__all__ = ["read_table", "rows_of"]

# Bytes that Python takes for a cell of one character.
_PER_CELL = 60


def read_table(path: Path, what: str, hint: str = "") -> list[list[str]]:
    """Read all rows of a table, also empty ones. Raises ``UsageError``."""
    with foreign(path, what, hint) as spent:
        text = files.read_text(path, what)
        spent.take(_PER_CELL * (text.count(",") + text.count("\n")), "cells")
        return list(rows_of(StringIO(text, newline="")))


def rows_of(lines: Iterable[str]) -> Iterator[list[str]]:
    """Split lines of text into rows, inside ``foreign`` or for crtgen's own files."""
    return csv.reader(lines)
