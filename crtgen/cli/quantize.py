"""``crtgen quantize``: quantises a float ONNX network, and measures the loss."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.show import figures_table
from crtgen.device.run import Site
from crtgen.lab.measure.benchmark import measure_model
from crtgen.lab.measure.quantization import Quantised, quantize

__all__ = ["command"]

_CURE = "export it as an output of its own, which gets a scale of its own"
_WORST = 5  # layers that are printed


def command(
    model: Annotated[Path, typer.Argument(help="A float network (.onnx).", show_default=False)],
    calibrate: Annotated[Path, typer.Option(help="Typical inputs (.npz, .npy).", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)],
    board: Annotated[
        str | None,
        typer.Option(
            "--board", "-b", help="Measure both networks on this board.", autocompletion=options.board_names
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Quantise a network to int8 by ONNX Runtime's quantiser.

    Then print how close its outputs are to those of the original network.
    """
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            say(f"quantising {model.name}")
            found = quantize(model, calibrate, output)
            reports = []
            for path in (model, output) if board else ():
                say(f"{path.name} on {board}")
                reports.append(measure_model(api.load(path).compile(board or ""), site=Site(simulate=True)))

        def render(console: Console) -> None:
            _print(console, found, output)
            if reports:
                console.print(figures_table(reports))

        out.result({**asdict(found), "figures": [r.to_dict() for r in reports]}, render)


def _print(console: Console, found: Quantised, output: Path) -> None:
    console.print(
        f"{output}: over {found.cases} cases, outputs differ by {100 * found.largest:.2g} % at most"
    )
    console.print(f"signal to noise {found.sqnr:.1f} dB; the greatest output is the same in {found.same}")
    for part in found.lost:
        cure = f"{part.concat} and what follows it stays float32" if part.concat else _CURE
        console.print(f"{part} under the output's one scale: {cure}")
    rows = table("layers that lose most", "operator", "dB")
    for layer in found.layers[:_WORST]:
        rows.add_row(layer.node or layer.tensor, layer.operator, f"{layer.sqnr:.1f}")
    console.print(rows)
