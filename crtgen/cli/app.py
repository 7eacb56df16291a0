"""The commands, put together."""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
import typer.core

from crtgen import files
from crtgen.cli import (
    bench,
    boards,
    build,
    check,
    compile,
    doctor,
    fit,
    flash,
    generate,
    init,
    inspect,
    monitor,
    quantize,
    report,
    run,
    sweep,
    test,
    tune,
    verify,
    worker,
)
from crtgen.cli.output import report as report_error
from crtgen.cli.settings import defaults
from crtgen.errors import UsageError
from crtgen.settings import read_settings
from crtgen.version import __version__

__all__ = ["app", "main"]

_GROUPS = {
    "From a model to a board": (run, verify, generate, build, flash, monitor),
    "Models": (inspect, fit, bench, tune, report, quantize, compile),
    "Folders of models, CI, this machine": (init, check, test, sweep, boards, doctor, worker),
}


class _Program(typer.core.TyperGroup):
    """The program, whose help is a line for each command, by groups: it fits a screen of 24 lines."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        lines = ["Usage: crtgen [--version] [--limit-memory BYTES] COMMAND ...  (COMMAND --help says more)"]
        for title, modules in _GROUPS.items():
            names = map(_name, modules)
            lines += [f"{title}:", *(f"  {n:9} {self.commands[n].get_short_help_str(68)}" for n in names)]
        formatter.write("\n".join(lines))


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


app = typer.Typer(
    name="crtgen",
    cls=_Program,
    help="Static C runtimes for Cortex-M from trained networks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

for group in _GROUPS.values():
    for module in group:
        app.command(name=_name(module))(module.command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crtgen {__version__}")
        raise typer.Exit


def _limit_memory(nbytes: int) -> int:
    try:
        files.limit_memory(nbytes)
    except UsageError as error:
        raise typer.BadParameter(error.message) from None
    return nbytes


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
    memory: Annotated[
        int,
        typer.Option(
            "--limit-memory",
            metavar="BYTES",
            callback=_limit_memory,
            is_eager=True,
            help="What the contents of files may make crtgen allocate.",
        ),
    ] = files.DEFAULT_LIMIT,
) -> None:
    """Static C runtimes for Cortex-M from trained networks."""
    try:
        settings = read_settings(Path())
        context.default_map = defaults(settings, _commands(context)) if settings else None
    except UsageError as error:
        report_error(error, as_json="--json" in sys.argv)
        raise typer.Exit(error.exit_code) from None


def _commands(context: typer.Context) -> Mapping[str, Any]:
    """The commands by name, as Click has them."""
    group: Any = context.command
    return dict(group.commands)


def end_like_an_exit() -> None:
    """A polite kill, or the end of the terminal, ends the processes that this one started, too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Entry point of the program ``crtgen``."""
    end_like_an_exit()
    if "--json" not in sys.argv:
        app()
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:
        report_error(UsageError(error.format_message()), as_json=True)
        sys.exit(UsageError.exit_code)
