"""``crtgen verify``: does the board compute what is expected?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.cli import options
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, guarded, on_log
from crtgen.errors import MismatchError
from crtgen.measure.verification import Verdict, verify

__all__ = ["command"]


@flattened
def command(
    source: options.Source,
    compiling: Compiling,
    generating: Generating,
    building: Building,
    files: Files,
    connecting: Connecting,
    expect: Annotated[
        Path | None,
        typer.Option(help="Cases, .npz with case0_input0, case0_output0 ...; else the numpy reference."),
    ] = None,
    cases: Annotated[int, typer.Option(min=1, help="Random cases, when there is no file.")] = 4,
    core_dump: options.CoreDump = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run every case on the board: integers have to be equal, floats within 1e-5 of the largest."""
    with guarded(as_json, debug, core_dump) as out:
        with out.stage() as say:
            image = building.image(source, files, compiling, generating, say, runs=bool(connecting.port))
            say("starting")
            with image.run(counting=False, on_log=on_log, site=connecting.site()) as session:
                results = verify(session, source, expect, cases, say)
        failed = [r for r in results if r.difference]
        data = {
            "model": ", ".join(dict.fromkeys(r.model for r in results)),
            "board": image.board,
            "cases": len(results),
            "failed": len(failed),
            "differences": {_name(r, results): str(r.difference) for r in failed},
        }

        def render(console: Console) -> None:
            for result in results:
                console.print(f"{_name(result, results)}: {result.difference or 'equal'}")
            right = len(results) - len(failed)
            console.print(f"{data['model']} on {image.board}: {right} of {len(results)} cases as expected")

        out.result(data, render)
        if failed:
            raise typer.Exit(MismatchError.exit_code)


def _name(result: Verdict, results: Sequence[Verdict]) -> str:
    """The case, with its model if there are several."""
    several = len({r.model for r in results}) > 1
    return f"{result.model}.{result.case}" if several else result.case
