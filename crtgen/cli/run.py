"""``crtgen run``: from a model to an inference on its board."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from crtgen.build import SizeReport
from crtgen.cli import options
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, Rows, guarded, on_log, table
from crtgen.codegen.module import Interface, LayerInfo, ModelInfo
from crtgen.files import check_writable
from crtgen.ir import Array, shape_text
from crtgen.measure.cases import Inputs, random_inputs, read_inputs, write_outputs
from crtgen.session import Measurement, choose_model

__all__ = ["command"]

_SHOWN = 8


@flattened
def command(
    source: options.Source,
    compiling: Compiling,
    generating: Generating,
    building: Building,
    files: Files,
    connecting: Connecting,
    model: Annotated[str | None, typer.Option(help="Which model, if the image has several.")] = None,
    input: Annotated[Path | None, typer.Option(help="Inputs, .npy or .npz; random if not given.")] = None,
    quantize_input: options.QuantizeInput = False,
    output: Annotated[Path | None, typer.Option(help="Write the outputs here, .npz.")] = None,
    core_dump: options.CoreDump = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Generate, build, start and infer: prints outputs, instructions, flash and RAM."""
    with guarded(as_json, debug, core_dump) as out:
        if output is not None:
            check_writable(output)
        with out.stage() as say:
            check = partial(choose_model, name=model)
            runs = bool(connecting.port)
            image = building.image(source, files, compiling, generating, say, check, runs)
            say("starting")
            with image.run(on_log=on_log, site=connecting.site()) as session:
                info = session.model(model)
                given = _given(input, info.inputs, quantize_input)
                say("running")
                outputs = session.infer(*given.arrays, model=info.name)
                measured = session.measure(model=info.name)
                layers = session.profile(info.name) if generating.profile else None
        if output:
            write_outputs(output, info.outputs, outputs)
        data: dict[str, Any] = {
            "model": info.name,
            "board": image.board,
            "outputs": {i.name: a.tolist() for i, a in zip(info.outputs, outputs, strict=True)},
            "instructions": measured.instructions,
            "seconds": measured.seconds,
            "macs": info.macs,
            "arena_bytes": info.arena,
            **image.size.to_dict(),
        }
        if layers is not None:
            data["layer_ticks"] = dict(zip((layer.name for layer in info.layers), layers, strict=True))

        def render(console: Console) -> None:
            console.print(f"{info.name} on {image.board}, {given.source}")
            _print_outputs(console, info.outputs, outputs)
            console.print(_figures(info, measured, image.size))
            if layers is not None:
                console.print(_profile(info.layers, layers))

        out.result(data, render)


def _given(file: Path | None, interfaces: Sequence[Interface], quantize: bool) -> Inputs:
    if file is None:
        return Inputs(random_inputs(interfaces, seed=0), "random input")
    return read_inputs(file, interfaces, quantize)


def _print_outputs(console: Console, interfaces: Sequence[Interface], arrays: Sequence[Array]) -> None:
    for interface, array in zip(interfaces, arrays, strict=True):
        console.print(f"  {interface.name} {shape_text(interface.shape)} {interface.dtype.value}")
        for line in _values(interface, array):
            console.print(f"    {line}")


def _figures(info: ModelInfo, measured: Measurement, size: SizeReport) -> Rows:
    rows = table("", "", right=("",))
    if measured.instructions is not None:
        rows.add_row("instructions", f"{measured.instructions:,}")
        if info.macs:
            rows.add_row("  per MAC", f"{measured.instructions / info.macs:.2f}")
    else:
        rows.add_row("microseconds", f"{measured.seconds * 1e6:,.1f}")
    for label, value in size.rows():
        rows.add_row(label, f"{value:,}")
    return rows


def _values(interface: Interface, array: Array) -> list[str]:
    """The values as real numbers; for a vector of several, the largest first, with their indices."""
    flat = array.ravel()
    if interface.quant is not None and interface.quant.axis is None:
        real = (flat.astype(np.float64) - interface.quant.zero_point) * interface.quant.scale
    else:
        real = flat.astype(np.float64)
    if len(flat) == 1:
        return [f"{real[0]:.6g}"]
    best = np.argsort(-real, kind="stable")[:_SHOWN]
    lines = [f"[{i}] {real[i]:.6g}" for i in best[:3]]
    rest = len(flat) - len(lines)
    return [*lines, f"... {rest} smaller"] if rest else lines


def _profile(layers: tuple[LayerInfo, ...], ticks: tuple[int, ...]) -> Rows:
    rows = table("layer", "operator", "design", "ticks", "%", right=("ticks", "%"))
    total = max(sum(ticks), 1)
    for layer, count in zip(layers, ticks, strict=True):
        rows.add_row(layer.name, layer.operator, layer.kernel, f"{count:,}", f"{100 * count / total:.1f}")
    return rows
