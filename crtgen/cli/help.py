"""Short help: ``-h`` shows the usual options of a command, ``--help-all`` all of them."""

from inspect import cleandoc
from typing import Annotated, Any

import typer

__all__ = ["with_short_help"]

# Options for some boards, other people's code, and the last kilobyte; all can stand in crtgen.toml.
_SELDOM = frozenset(
    (
        "--baud",
        "--channels",
        "--cmsis-nn",
        "--codegen",
        "--core-dump",
        "--cores",
        "--debug",
        "--executor",
        "--fallback",
        "--feed",
        "--fold",
        "--fvp-path",
        "--graph-json",
        "--hardware-map",
        "--io",
        "--keep-inputs",
        "--mean",
        "--npu",
        "--npu-driver",
        "--params",
        "--place",
        "--platform",
        "--pool",
        "--push",
        "--receive",
        "--rtt",
        "--runner",
        "--serial",
        "--shape",
        "--sliding",
        "--stack",
        "--std",
        "--target",
        "--toolchain",
        "--tune",
    )
)

# A command with at most this many options shows all of them in its short help.
_MOST = 12


def with_short_help(command: Any) -> Any:
    """Wrap a command that has many options so that its short help omits the rare ones."""
    # Typer keeps line breaks within all paragraphs but the first.
    command.help = "\n\n".join(" ".join(p.split()) for p in cleandoc(command.help or "").split("\n\n"))
    options = [p for p in command.params if p.param_type_name == "option"]
    seldom = [p for p in options if p.opts[0] in _SELDOM]
    if len(options) <= _MOST or not seldom:
        return command

    def hide(hidden: bool) -> None:
        for option in seldom:
            option.hidden = hidden

    def show(context: typer.Context, wanted: bool) -> None:
        if wanted:
            hide(False)
            typer.echo(context.get_help())
            hide(True)
            raise typer.Exit

    text = f"Show {len(seldom)} more options, which can stand in crtgen.toml, too."
    wish: Any = typer.Option("--help-all", callback=show, is_eager=True, expose_value=False, help=text)
    alone = typer.Typer(add_completion=False)

    @alone.command()
    def _nothing(wanted: Annotated[bool, wish] = False) -> None:
        pass  # Typer reads options from functions only

    hide(True)
    made: Any = typer.main.get_command(alone)
    command.params.append(made.params[0])
    return command
