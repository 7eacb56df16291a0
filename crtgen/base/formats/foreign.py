"""The budget and the error handling that all readers share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from warnings import catch_warnings

from crtgen.base import budget
from crtgen.base.errors import CrtgenError, UsageError

__all__ = ["foreign"]


@contextmanager
def foreign(path: Path, what: str, hint: str = "") -> Iterator[budget.Budget]:
    """Run a library's reader: whatever it raises becomes a ``UsageError`` that ``what`` cannot be read.

    The budget is that of the file, or of the load around it. ``MemoryError`` is passed on for
    ``budget.spending`` to explain; warnings of the library are not shown.
    """
    with budget.spending(str(path)) as spent, catch_warnings(action="ignore"):
        try:
            yield spent
        except (CrtgenError, MemoryError):
            raise
        except Exception as error:  # parsers raise whatever their authors did not think of
            why = str(error).partition("\n")[0] or type(error).__name__
            raise UsageError(f"{what} cannot be read: {why:.200}", where=str(path), hint=hint) from error
