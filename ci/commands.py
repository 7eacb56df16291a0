"""Writes docs/commands.md: every command with its arguments and options, from the code.

usage: python ci/commands.py [--check]      --check: change nothing, fail if the page is not up to date
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer

from crtgen.cli.app import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"

_HEAD = """# Commands

Written by `ci/commands.py` from the code. `crtgen COMMAND --help-all` says the same, `-h` what is used most.

Exit codes: 0 fine, 1 failure, 2 usage, 3 model, 4 does not fit, 5 build, 6 flash, 7 connection, 8 mismatch.

`crtgen --install-completion` completes commands and options in bash, zsh, fish and PowerShell;
`crtgen --show-completion` prints the script instead. `--limit-memory BYTES`, before the command, limits
what files may make crtgen allocate, 384 MiB unless given; `--limit-seconds N` how long the processor
may work on a file, 120, of which constants get a hundredth.
"""
_EVERYWHERE = ("--json", "--debug", "--help", "--help-all")


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(app)
    return "\n".join(
        [_HEAD, *(line for name in group.commands for line in _command(name, group.commands[name]))]
    )


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(_usage(p) for p in arguments)
    yield f"## crtgen {name}\n"
    yield f"`crtgen {name} {usage}`\n" if usage else f"`crtgen {name}`\n"
    yield " ".join(command.help.split()) + "\n"
    options = [p for p in command.params if p not in arguments and p.opts[0] not in _EVERYWHERE]
    rows = [(f"`{p.name.upper()}`", p.help or "", "") for p in arguments]
    rows += [(_names(p), p.help or "", _default(p)) for p in options]
    if rows:
        yield "| | | default |\n|---|---|---|"
        yield from (f"| {' | '.join(_cell(c) for c in row)} |" for row in rows)
        yield ""


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
    if option.is_flag or default is None or default == () or callable(default):
        return ""
    return f"`{default}`"


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != page() and f"{PAGE} is not up to date: run python ci/commands.py")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
