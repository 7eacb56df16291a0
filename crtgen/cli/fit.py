"""``crtgen fit``: which boards a model fits, and how fast it would run there."""

import csv
import sys
from collections.abc import Sequence
from io import StringIO
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console

from crtgen.base.errors import DoesNotFitError, UsageError
from crtgen.boards import CORES, Core, board_of_core, chip_board, find_board, silicon_range
from crtgen.cli import choices, options
from crtgen.cli.groups import Battery, Coding, Files, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.show import days_text, number
from crtgen.lab.measure.fit import Fit, FitChoice, Fits, boards_for

__all__ = ["command"]


@flattened
def command(
    models: options.Models,
    files: Files,
    battery: Battery,
    coding: Coding,
    board: Annotated[
        list[str] | None,
        typer.Option(
            "--board",
            "-b",
            help="Boards; default: all that crtgen knows.",
            autocompletion=options.board_names,
        ),
    ] = None,
    core: Annotated[
        list[str] | None, typer.Option("--core", help="Cores instead of boards: cortex-m4, for example.")
    ] = None,
    chip: Annotated[
        list[str] | None,
        typer.Option("--chip", help="Chips of CMSIS packs instead of boards: STM32F411RE, for example."),
    ] = None,
    pack: options.Pack = None,
    place: options.Place = None,
    pool: options.Pool = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print a line of CSV for each model on each board.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say which boards hold a model, and how long a run takes.

    Figures are those of the model as a library. Flash is estimated within 3 %, RAM without the stack is
    exact, time is modelled. Nothing is built, so no compiler is needed.
    """
    with guarded(as_json, debug) as out:
        named = [find_board(name) for name in board or ()] + [board_of_core(name) for name in core or ()]
        named += [chip_board(name, pack) for name in chip or ()]
        request = coding.request(place or ())
        boards = battery.boards(named or boards_for(request["generators"]))
        if not boards:
            hint = "name boards by --board, or a core: --core cortex-m55"
            raise UsageError(f"no board that crtgen knows has the NPU {coding.npu}", hint=hint)
        choice = FitChoice(
            coding.optimize, choices.places(place or ()), choices.pool_size(pool)[0], coding.feed
        )
        found: list[Fit] = []
        with out.stage() as say:
            for path in models:
                say(f"reading {path.name}")
                fits = Fits(files.load_network(path), **request)
                for each in boards:
                    say(f"{path.name} on {each.name}")
                    found.append(fits.on(each, choice))
        if as_csv and not as_json:
            sys.stdout.write(_csv(found))
        else:
            out.result(
                {"fits": [fit.to_dict() | battery.to_dict(fit.board, fit.report) for fit in found]},
                lambda console: _print(console, found, battery),
            )
        if named and not all(fit.fits for fit in found):
            raise typer.Exit(DoesNotFitError.exit_code)


def _print(console: Console, found: Sequence[Fit], battery: Battery) -> None:
    models = list(dict.fromkeys(fit.report.model for fit in found))
    if len(models) > 1:
        _print_matrix(console, models, found)
        return
    console.print(f"{models[0]}: {found[0].report.macs:,} MACs; flash and RAM of the library, in KiB")
    copies = any(fit.resident for fit in found)
    has_energy = any(fit.report.energy_uj is not None for fit in found)
    has_npu = any(fit.report.npu for fit in found)
    columns = (
        "flash",
        "RAM",
        *(["copied"] if copies else []),
        "time",
        *(["NPU cycles"] if has_npu else []),
        *(["µJ"] if has_energy else []),
        *(["days"] if battery.every else []),
    )
    rows = table("board", *columns, "fits", right=columns)
    for fit in found:
        cells = [f"{size / 1024:.1f}" for size in (fit.library.flash, fit.library.ram)]
        cells += [f"{sum(fit.resident.values()) / 1024:.1f}" if fit.resident else ""] if copies else []
        cells += [_time(fit), *([_npu_cycles(fit)] if has_npu else [])]
        cells += [number(fit.report.energy_uj)] if has_energy else []
        if battery.every:
            cells.append(days_text(battery.days(fit.board, fit.report)))
        rows.add_row(fit.board.name, *cells, _verdict(fit))
    console.print(rows)
    _print_notes(console, found)


def _print_matrix(console: Console, models: Sequence[str], found: Sequence[Fit]) -> None:
    # A row for each board, a column for each model: how long it takes where it fits.
    console.print("how long a run takes, where the library fits")
    rows = table("board", *models, right=models)
    for board, fits in groupby(sorted(found, key=lambda fit: fit.board.name), lambda fit: fit.board.name):
        by_model = {fit.report.model: fit for fit in fits}
        cells = (by_model[model] for model in models)
        rows.add_row(board, *((_time(fit) or "yes") if fit.fits else "no" for fit in cells))
    console.print(rows)
    _print_notes(console, found)


def _print_notes(console: Console, found: Sequence[Fit]) -> None:
    if any(fit.report.npu for fit in found):
        console.print("time: the core's, without the NPU; NPU cycles: by Vela's estimate, at the NPU's clock")
    _print_margins(console, found)
    _print_servers(console, found)


def _print_margins(console: Console, found: Sequence[Fit]) -> None:
    for fit in (fit for fit in found if fit.is_moved):
        reach = {memory.name: memory.reach for memory in fit.board.memories}
        sizes = ", ".join(f"{size / 1024:,.1f} KiB in {m}{reach[m]}" for m, size in fit.arena.items())
        where = "a library" if fit.is_spread else "an image"
        console.print(f"{fit.board.name}: the arena of {fit.report.model} in {where}: {sizes}")
    if any(fit.resident for fit in found):
        console.print("copied: constants that an image has in RAM, unless --place weights=flash")
    for fit in found:
        nbytes, cycles = fit.in_ram
        if cycles > (fit.report.cycles_estimated or 0) / 50:
            share = cycles / (fit.report.cycles_estimated or cycles)
            console.print(
                f"{fit.board.name}: {nbytes / 1024:,.1f} KiB more RAM saves {share:.0%} of the time"
            )
    margins: dict[float, dict[str, None]] = {}
    timed = {fit.board.core.name for fit in found if fit.seconds is not None}
    for core in (core for core in CORES.values() if core.name in timed):
        least, greatest = silicon_range(core)
        margins.setdefault((greatest - least) / (greatest + least), {})[_short_name(core)] = None
    if margins:
        told = (f"{', '.join(names)} ±{margin:.0%}" for margin, names in sorted(margins.items()))
        console.print(f"times are modelled: {'; '.join(told)}")
    if any(fit.is_assumed and fit.seconds is not None for fit in found):
        console.print("~ for a usual flash; [memory.flash.reads] in the board's file describes its own")
    if any(fit.is_rough and fit.seconds is not None for fit in found):
        console.print("~ for a flash at a serial bus: reads in sequence may wait half as long")
    for source, names in _sources(found).items():
        console.print(f"µJ of {', '.join(names)}: {source}")


def _print_servers(console: Console, found: Sequence[Fit]) -> None:
    small = list(dict.fromkeys(fit.board.name for fit in found if fit.fits and fit.server_short))
    if not small:
        return
    console.print(f"too small for the server of the RPC: {', '.join(small)}")
    advice = [f"{fit.server_advice} on {fit.board.name}" for fit in found if fit.server_advice]
    console.print(f"  measure by a standalone image (generate --type standalone){_or(advice)}")


def _sources(found: Sequence[Fit]) -> dict[str, dict[str, None]]:
    # The boards by what they take.
    said: dict[str, dict[str, None]] = {}
    for fit in found:
        if fit.board.energy is not None:
            energy = fit.board.energy
            said.setdefault(f"{energy.pj_per_cycle:.0f} pJ a cycle, {energy.asleep}", {})[fit.board.name] = (
                None
            )
    return said


def _or(advice: Sequence[str]) -> str:
    return f", or with {', '.join(advice)}" if advice else ""


def _short_name(core: Core) -> str:
    return core.family.removeprefix("cortex-").upper().replace("PLUS", "+")


def _npu_cycles(fit: Fit) -> str:
    return f"{fit.report.npu['cycles_by_vela']:,}" if fit.report.npu else ""


def _time(fit: Fit) -> str:
    if fit.seconds is None:
        return ""
    seconds = f"{fit.seconds * 1e3:.2f} ms" if fit.seconds < 0.1 else f"{fit.seconds * 1e3:,.0f} ms"
    return f"~ {seconds}" if fit.is_assumed or fit.is_rough else seconds


def _verdict(fit: Fit) -> str:
    if not fit.board.memories:
        return ""
    if fit.fits:
        return "yes"
    lacks = ", ".join(f"{name} {size / 1024:.1f} KiB short" for name, size in fit.short.items())
    return f"no: {lacks}" + (f"; {fit.advice} fits" if fit.advice else "")


def _csv(found: Sequence[Fit]) -> str:
    # A row for each model on each board, sizes in bytes.
    text = StringIO()
    columns = (
        "model",
        "board",
        "core",
        "fits",
        "flash_bytes",
        "ram_bytes",
        "seconds",
        "advice",
        "server_fits",
        "npu_cycles_by_vela",
    )
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    for fit in found:
        sizes = (fit.library.flash, fit.library.ram)
        told = "" if fit.seconds is None else f"{fit.seconds:.6g}"
        names = (fit.report.model, fit.board.name, fit.board.core.name)
        row = (*names, fit.fits, *sizes, told, fit.advice, not fit.server_short)
        rows.writerow((*row, fit.report.npu["cycles_by_vela"] if fit.report.npu else ""))
    return text.getvalue()
