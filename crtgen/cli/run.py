"""``crtgen run``: from a model to an inference on its board, in one command."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console

from crtgen.api.report import Report
from crtgen.api.slot import start_server
from crtgen.base.errors import UsageError
from crtgen.base.files import check_writable, read_text
from crtgen.cli import options
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, Rows, guarded, on_log, table
from crtgen.cli.show import print_real
from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.device.session import choose_model
from crtgen.firmware.builder import SizeReport
from crtgen.lab.measure.cases import Inputs, random_inputs, read_inputs, write_outputs
from crtgen.lab.measure.media import Scaling
from crtgen.network.ir import Array, shape_text

if TYPE_CHECKING:
    from crtgen.cli.recorded import Recorded

__all__ = ["command"]

_SHOWN, _LABELLED = 3, 5
"""Number of elements of an output that are printed: without labels, and with them."""


@flattened
def command(
    source: options.Source,
    compiling: Compiling,
    generating: Generating,
    building: Building,
    files: Files,
    connecting: Connecting,
    model: Annotated[str | None, typer.Option(help="The model to use, if the image has several.")] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            help="Inputs: arrays (.npy, .npz), a picture, sound, a table (.csv); random if not given."
        ),
    ] = None,
    quantize_input: options.QuantizeInput = False,
    mean: Annotated[float | None, typer.Option(help="For a picture: (pixel - mean) / std.")] = None,
    std: Annotated[
        float | None, typer.Option(help="For a picture; default: what suits the input's type.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="A file with names of the outputs' elements, one per line.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Measure this many runs.")] = 1,
    output: Annotated[Path | None, typer.Option(help="Write the outputs to this .npz file.")] = None,
    core_dump: options.CoreDump = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Generate, build, start and infer.

    Prints outputs, instructions, flash and RAM.
    """
    with guarded(as_json, debug, core_dump) as out:
        if output is not None:
            check_writable(output)
        names = read_text(labels, "the labels").splitlines() if labels else []
        recorded = _recorded(source, files)
        with out.stage() as say:
            taken: list[Inputs] = []

            def check(models: Sequence[ModelInfo]) -> None:
                info = choose_model(models, model)
                _check_labels(names, info.outputs, labels)
                taken.append(_given(input, info.inputs, quantize_input, Scaling(mean, std), recorded))

            loaded = None if recorded is None else recorded.loaded
            site = connecting.site()
            image = building.image(source, files, compiling, generating, say, check, site, loaded=loaded)
            (given,) = taken
            say("starting")
            with start_server(image, site, on_log=on_log) as session:
                info = session.model(model)
                say("running")
                made = [session.infer(*arrays, model=info.name) for arrays in given.runs]
                measured = session.measure(repeat, model=info.name)
                report = next(r for r in image.reports if r.model == info.name)
                report = report.measured(measured.instructions, measured.seconds, measured.cycles)
                if generating.profile:
                    report = report.profiled(session.profile(info.name))
        every = [np.stack(arrays) for arrays in zip(*made, strict=True)]
        outputs = every if given.is_sequence else made[0]
        if output:
            write_outputs(output, info.outputs, outputs)
        values = {i.name: a.tolist() for i, a in zip(info.outputs, outputs, strict=True)}
        heard = None if recorded is None else recorded.heard([arrays[0] for arrays in made])

        def render(console: Console) -> None:
            console.print(f"{info.name} on {image.board}, {given.source}")
            if len(made) > 1:
                console.print(f"  {len(made)} runs one after the other; the outputs of the last one:")
            _print_outputs(console, info.outputs, made[-1], names)
            if heard is not None:
                heard.show(console)
            if repeat > 1:
                least, most = min(measured.ticks), max(measured.ticks)
                console.print(f"  {repeat} runs, {least:,} to {most:,} ticks of the device's timer each")
            console.print(_figures(report, image.size))
            print_real(console, [report])
            if generating.profile:
                console.print(_profile(report))

        out.result({**report.to_dict(), "outputs": values, **(heard.value() if heard else {})}, render)


def _recorded(source: Path, files: Files) -> "Recorded | None":
    # Outputs for recordings; None for files other than pipelines.
    if source.suffix != ".toml":
        return None
    from crtgen.cli.recorded import recorded_by

    return recorded_by(source, files)


def _check_labels(names: Sequence[str], outputs: Sequence[Interface], file: Path | None) -> None:
    # Refuse names that are those of another network.
    lengths = [prod(output.shape) for output in outputs]
    if names and len(names) not in lengths:
        wanted = " or ".join(map(str, lengths))
        raise UsageError(
            f"{len(names)} names, for outputs of {wanted} elements",
            where=str(file),
            hint="give one name per element, each on its own line",
        )


def _given(
    file: Path | None,
    interfaces: Sequence[Interface],
    quantize: bool,
    scaling: Scaling,
    recorded: "Recorded | None",
) -> Inputs:
    if file is None:
        return Inputs((random_inputs(interfaces, seed=0),), "random input")
    if recorded is not None:
        return recorded.inputs(file, quantize, scaling)
    return read_inputs(file, interfaces, quantize, scaling)


def _print_outputs(
    console: Console, interfaces: Sequence[Interface], arrays: Sequence[Array], labels: Sequence[str]
) -> None:
    for interface, array in zip(interfaces, arrays, strict=True):
        console.print(f"  {interface.name} {shape_text(interface.shape)} {interface.dtype.value}")
        for line in _values(interface, array, labels):
            console.print(f"    {line}")


def _figures(report: Report, size: SizeReport) -> Rows:
    rows = table("", "", right=("",))
    if report.instructions is not None:
        rows.add_row("instructions", f"{report.instructions:,}")
        if report.macs:
            rows.add_row("  per MAC", f"{report.instructions / report.macs:.2f}")
    if report.cycles is not None:
        rows.add_row("cycles", f"{report.cycles:,}")
        if report.macs:
            rows.add_row("  per MAC", f"{report.cycles / report.macs:.2f}")
    if report.instructions is None and report.seconds is not None:
        rows.add_row("microseconds", f"{report.seconds * 1e6:,.1f}")
    for label, value in size.rows():
        rows.add_row(label, f"{value:,}")
    return rows


def _values(interface: Interface, array: Array, labels: Sequence[str]) -> list[str]:
    # Dequantised values; those of a vector with the largest first, with indices or labels.
    flat = array.ravel()
    if interface.quant is not None and interface.quant.axis is None:
        real = (flat.astype(np.float64) - interface.quant.zero_point) * interface.quant.scale
    else:
        real = flat.astype(np.float64)
    if len(flat) == 1:
        return [f"{real[0]:.6g}"]
    best = np.argsort(-real, kind="stable")[: _LABELLED if labels else _SHOWN]
    lines = [f"[{i}] {real[i]:.6g}{f'  {labels[i]}' if i < len(labels) else ''}" for i in best]
    rest = len(flat) - len(lines)
    return [*lines, f"... {rest} smaller"] if rest else lines


def _profile(report: Report) -> Rows:
    rows = table("layer", "operator", "design", "ticks", "%", right=("ticks", "%"))
    total = max(sum(layer.ticks or 0 for layer in report.layers), 1)
    for layer in report.layers:
        for o in layer.operators:
            ticks = o.ticks or 0
            rows.add_row(o.name, o.operator, o.kernel, f"{ticks:,}", f"{100 * ticks / total:.1f}")
    return rows
