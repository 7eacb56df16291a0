"""Defaults of commands from ``crtgen.toml``.

Options in that file are data. Options that can do more than change a result are listed here: output files
must be inside the folder, and an option that opens a port or runs a program needs the user's consent
(``crtgen trust``).
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from crtgen.base import trust
from crtgen.base.errors import UsageError
from crtgen.base.folder import SETTINGS
from crtgen.cli.output import report
from crtgen.lab.settings import ModelSettings, Settings, current_settings

__all__ = [
    "ASKS",
    "DATA",
    "DIRECTORY",
    "READ",
    "SAID",
    "WRITTEN",
    "asks_of",
    "cases_file",
    "chosen_models",
    "defaults",
]

DIRECTORY = "firmware"
"""Default directory of a folder's project."""

READ = frozenset(
    (
        "against",
        "baseline",
        "calibrate",
        "data",
        "drift",
        "expect",
        "file",
        "graph-json",
        "hardware-map",
        "image",
        "input",
        "labels",
        "pack",
        "params",
        "power",
        "since",
        "source",
        "tune",
        "watch",
    )
)
"""Options that name a file to read."""

WRITTEN = frozenset(
    (
        "cbor",
        "certificate",
        "core-dump",
        "counterexample",
        "dir",
        "evidence",
        "export",
        "header",
        "junit",
        "lock",
        "output",
        "page",
        "report",
        "sds",
        "store",
    )
)
"""Options that name a file or folder to write."""

ASKS: Mapping[str, str] = {
    "cmsis-nn": "compiles and runs the C in {}",
    "codegen": "gives the code generator options: {}",
    "fvp-path": "runs the program {}",
    "gdb-server": "connects to {}",
    "key": "signs with the key {}",
    "port": "opens the line {}",
    "scheduler": "lets {} run programs here",
}
"""Options that do more than compute, and what they ask for."""

DATA = frozenset(
    (
        "arena",
        "baud",
        "board",
        "by",
        "cases",
        "cell",
        "channels",
        "chip",
        "ci",
        "confirm",
        "connected",
        "core",
        "cores",
        "count",
        "csv",
        "debug",
        "every",
        "example",
        "executor",
        "explain",
        "fallback",
        "feed",
        "flash",
        "fold",
        "for",
        "goal",
        "graph",
        "io",
        "json",
        "keep-inputs",
        "label",
        "layers",
        "length",
        "mean",
        "model",
        "modules",
        "npu",
        "npu-driver",
        "optimize",
        "own-arenas",
        "pareto",
        "pins",
        "place",
        "platform",
        "pool",
        "profile",
        "prove-again",
        "push",
        "quantize-input",
        "ram",
        "reach",
        "receive",
        "record",
        "registry",
        "revert",
        "repeat",
        "require",
        "retry-failed",
        "rpc",
        "rtt",
        "runner",
        "seconds",
        "serial",
        "shape",
        "simulate",
        "sliding",
        "slot",
        "slots",
        "stack",
        "std",
        "symbols",
        "target",
        "timeout",
        "toolchain",
        "type",
        "version",
        "volts",
        "watch-layers",
        "workers",
    )
)
"""Options that change what is computed or shown, and nothing else."""

SAID = frozenset(("browser", "force", "from-call", "help-all", "trust", "update", "yes"))
"""Options that only the command line may set."""

# Options that decide what is computed. A command that reads models takes them, or refuses them by name:
# otherwise one command would verify other code than the next one ships.
_CODE = frozenset(
    (
        *("channels", "cmsis-nn", "codegen", "cores", "executor", "fallback", "feed", "fold", "graph-json"),
        *("io", "keep-inputs", "npu", "npu-driver", "optimize", "params", "place", "shape", "sliding"),
        "tune",
    )
)

_READS_MODELS = frozenset(("model", "models", "source"))

# Commands that read models and compile nothing of them for a board of the person's. What view runs are
# commands that look at the settings themselves.
_OWN_CODE = ("init", "migrate", "push", "quantize", "sweep", "trust", "view")

# Commands that take each model with its own boards, see ``chosen_models``.
_PER_MODEL = ("check", "test")


def defaults(settings: Settings, command: Any) -> dict[str, dict[str, Any]]:
    """Return the defaults of a Click command's parameters by name; empty if ``command`` is None.

    If a command takes one model or board, the first one is used. Raises ``UsageError`` for an option that no
    command has. Consent is looked up only when a command uses the value.
    """
    _check_options(settings)
    if command is None:
        return {}
    _check_code(settings, command)
    values = {p.name: _value(settings, command.name, p) for p in command.params}
    left_out = ("models", "board") if command.name in _PER_MODEL else ()
    return {command.name: {key: v for key, v in values.items() if v is not None and key not in left_out}}


def _check_code(settings: Settings, command: Any) -> None:
    # Refuse an option that decides what is computed, and that the command would not know of.
    if command.name in _OWN_CODE or not any(
        p.param_type_name == "argument" and p.name in _READS_MODELS for p in command.params
    ):
        return
    taken = {_long_name(p) for p in command.params if p.param_type_name == "option"} | {command.name}
    for name in sorted(_CODE & settings.options.keys() - taken):
        raise UsageError(
            f"crtgen {command.name} has no --{name}, so it would look at different code",
            where=f"{settings.path}: {name}",
            hint=f"run it outside of this folder, or with --folder naming one without {name}",
        )


def _long_name(option: Any) -> str:
    return str(max(option.opts, key=len)).removeprefix("--")


def _check_options(settings: Settings) -> None:
    settings.check_options(DATA | READ | WRITTEN | ASKS.keys() | SAID)
    for name in SAID & settings.options.keys():
        hint = "crtgen trust ARCHIVE" if name == "trust" else f"say --{name} when you mean it"
        where = f"{settings.path}: {name}"
        raise UsageError("this option can be given on the command line only", where=where, hint=hint)


def _value(settings: Settings, command: str, parameter: Any) -> Any:
    # A value, or a function that finds it; None if the settings have none.
    if parameter.param_type_name == "argument":
        return _argument(settings, command, parameter)
    name = _long_name(parameter)
    if name == "board":
        return _one_or_all(list(settings.boards), parameter.multiple)
    value = settings.options.get(name)
    if value is None or name not in READ | WRITTEN | ASKS.keys():
        return value
    found = _in_folder(settings, name, value)
    asks = tuple(_asks(settings, name, value))
    return _allowed(settings, asks, found) if asks else found


def _argument(settings: Settings, command: str, parameter: Any) -> Any:
    if parameter.name == "directory" and settings.folder is not None:
        directory = settings.folder / DIRECTORY
        if command == "generate":
            asks = _writes(settings, DIRECTORY, directory)
            return _allowed(settings, tuple(asks), str(directory))
        return lambda: _own_project(directory)
    files = [str(model.file) for model in settings.models]
    data = [str(model.data) for model in settings.models[:1] if model.data is not None]
    known = {"models": files, "model": files, "source": files, "data": data}
    return _one_or_all(known.get(parameter.name, []), parameter.nargs == -1)


def _one_or_all(values: list[str], several: bool) -> Any:
    return values if several else next(iter(values), None)


def _in_folder(settings: Settings, name: str, value: Any) -> Any:
    # Paths are relative to the file that has them.
    is_path = name in READ | WRITTEN | {"cmsis-nn", "fvp-path", "key"} and isinstance(value, str)
    return str(settings.folder / value) if is_path else value


def asks_of(settings: Settings) -> list[str]:
    named = (ask for name, value in settings.options.items() for ask in _asks(settings, name, value))
    archives = (
        f"trusts the code in {model.file} of {model.trust}" for model in settings.models if model.trust
    )
    return [*named, *_writes(settings, DIRECTORY, settings.folder / DIRECTORY), *archives]


def _asks(settings: Settings, name: str, value: Any) -> Iterator[str]:
    if name in WRITTEN:
        yield from _writes(settings, name, settings.folder / str(value))
    elif name == "codegen":
        values = value if isinstance(value, list) else [value]
        yield from (ASKS[name].format(v) for v in values if ":" in str(v))
    elif name in ASKS:
        yield ASKS[name].format(value)


def _writes(settings: Settings, name: str, path: Path) -> Iterator[str]:
    if settings.leads_out(path):
        yield f"writes outside of the folder, to {path.resolve()} ({name})"
    elif hidden := settings.hidden_part(path):
        yield f"writes below {hidden}, which other programs obey ({name})"


def _allowed(settings: Settings, asks: Sequence[str], value: Any) -> Callable[[], Any]:
    # A value that is refused, once a command takes it, unless the person allowed it.
    def checked() -> Any:
        _told(lambda: settings.require(asks))
        return value

    return checked


def _own_project(directory: Path) -> str:
    # The project of the folder, where this person generated it: to build one runs what it says.
    def check() -> None:
        if directory.exists() and not trust.is_claimed(directory):
            hint = f"if it is yours, name it: {directory}"
            raise UsageError("you did not generate this project", where=str(directory), hint=hint)

    _told(check)
    return str(directory)


def _told(check: Callable[[], None]) -> None:
    # Click calls these functions: an error is printed here.
    try:
        check()
    except UsageError as error:
        report(error, as_json="--json" in sys.argv)
        raise typer.Exit(error.exit_code) from None


def cases_file(source: Path, expect: Path | None) -> Path | None:
    settings = current_settings() if expect is None else None
    return next((m.expect for m in settings.models if m.file == source), None) if settings else expect


def chosen_models(models: Sequence[Path] | None, boards: Sequence[str] | None) -> list[ModelSettings]:
    """Return the named models, or else all of ``crtgen.toml``, with their settings.

    ``boards`` replace theirs. Raises ``UsageError`` if no model is found.
    """
    settings = current_settings()
    known = {model.file: model for model in (settings.models if settings else ())}
    if models:
        named = [
            known.get(path, ModelSettings(path, None, settings.boards if settings else (), {}))
            for path in models
        ]
    else:
        named = list(known.values())
    if not named:
        raise UsageError(
            "no model is named", hint=f"name one, or list them in {SETTINGS}: crtgen init makes it"
        )
    return [replace(model, boards=tuple(boards)) for model in named] if boards else named
