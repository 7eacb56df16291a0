"""``crtgen bench``: figures of the models on the boards, and of the RPC."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.benchmark import ModelFigures, RpcFigures, measure_model, measure_rpc
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.errors import UsageError

__all__ = ["command"]


def command(
    models: Annotated[list[Path] | None, typer.Argument(help="Model files (.tflite).")] = None,
    board: Annotated[
        list[str] | None, typer.Option("--board", "-b", help="Boards; repeat it for several.")
    ] = None,
    rpc: Annotated[bool, typer.Option("--rpc", help="Measure the RPC instead of the model.")] = False,
    optimize: options.Optimize = "balanced",
    layers: Annotated[bool, typer.Option("--layers", help="Instructions of each layer, too.")] = False,
    toolchain: options.Toolchain = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure models x boards: instructions, flash, RAM, stack; with --rpc: calls and bytes per second."""
    with guarded(as_json, debug) as out:
        if not models:
            raise UsageError("no model is named", hint="crtgen bench MODEL.tflite --board mps2_an386")
        boards = board or ["mps2_an386"]
        with out.stage() as say:
            if rpc:
                lines = [measure_rpc(models[0], b, toolchain=toolchain, say=say) for b in boards]
                out.result({"rpc": [r.to_dict() for r in lines]}, lambda console: _print_rpc(console, lines))
                return
            results = [
                measure_model(model, b, optimize=optimize, layers=layers, toolchain=toolchain, say=say)
                for model in models
                for b in boards
            ]
        out.result({"results": [r.to_dict() for r in results]}, lambda console: _print(console, results))


def _print(console: Console, results: Sequence[ModelFigures]) -> None:
    columns = ("instructions", "per MAC", "flash", "RAM", "arena", "stack")
    rows = table("model", "board", *columns, right=columns)
    for r in results:
        count = "" if r.instructions is None else f"{r.instructions:,}"
        each = f"{r.instructions / r.macs:.2f}" if r.instructions and r.macs else ""
        stack = "" if r.stack_bytes is None else f"{r.stack_bytes:,}"
        sizes = (f"{r.flash_bytes:,}", f"{r.ram_bytes:,}", f"{r.arena_bytes:,}", stack)
        rows.add_row(r.model, r.board, count, each, *sizes)
    console.print(rows)
    for r in results:
        if r.layers:
            inner = table("layer", "operator", "kernel", "instructions", right=("instructions",))
            for layer in r.layers:
                inner.add_row(layer.name, layer.operator, layer.kernel, f"{layer.instructions:,}")
            console.print(f"\n{r.model} on {r.board}")
            console.print(inner)


def _print_rpc(console: Console, results: Sequence[RpcFigures]) -> None:
    columns = ("calls/s", "up MB/s", "down MB/s")
    rows = table("board", *columns, right=columns)
    for r in results:
        rates = (f"{r.up_bytes_per_second / 1e6:.2f}", f"{r.down_bytes_per_second / 1e6:.2f}")
        rows.add_row(r.board, f"{r.calls_per_second:,.0f}", *rates)
    console.print(rows)
