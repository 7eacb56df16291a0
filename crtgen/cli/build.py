"""``crtgen build``: build a generated project and measure the image."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.show import print_layers

__all__ = ["command"]


def command(
    directory: Annotated[Path, typer.Argument(help="A generated project.", show_default=False)],
    toolchain: options.Toolchain = None,
    symbols: Annotated[int, typer.Option(help="Show this many of the largest symbols.")] = 0,
    layers: Annotated[bool, typer.Option("--layers", help="Show each layer.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Build a project; prints its files, flash, RAM, worst-case stack."""
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            image = api.open_project(directory).build(toolchain=toolchain, say=say)
        size, reports = image.size, image.reports
        data = {
            "artefact": str(image.path),
            "files": [str(file) for file in image.files],
            **size.to_dict(),
            "models": [report.to_dict() for report in reports],
        }

        def render(console: Console) -> None:
            for file in image.files:
                console.print(str(file))
            rows = table("", "bytes", right=("bytes",))
            for label, value in size.rows():
                rows.add_row(label, f"{value:,}")
            console.print(rows)
            for report in reports if layers else ():
                print_layers(console, report, "code", "shared by", "constants", "stack")
            if symbols:
                names = table("symbol", "group", "bytes", right=("bytes",))
                for symbol in size.largest(symbols):
                    names.add_row(symbol.name, symbol.group, f"{symbol.size:,}")
                console.print(names)

        out.result(data, render)
