"""``crtgen compile``: models as an archive, which can be used instead of the model files."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.cli import options
from crtgen.cli.groups import Compiling, Files, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.show import number, print_real

__all__ = ["command"]


@flattened
def command(
    models: Annotated[list[Path], typer.Argument(help="Model files (.tflite, .onnx).", show_default=False)],
    compiling: Compiling,
    reading: Files,
    place: options.Place = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The archive to write (.tar).")] = Path(
        "models.tar"
    ),
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write models in Model Library Format: C, constants, metadata.

    Version 7 of the format, for one board's core.
    """
    with guarded(as_json, debug) as out:
        if output.suffix != ".tar":
            raise UsageError("an archive is called .tar", where=str(output), hint="for example -o model.tar")
        files.check_writable(output)
        with out.stage() as say:
            compiled = compiling.compile([reading.load(model) for model in models], say, place=place or ())
            data = compiled.archive()
            files.write(output, data)
        reports = compiled.reports
        result = {
            "archive": str(output),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "board": compiled.board.name,
            "executor": compiling.executor,
            "models": [report.to_dict() for report in reports],
        }

        def render(console: Console) -> None:
            rows = table("model", "arena", "weights", "MACs", right=("arena", "weights", "MACs"))
            for r in reports:
                rows.add_row(r.model, *map(number, (r.arena_bytes, r.weights_bytes, r.macs)))
            console.print(rows)
            print_real(console, reports)
            console.print(f"{output}: {len(data):,} bytes, SHA-256 {result['sha256']}")
            which = f" --model {reports[0].model}" if len(reports) > 1 else ""
            console.print(f"next: crtgen run {output} --board {compiled.board.name} --trust{which}")

        out.result(result, render)
