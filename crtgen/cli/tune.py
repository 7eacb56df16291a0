"""``crtgen tune``: chooses kernels by measuring them on the board, and writes a tune file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crtgen import api
from crtgen.base import files
from crtgen.cli import choices, options
from crtgen.cli.groups import Connecting, Files, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.settings import cases_file
from crtgen.compiler.byoc import ETHOS_U
from crtgen.compiler.tuned import CORE, KernelChoice, Tuned, read_tuned, write_tuned
from crtgen.lab.measure.verification import cases_of
from crtgen.lab.sweep.store import STORE, JobStore
from crtgen.lab.tune.tuner import Limits, Result, Tuning, tune

__all__ = ["command"]

TUNED = "tune.toml"


@flattened
def command(
    model: Annotated[Path, typer.Argument(help="A model file (.tflite, .onnx).", show_default=False)],
    connecting: Connecting,
    reading: Files,
    board: options.Board = "mps2_an386",
    optimize: options.Optimize = "speed",
    flash: Annotated[
        int | None,
        typer.Option(
            parser=options.nbytes,
            metavar="BYTES",
            help="Limit of the standalone image's flash; default: as without tuning.",
        ),
    ] = None,
    ram: Annotated[
        int | None,
        typer.Option(
            parser=options.nbytes,
            metavar="BYTES",
            help="Limit of its RAM without the stack; default: as without tuning.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The tune file; its entries for other models stay.")
    ] = Path(TUNED),
    store: Annotated[Path, typer.Option(help="The store of measurements.")] = Path(STORE),
    expect: Annotated[
        Path | None, typer.Option(help="Cases, as in `crtgen verify`; default: the numpy reference.")
    ] = None,
    npu: options.Npu = "",
    fold: options.Fold = True,
    place: options.Place = None,
    stack: options.Stack = None,
    toolchain: options.Toolchain = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure every kernel of each layer, and choose the best.

    Every kernel that can compute a layer is measured on the board and verified. The best choice within the
    limits of flash and RAM goes into a file that other commands read with --tune. It is the one with the
    fewest cycles, or instructions in QEMU. With --npu, each call of the NPU is tried on the core, too.
    """
    with guarded(as_json, debug) as out:
        known = read_tuned(output) if output.exists() else ()
        files.check_writable(output)
        with out.stage() as say, JobStore(store) as db:
            loaded = reading.load_network(model)

            def compiled(tuned: Sequence[Tuned]) -> api.Compiled:
                return loaded.compile(
                    board,
                    optimize=optimize,
                    passes=choices.passes(fold),
                    place=choices.places(place or ()),
                    tuned=tuned,
                    generators=choices.generators(None, None, npu),
                    fallback=bool(npu),
                )

            infos = [module.info for module in compiled(()).modules]
            cases = cases_of(infos, model, cases_file(model, expect), count=2)
            tuning = Tuning(compiled, cases, stack, toolchain, connecting.site())
            result = tune(tuning, db, Limits(flash, ram), say)
        others = [entry for entry in known if entry.key != result.entry.key]
        write_tuned(output, [*others, result.entry])
        out.result(_data(result, output), lambda console: _print(console, result, output))


def _data(result: Result, output: Path) -> dict[str, Any]:
    before, after = result.before, result.after
    return {
        "file": str(output),
        "model": result.entry.model,
        "board": result.entry.board,
        "optimize": result.entry.optimize,
        "measured": result.entry.measured,
        "untuned": result.entry.untuned,
        "tuned": result.entry.tuned,
        "image_flash_bytes": [before.image_flash_bytes, after.image_flash_bytes],
        "image_ram_bytes": [before.image_ram_bytes, after.image_ram_bytes],
        "candidates": result.candidates,
        "measurements": result.measured,
        "images": result.images,
        "failed": dict(result.failed),
        "layers": [
            {"name": c.name, "design": c.design, "variant": c.variant, "figure": c.figure, "usual": usual}
            for c, usual in _choices(result)
        ],
    }


def _choices(result: Result) -> list[tuple[KernelChoice, str]]:
    # Choices, each with what the layer has without tuning.
    usual = {layer.name: ", ".join(layer.candidates[layer.usual].key) for layer in result.layers}
    return [(c, ETHOS_U if c.design == CORE else usual[c.name]) for c in result.entry.layers]


def _print(console: Console, result: Result, output: Path) -> None:
    entry, before, after = result.entry, result.before, result.after
    moved = [(choice, usual) for choice, usual in _choices(result) if ", ".join(choice.key) != usual]
    if moved:
        rows = table("layer", "without tuning", "kernel", entry.measured, right=(entry.measured,))
        for choice, usual in moved:
            figure = f"{choice.figure:,}" if choice.design != CORE else ""
            rows.add_row(choice.name, usual, ", ".join(choice.key), figure)
        console.print(rows)
    for name, message in result.failed.items():
        console.print(f"left out: {name}: {message}")
    change = entry.tuned / max(entry.untuned, 1) - 1
    figures = f"{entry.untuned:,} -> {entry.tuned:,} {entry.measured} ({change:+.2%})"
    console.print(
        f"{entry.model} on {entry.board}: {figures},"
        f" flash {before.image_flash_bytes:,} -> {after.image_flash_bytes:,},"
        f" RAM {before.image_ram_bytes:,} -> {after.image_ram_bytes:,}"
    )
    if not moved:
        console.print("no other kernels are better: the file names those that it has anyway")
    console.print(
        f"{result.candidates} candidates, {result.measured} of them measured now, in {result.images} images"
    )
    console.print(
        f"next: crtgen bench MODEL --board {entry.board} --optimize {entry.optimize} --tune {output}"
    )
