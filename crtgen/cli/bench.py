"""``crtgen bench``: figures of the models on the boards, held to a budget, and of the RPC."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.show import figures_table, print_layers, print_real
from crtgen.errors import MismatchError, UsageError
from crtgen.measure.benchmark import RpcFigures, measure_model, measure_rpc
from crtgen.measure.budget import Budget, Entry, Excess, compare, read_budget, write_budget
from crtgen.project.options import STACK
from crtgen.report import Report

__all__ = ["command"]


def command(
    models: Annotated[list[Path] | None, typer.Argument(help="Model files (.tflite, .onnx).")] = None,
    board: Annotated[
        list[str] | None, typer.Option("--board", "-b", help="Boards; repeat it for several.")
    ] = None,
    rpc: Annotated[bool, typer.Option("--rpc", help="Measure the RPC instead of the model.")] = False,
    optimize: options.Optimize = "balanced",
    codegen: options.Codegen = None,
    cmsis_nn: options.CmsisNn = None,
    fallback: options.Fallback = False,
    fold: options.Fold = True,
    layers: Annotated[bool, typer.Option("--layers", help="Print the instructions of each layer.")] = False,
    budget: Annotated[
        Path | None, typer.Option(help="Measure what this file has a budget for, and fail where it is worse.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write what is measured to the budget.")] = False,
    stack: options.Stack = STACK,
    toolchain: options.Toolchain = None,
    trust: options.Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure models x boards: instructions, flash, RAM, stack; with --rpc: calls and bytes per second."""
    with guarded(as_json, debug) as out:
        if not models:
            raise UsageError("no model is named", hint="crtgen bench MODEL.tflite --board mps2_an386")
        if update and budget is None:
            raise UsageError("--update writes a budget, and none is named", hint="add --budget FILE")
        if rpc and (layers or budget or len(models) > 1 or codegen or cmsis_nn or fallback):
            raise UsageError(
                "--rpc measures the RPC with one model, without --layers, --budget and --codegen"
            )
        known = read_budget(budget) if budget and (budget.exists() or not update) else Budget(())
        boards = board or ["mps2_an386"]
        with out.stage() as say:
            if rpc:
                model = api.load(models[0], trust=trust)
                lines = [measure_rpc(model.compile(b), toolchain=toolchain) for b in boards]
                out.result({"rpc": [r.to_dict() for r in lines]}, lambda console: _print_rpc(console, lines))
                return
            jobs = [(model, b, optimize) for model in models for b in boards]
            if budget:
                files = _by_name(models)
                jobs = jobs if update else _budgeted(known, files, board)
            chosen = options.generators(codegen, cmsis_nn)
            results = []
            for path, name, level in jobs:
                say(f"{path.name} on {name}")
                compiled = api.load(path, trust=trust).compile(
                    name,
                    optimize=level,
                    passes=options.passes(fold),
                    generators=chosen,
                    fallback=fallback,
                )
                results.append(measure_model(compiled, stack=stack, toolchain=toolchain))
        measured = [Entry.of(result) for result in results]
        if budget and update:
            write_budget(budget, known.updated(measured))
        worse = [] if update else _worse(known, measured)
        data = {"results": [r.to_dict() for r in results]}
        if budget:
            data["worse"] = [excess.to_dict() for excess in worse]
        out.result(data, _printer(results, worse, layers))
        if worse:
            raise typer.Exit(MismatchError.exit_code)


def _by_name(models: Sequence[Path]) -> dict[str, Path]:
    """The files by the models' names, which a budget knows them by."""
    names: dict[str, Path] = {}
    for path in models:
        name = api.load(path).name
        if name in names:
            hint = f"{names[name]} is called that, too"
            raise UsageError(f"a budget has one model {name}", where=str(path), hint=hint)
        names[name] = path
    return names


def _budgeted(
    budget: Budget, models: Mapping[str, Path], boards: Sequence[str] | None
) -> list[tuple[Path, str, str]]:
    """What to measure: every entry of a named model, on the named boards if there are any."""
    wanted: Sequence[str | None] = boards or [None]
    jobs = []
    for name, path in models.items():
        entries = [e for e in budget.entries if e.model == name]
        for board in wanted:
            chosen = [e for e in entries if board in (None, e.board)]
            if not chosen:
                where = f" on {board}" if board else ""
                raise UsageError(f"the budget has no entry for {name}{where}", hint="--update adds one")
            jobs += [(path, e.board, e.optimize) for e in chosen]
    return jobs


def _worse(budget: Budget, measured: Sequence[Entry]) -> list[Excess]:
    allowed = {entry.key: entry for entry in budget.entries}
    pairs = [(allowed[entry.key], entry) for entry in measured if entry.key in allowed]
    return [excess for a, b in pairs for excess in compare(a, b, budget.tolerance)]


def _printer(results: Sequence[Report], worse: Sequence[Excess], layers: bool) -> Callable[[Console], None]:
    def render(console: Console) -> None:
        console.print(figures_table(results))
        print_real(console, results)
        for report in results if layers else ():
            print_layers(console, report, "instructions")
        for excess in worse:
            console.print(f"\nworse: {excess}")

    return render


def _print_rpc(console: Console, results: Sequence[RpcFigures]) -> None:
    columns = ("calls/s", "up MB/s", "down MB/s")
    rows = table("board", *columns, right=columns)
    for r in results:
        rates = (f"{r.up_bytes_per_second / 1e6:.2f}", f"{r.down_bytes_per_second / 1e6:.2f}")
        rows.add_row(r.board, f"{r.calls_per_second:,.0f}", *rates)
    console.print(rows)
