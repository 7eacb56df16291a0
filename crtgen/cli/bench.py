"""``crtgen bench``: figures of models on boards, at one level or at each, and of the RPC."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from crtgen.api.report import Report
from crtgen.base.errors import UsageError
from crtgen.boards import find_board
from crtgen.cli import options
from crtgen.cli.groups import Battery, Coding, Files, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.show import figures_table, print_layers, print_npu, print_real
from crtgen.compiler.level import LEVELS
from crtgen.device.run import Site
from crtgen.lab.measure.benchmark import RpcFigures, measure_model, measure_rpc
from crtgen.lab.measure.pareto import front, plot

__all__ = ["command"]


@flattened
def command(
    battery: Battery,
    coding: Coding,
    files: Files,
    models: Annotated[list[Path] | None, typer.Argument(help="Model files (.tflite, .onnx).")] = None,
    board: Annotated[
        list[str] | None,
        typer.Option(
            "--board", "-b", help="Boards; repeat it for several.", autocompletion=options.board_names
        ),
    ] = None,
    rpc: Annotated[bool, typer.Option("--rpc", help="Measure the RPC instead of the model.")] = False,
    pareto: Annotated[
        bool,
        typer.Option("--pareto", help="Measure each level, plot them, and mark those that no other beats."),
    ] = False,
    place: options.Place = None,
    layers: Annotated[bool, typer.Option("--layers", help="Print the instructions of each layer.")] = False,
    stack: options.Stack = None,
    simulate: options.Simulate = False,
    toolchain: options.Toolchain = None,
    trust: options.Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure models on boards: instructions, flash, RAM, stack."""
    with guarded(as_json, debug) as out:
        if not models:
            raise UsageError("no model is named", hint="crtgen bench MODEL.tflite --board mps2_an386")
        external = coding.codegen or coding.cmsis_nn or coding.fallback or coding.npu
        if rpc and (layers or pareto or len(models) > 1 or external):
            raise UsageError(
                "--rpc measures the RPC with one model, without --layers, --pareto and --codegen",
                hint="leave the other options out",
            )
        boards = battery.boards([find_board(name) for name in board or ["mps2_an386"]])
        site = Site(simulate=simulate)
        with out.stage() as say:
            if rpc:
                model = files.load(models[0], trust)
                compiled = [coding.compile_for([model], b, say, place or ()) for b in boards]
                lines = [measure_rpc(each, toolchain=toolchain, site=site) for each in compiled]
                out.result({"rpc": [r.to_dict() for r in lines]}, lambda console: _print_rpc(console, lines))
                return
            levels = tuple(LEVELS) if pareto else (coding.optimize,)
            groups = []
            for path, on in product(models, boards):
                loaded = files.load(path, trust)
                results = []
                for level in levels:
                    say(f"{path.name} on {on.name}, {level}")
                    leveled = replace(coding, optimize=level)
                    made = leveled.compile_for([loaded], on, say, place or ())
                    results.append(measure_model(made, stack=stack, toolchain=toolchain, site=site))
                groups.append(results)
        on_boards = {each.name: each for each in boards}
        days = [battery.days(on_boards[r.board], r) for results in groups for r in results]
        data = [
            r.to_dict() | battery.to_dict(on_boards[r.board], r) | ({"on_front": good} if pareto else {})
            for results in groups
            for r, good in zip(results, front(results), strict=True)
        ]
        shown = _Days(days, [*battery.asleep(boards)]) if battery.every else _Days((), ())
        out.result({"results": data}, _printer(groups, pareto, layers, shown))


class _Days(NamedTuple):
    each: Sequence[float | None]
    notes: Sequence[str]


def _printer(
    groups: Sequence[Sequence[Report]], pareto: bool, layers: bool, days: _Days
) -> Callable[[Console], None]:
    every = [report for results in groups for report in results]

    def render(console: Console) -> None:
        console.print(figures_table(every, days.each))
        for line in days.notes:
            console.print(line)
        print_real(console, every)
        print_npu(console, every)
        for results in groups if pareto else ():
            _print_front(console, results)
        for report in every if layers else ():
            print_layers(console, report, "instructions")

    return render


def _print_front(console: Console, results: Sequence[Report]) -> None:
    # Choices that another one beats, and a plot if there is one model and one board.
    console.print(f"\n{results[0].model} on {results[0].board}")
    for result, good in zip(results, front(results), strict=True):
        if not good:
            console.print(f"{result.optimize} is no better than another in anything")
    if all(r.instructions is not None for r in results):
        console.print(plot(results))


def _print_rpc(console: Console, results: Sequence[RpcFigures]) -> None:
    columns = ("calls/s", "up MB/s", "down MB/s")
    rows = table("board", *columns, right=columns)
    for r in results:
        rates = (f"{r.up_bytes_per_second / 1e6:.2f}", f"{r.down_bytes_per_second / 1e6:.2f}")
        rows.add_row(r.board, f"{r.calls_per_second:,.0f}", *rates)
    console.print(rows)
