"""Output of commands: the result on stdout (text or JSON), everything else on stderr."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from crtgen.base import files
from crtgen.base.errors import CrtgenError, DeviceFault
from crtgen.base.text import printable
from crtgen.device.fault import core_dump

__all__ = ["Debug", "Json", "Output", "Rows", "guarded", "note", "on_log", "report", "table"]

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

# Names and paths are printed as they are, whatever brackets and colons are in them.
_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}


class _Terminal(Console):
    """A console that prints text from anywhere without obeying control sequences in it."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


log = _Terminal(stderr=True, **_PLAIN)
_LOG_LINES = 40
_PLAIN_WIDTH = 200
_WIDEST = 10_000


def on_log(line: str) -> None:
    log.print(f"device: {line}")


def note(line: str) -> None:
    log.print(line, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Output:
    as_json: bool

    def result(self, data: dict[str, Any], render: Callable[[Console], None]) -> None:
        """Print ``data`` as JSON, or let ``render`` print it for people."""
        if self.as_json:
            sys.stdout.write(json.dumps(data, indent=2) + "\n")
        else:
            width = None if sys.stdout.isatty() else _PLAIN_WIDTH
            render(_Terminal(soft_wrap=True, width=width, **_PLAIN))

    @contextmanager
    def stage(self) -> Iterator[Callable[[str], None]]:
        """Show progress: a spinner on a terminal, nothing elsewhere. Yields ``say(what)``."""
        if not log.is_terminal:
            yield lambda _: None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=log, transient=True) as progress:
            task = progress.add_task("starting")
            yield lambda what: progress.update(task, description=printable(what))


@contextmanager
def guarded(as_json: bool, debug: bool, dump: Path | None = None) -> Iterator[Output]:
    """Turn a ``CrtgenError`` into a message and its exit code; with ``debug``, pass it on.

    If ``dump`` is given, a fault of the device is saved there as a core dump. An ``OSError`` is treated as an
    ordinary failure, since a full disk or an unreadable file can occur anywhere.
    """
    try:
        yield Output(as_json)
    except CrtgenError as error:
        if isinstance(error, DeviceFault) and dump is not None:
            files.write(dump, core_dump(error))
            error.hint = f"gdb-multiarch <image> {dump}"
        if debug:
            raise
        report(error, as_json)
        raise typer.Exit(error.exit_code) from None
    except OSError as error:
        if debug or isinstance(error, BrokenPipeError):
            raise
        failure = CrtgenError(error.strerror or str(error), where=str(error.filename or ""))
        report(failure, as_json)
        raise typer.Exit(failure.exit_code) from None
    except MemoryError:
        if debug:
            raise
        failure = CrtgenError("there is not enough memory", hint="crtgen --limit-memory BYTES sets a limit")
        report(failure, as_json)
        raise typer.Exit(failure.exit_code) from None
    except KeyboardInterrupt:
        log.print("interrupted")
        raise typer.Exit(130) from None


def report(error: CrtgenError, as_json: bool) -> None:
    if as_json:
        body: dict[str, Any] = {
            "error": type(error).__name__,
            "message": error.message,
            "where": error.where,
            "hint": error.hint,
            "log": error.log,
            "exit_code": error.exit_code,
        }
        if isinstance(error, DeviceFault):
            body["fault"] = error.to_dict()
        sys.stdout.write(json.dumps(body, indent=2) + "\n")
        return
    if error.log:
        lines = error.log.rstrip().splitlines()
        for line in lines[-_LOG_LINES:]:
            log.print(f"  | {line}")
    log.print("error: ", style="bold red", end="")
    log.print(str(error), soft_wrap=True)
    if error.hint:
        log.print("hint:  ", style="bold", end="")
        log.print(error.hint, soft_wrap=True)


class Rows:
    """A table without lines. If it is wider than the terminal, a row takes several lines; nothing is cut off.

    The columns named in ``right`` are aligned to the right.
    """

    def __init__(self, columns: Sequence[str], right: Sequence[str]) -> None:
        self._columns = columns
        self._right = right
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        self._rows.append(tuple(Text(printable(c)) if isinstance(c, str) else c for c in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        made = Table(box=None, pad_edge=False, header_style="bold", show_header=any(self._columns))
        for column in self._columns:
            made.add_column(column, justify="right" if column in self._right else "left", no_wrap=True)
        for cells in self._rows:
            made.add_row(*cells)
        wide = options.update(max_width=_WIDEST)
        if Measurement.get(console, wide, made).maximum <= options.max_width:
            yield made
        else:
            yield from self._lines(options.max_width)

    def _lines(self, width: int) -> Iterator[Text]:
        # Each row: its first cell, then what the others say, with the names of their columns.
        for first, *cells in self._rows:
            yield _uncut(first)
            line = Text()
            for column, cell in zip(self._columns[1:], cells, strict=False):
                if not cell.plain:
                    continue
                part = Text.assemble((f"{column} ", "dim"), cell) if column else cell
                if line and 2 + line.cell_len + 2 + part.cell_len > width:
                    yield _uncut(Text("  ") + line)
                    line = Text()
                line = line + Text("  ") + part if line else part
            if line:
                yield _uncut(Text("  ") + line)


def _uncut(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ignore"
    return text


def table(*columns: str, right: Sequence[str] = ()) -> Rows:
    return Rows(columns, right)
