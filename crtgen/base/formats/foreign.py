"""The budget for a file and the one kind of error, which all doors share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from warnings import catch_warnings

from crtgen.base import budget
from crtgen.base.errors import CrtgenError, UsageError

__all__ = ["foreign"]


@contextmanager
def foreign(path: Path, what: str, hint: str = "") -> Iterator[budget.Budget]:
    """Let a library read a file; whatever it raises is a ``UsageError`` that says ``what`` cannot be read.

    The budget is that of the file, or of the load around it. A lack of memory stays one, which
    ``budget.spending`` explains, and warnings of the library are not shown.
    """
    with budget.spending(str(path)) as spent, catch_warnings(action="ignore"):
        try:
            yield spent
        except (CrtgenError, MemoryError):
            raise
        except Exception as error:  # parsers raise whatever their authors did not think of
            why = str(error).partition("\n")[0] or type(error).__name__
            raise UsageError(f"{what} cannot be read: {why:.200}", where=str(path), hint=hint) from error
