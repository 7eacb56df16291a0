import os
import signal
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from crtgen.base import budget
from crtgen.base.errors import UsageError
from crtgen.base.folder import SETTINGS, ignored_folder, use_folder
from crtgen.base.version import __version__
from crtgen.cli.help import with_short_help
from crtgen.cli.output import note
from crtgen.cli.output import report as report_error
from crtgen.cli.settings import defaults
from crtgen.lab.settings import current_settings

__all__ = ["COMMANDS", "app", "main"]

_ALSO = "Also:"

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "": {
        "run": "Generate, build, start and infer.",
        "verify": "Compare what the board computes with what is expected.",
        "prove": "Check that the image computes the network, for every input.",
        "generate": "Write a firmware project or a library.",
        "build": "Build a project; prints its files, flash, RAM, worst-case stack.",
        "flash": "Build what has changed, and write the image to the board.",
        "monitor": "Start a project's image and show its log.",
        "inspect": "Show inputs, outputs, layers with their kernels, arena.",
        "eval": "Count what a pipeline, or a network, gets right on labelled data.",
        "fit": "Say which boards hold a model, and how long a run takes.",
        "bench": "Measure models on boards: instructions, flash, RAM, stack.",
        "tune": "Measure every kernel of each layer, and choose the best.",
        "report": "Write a page: layers, memory, time, boards, verification.",
        "view": "Open a local page to try a model on.",
    },
    "Folders of models, CI, this machine:": {
        "init": "Write crtgen.toml: every command works without arguments.",
        "trust": "Allow what a folder's files ask for.",
        "check": "Hold models to their budgets and to crtgen.lock.json.",
        "test": "Verify models on this computer, emulators, connected boards.",
        "sweep": "Measure every combination of models, boards and options.",
        "boards": "List the boards that crtgen knows, or those connected.",
        "doctor": "Check this machine: compilers, QEMU, build tools.",
    },
    _ALSO: {
        "quantize": "Quantise a network to int8 by ONNX Runtime's quantiser.",
        "compile": "Write models in Model Library Format: C, constants, metadata.",
        "migrate": "Find the network of an archive of TVM, to run it on crtgen's kernels.",
        "selftest": "Measure a board: clock, serial port, memories, a network, guard, watchdog.",
        "slot": "Make a model's image for a slot.",
        "push": "Write an image for a slot to a running device.",
        "record": "Read what a device remembers of its last runs.",
        "collect": "Write samples of a running device into labelled files.",
        "replay": "Run what a device recorded, here or on a board, and compare.",
        "slots": "Say what a device has in its slots, confirm it or go back.",
        "worker": "Lend the boards of this computer to sweeps of a Dask scheduler.",
    },
}
"""Commands with their one-line help, by groups. The first group has no title; the last one is listed by name
only.

A command's module is imported when it is called, since some commands need most of crtgen.
"""

# Commands that say more about a folder, or nothing.
_WITHOUT = ("init", "trust", "doctor")


class _Commands(Mapping[str, Any]):
    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return (name for group in COMMANDS.values() for name in group)

    def __len__(self) -> int:
        return sum(map(len, COMMANDS.values()))

    def __getitem__(self, name: str) -> Any:
        if name not in list(self):
            raise KeyError(name)
        if name not in self._loaded:
            alone = typer.Typer(add_completion=False)
            alone.command(name)(import_module(f"crtgen.cli.{name}").command)
            self._loaded[name] = with_short_help(typer.main.get_command(alone))
        return self._loaded[name]


class _Program(typer.core.TyperGroup):
    """The program. Its help lists each command on a line, by groups, and fits a screen of 24 lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = _Commands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        options = "[--folder DIR] [--limit-memory BYTES] [--limit-seconds N]"
        lines = [f"Usage: crtgen {options} COMMAND ...  (-h says more)"]
        for title, group in COMMANDS.items():
            if title == _ALSO:
                lines.append(f"{title} {', '.join(group)}")
                break
            lines += [*filter(None, [title]), *(f"  {name:9} {summary}" for name, summary in group.items())]
        formatter.write("\n".join(lines) + "\n")


app = typer.Typer(
    name="crtgen",
    cls=_Program,
    help="Static C runtimes for Cortex-M from trained networks.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crtgen {__version__}")
        raise typer.Exit


def _limit_memory(nbytes: int) -> int:
    try:
        budget.limit_memory(nbytes)
    except UsageError as error:
        raise typer.BadParameter(error.message) from None
    return nbytes


def _limit_seconds(seconds: int) -> int:
    try:
        budget.limit_seconds(seconds)
    except UsageError as error:
        raise typer.BadParameter(error.message) from None
    return seconds


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
    ] = budget.DEFAULT_MEMORY,
    seconds: Annotated[
        int,
        typer.Option(
            "--limit-seconds",
            metavar="N",
            callback=_limit_seconds,
            is_eager=True,
            help="How long the processor may work on a file.",
        ),
    ] = budget.DEFAULT_SECONDS,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help=f"Use its {SETTINGS}, not that of the project around."),
    ] = None,
) -> None:
    # Static C runtimes for Cortex-M from trained networks.
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return
    try:
        use_folder(folder)
        settings = current_settings()
        if context.invoked_subcommand not in _WITHOUT:
            _say_what_is_ignored()
        context.default_map = defaults(settings, _command(context)) if settings else None
    except UsageError as error:
        report_error(error, as_json="--json" in sys.argv)
        raise typer.Exit(error.exit_code) from None


def _say_what_is_ignored() -> None:
    folder = ignored_folder()
    if folder is not None:
        how = f"crtgen trust uses it from now on, crtgen --folder {folder} this time"
        note(f"{folder / SETTINGS} is not used, since it is in no project: {how}")


def _command(context: typer.Context) -> Any:
    # The command that is called, as Click has it.
    group: Any = context.command
    return group.commands.get(context.invoked_subcommand)


def end_like_an_exit() -> None:
    """On SIGTERM, or when the terminal closes, end the child processes too."""
    sys.unraisablehook = _not_raised
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _not_raised(swallowed: "sys.UnraisableHookArgs") -> None:
    # Python cannot raise an exception while it removes an object, so a signal then ends the program at once.
    if isinstance(swallowed.exc_value, SystemExit):
        os._exit(int(str(swallowed.exc_value.code)))
    sys.__unraisablehook__(swallowed)


def main() -> None:
    end_like_an_exit()
    if "--json" not in sys.argv:
        app()
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:
        report_error(UsageError(error.format_message()), as_json=True)
        sys.exit(UsageError.exit_code)
