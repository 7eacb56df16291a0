"""``crtgen fit``: which boards hold a model, and how fast it would be there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.boards import all_boards, board_of_core, find_board
from crtgen.cli import options
from crtgen.cli.groups import Files, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.errors import DoesNotFitError, UnsupportedError
from crtgen.measure.fit import Choice, Fit, Fits

__all__ = ["command"]


@flattened
def command(
    models: options.Models,
    files: Files,
    board: Annotated[
        list[str] | None, typer.Option("--board", "-b", help="Boards; all that are known if not given.")
    ] = None,
    core: Annotated[
        list[str] | None, typer.Option("--core", help="Cores, without a board: cortex-m4, for example.")
    ] = None,
    optimize: options.Optimize = "balanced",
    place: options.Place = None,
    pool: options.Pool = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say which boards hold a model, and how long a run takes.

    Flash is estimated within 3 %, RAM is exact; time is by the model of the core and its flash. Nothing is
    built.
    """
    with guarded(as_json, debug) as out:
        named = [find_board(name) for name in board or ()] + [board_of_core(name) for name in core or ()]
        boards = named or [b for b in all_boards() if not b.is_host]
        choice = Choice(optimize, options.places(place or ()), options.pool_size(pool)[0])
        found: list[Fit] = []
        with out.stage() as say:
            for path in models:
                say(f"reading {path.name}")
                fits = Fits(_model(files, path))
                for each in boards:
                    say(f"{path.name} on {each.name}")
                    found.append(fits.on(each, choice))
        out.result({"fits": [fit.to_dict() for fit in found]}, lambda console: _print(console, found))
        if named and not all(fit.fits for fit in found):
            raise typer.Exit(DoesNotFitError.exit_code)


def _model(files: Files, path: Path) -> api.Model:
    loaded = files.load(path)
    if not isinstance(loaded, api.Model):
        raise UnsupportedError(
            "what code needs is known when it is built", where=str(path), hint="crtgen build"
        )
    return loaded


def _print(console: Console, found: Sequence[Fit]) -> None:
    for number, model in enumerate(dict.fromkeys(fit.report.model for fit in found)):
        fits = [fit for fit in found if fit.report.model == model]
        if number:
            console.print()
        console.print(f"{model}: {fits[0].report.macs:,} MACs; flash and RAM in KiB, with the stack")
        sizes = ("library", "RAM", "server", "RAM ", "time")
        rows = table("board", *sizes, "fits", right=sizes)
        for fit in fits:
            rows.add_row(fit.board.name, *_sizes(fit), _time(fit), _verdict(fit))
        console.print(rows)


def _sizes(fit: Fit) -> tuple[str, ...]:
    server = fit.server
    sizes = (fit.library.flash, fit.library.ram, server.flash, server.ram + server.stack)
    known = sizes if fit.board.memories else sizes[:2]
    return (*(f"{size / 1024:.1f}" for size in known), *[""] * (len(sizes) - len(known)))


def _time(fit: Fit) -> str:
    if fit.seconds is None:
        return ""
    return f"{fit.seconds * 1e3:.2f} ms" if fit.seconds < 0.1 else f"{fit.seconds * 1e3:,.0f} ms"


def _verdict(fit: Fit) -> str:
    if not fit.board.memories:
        return ""
    if fit.fits:
        return "yes"
    lacks = ", ".join(f"{name} {size / 1024:.1f} KiB short" for name, size in fit.short.items())
    return f"no: {lacks}" + (f"; {fit.advice} fits" if fit.advice else "")
