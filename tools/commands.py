"""Writes docs/commands.md from the code: every command with its arguments and options.

usage: python tools/commands.py [--check]      --check: change nothing, fail if the page is not up to date
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import typer

from crtgen.cli.app import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"

_HEAD = """# Commands

Written by `tools/commands.py` from the code. `crtgen COMMAND -h` prints the options that are used most,
`--help-all` all of them.

Every command has `--json` ([its result for programs](report.md)) and `--debug` (tracebacks). Exit codes:

| 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |
|---|---|---|---|---|---|---|---|---|
| fine | failure | usage | model | does not fit | build | flash | connection | mismatch, not proven |

Before the command: `--folder DIR` (the folder of a [crtgen.toml](settings.md)), `--limit-memory BYTES` (what
files may make crtgen allocate, default 384 MiB), `--limit-seconds N` (CPU time that a file may take, default
120, of which constants get a hundredth). `crtgen --install-completion` completes commands and options in
bash, zsh, fish and PowerShell; `--show-completion` prints the script.
"""
_EVERYWHERE = ("--json", "--debug", "--help", "--help-all")
_TABLE = "| | | default |\n|---|---|---|"

Row = tuple[str, str, str]
"""An option: its names, what it does, its default."""


def page() -> str:
    """Describe each command, and once, at the end, the options that several commands share."""
    group: Any = typer.main.get_command(app)
    shared = _shared(group.commands.values())
    lines = [_HEAD]
    for name, command in group.commands.items():
        lines += _command(name, command, shared)
    lines += ["## Shared options\n"]
    for panel in dict.fromkeys(shared.values()):
        rows = sorted(row for row, where in shared.items() if where == panel)
        lines += [f"### {panel}\n", _TABLE, *map(_line, rows), ""]
    return "\n".join(lines)


def _shared(commands: Iterable[Any]) -> dict[Row, str]:
    """Options that are equal in several commands, and the panel of the help that shows them."""
    options = [option for command in commands for option in _options(command)]
    often = Counter(map(_row, options))
    return {_row(o): o.rich_help_panel or "Other" for o in options if often[_row(o)] > 1}


def _command(name: str, command: Any, shared: Mapping[Row, str]) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    rows = [_row(option) for option in _options(command)]
    yield f"## crtgen {name}\n"
    yield f"`{' '.join(['crtgen', name, *map(_usage, arguments)])}`\n"
    yield " ".join(command.help.split()) + "\n"
    own = [(f"`{p.name.upper()}`", p.help or "", "") for p in arguments]
    own += [row for row in rows if row not in shared]
    if own:
        yield from (_TABLE, *map(_line, own), "")
    if taken := list(_taken(rows, shared)):
        yield f"Shared options: {'; '.join(taken)}.\n"


def _taken(rows: list[Row], shared: Mapping[Row, str]) -> Iterator[str]:
    """Which shared options a command has, panel by panel: all of them, all but a few, or these."""
    for panel in dict.fromkeys(shared.values()):
        every = [row for row, where in shared.items() if where == panel]
        here = [_name(row) for row in every if row in rows]
        missing = [_name(row) for row in every if row not in rows]
        link = f"[{panel}](#{panel.lower().replace(' ', '-')})"
        if here and len(missing) < len(here):
            yield f"all of {link}" + (f" except {' '.join(missing)}" if missing else "")
        elif here:
            yield f"{' '.join(here)} ({link})"


def _name(row: Row) -> str:
    return row[0].partition(",")[0].partition(" ")[0]


def _options(command: Any) -> list[Any]:
    options = [p for p in command.params if p.param_type_name != "argument"]
    return [p for p in options if p.opts[0] not in _EVERYWHERE]


def _row(option: Any) -> Row:
    return _names(option), option.help or "", _default(option)


def _line(row: Row) -> str:
    return f"| {' | '.join(_cell(each) for each in row)} |"


def _usage(argument: Any) -> str:
    text = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return text if argument.required else f"[{text}]"


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag else f" {option.metavar or _kind(option)}"
    return names + kind


def _kind(option: Any) -> str:
    """What an option takes, by the type of its parameter."""
    annotation = option.type_descriptor.annotation
    kind = get_args(annotation)[0] if get_args(annotation) else annotation
    return {int: "N", float: "X", Path: "PATH"}.get(kind, "TEXT")


def _default(option: Any) -> str:
    default = option.default
    if option.is_flag or default in (None, (), "") or callable(default):
        return ""
    return f"`{default}`"


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != page() and f"{PAGE} is not up to date: run python tools/commands.py")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
