"""``crtgen report``: a page with everything known about a model on boards."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.base import files
from crtgen.base.errors import MismatchError, UsageError
from crtgen.boards import find_board
from crtgen.cli import options
from crtgen.cli.groups import Battery, Coding, Files, flattened
from crtgen.cli.output import Debug, Json, guarded
from crtgen.cli.settings import cases_file
from crtgen.lab.html import (
    Claim,
    Met,
    check_folder,
    collect,
    read_baseline,
    render_page,
    require_charts,
    study,
    write_evidence,
)
from crtgen.lab.measure.drift import read_window, usual

__all__ = ["command"]


@flattened
def command(
    model: Annotated[Path, typer.Argument(help="A model file (.tflite, .onnx).", show_default=False)],
    battery: Battery,
    coding: Coding,
    reading: Files,
    board: options.Boards = None,
    place: options.Place = None,
    expect: Annotated[Path | None, typer.Option(help="Cases, as verify takes them.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Labelled data, as eval takes them, to show how good the model is.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    baseline: Annotated[
        Path | None, typer.Option(help="An earlier output of `crtgen report --json` to compare with.")
    ] = None,
    drift: Annotated[
        Path | None, typer.Option(help="Counts of a device, from `crtgen record --cbor`.")
    ] = None,
    watch: Annotated[
        Path | None,
        typer.Option(help="The reference of these counts: the file of `crtgen generate --watch`."),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write evidence about the image for the first board into this folder."
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a page: layers, memory, time, boards, verification.

    Boards with a simulator are measured at each level and verified; others are verified by a simulator of the
    same core. The page is one file that works offline.
    """
    with guarded(as_json, debug) as out:
        require_charts()
        files.check_writable(output)
        if evidence is not None:
            check_folder(evidence)
        expect = cases_file(model, expect)
        met = _met(drift, watch, model)
        before = read_baseline(baseline) if baseline else None
        with out.stage() as say:
            boards = battery.boards([find_board(name) for name in board or ["mps2_an386"]])
            found = study(
                model, boards, expect, say, data, reading.load_network, **coding.request(place or ())
            )
            days = {
                on.name: battery.days(on, each.report) for on, each in zip(boards, found.boards, strict=True)
            }
            say("drawing")
            files.write(output, render_page(found, before, days, met).encode())
            claims: tuple[Claim, ...] = ()
            if evidence is not None:
                say("collecting evidence")
                claims, collected = collect(model, found, found.boards[0].report.board)
                write_evidence(evidence, collected)
        made = {**found.to_dict(), "days": days, "claims": [asdict(claim) for claim in claims]}
        out.result(made, lambda console: _print(console, output, evidence, claims))
        if any(not on.verified.is_right for on in found.boards):
            raise typer.Exit(MismatchError.exit_code)


def _met(drift: Path | None, watch: Path | None, model: Path) -> Met | None:
    # Counts from the device beside the reference counts.
    if drift is None:
        if watch is not None:
            raise UsageError("--watch needs the counts of a device", hint="name them with --drift")
        return None
    window = read_window(files.read(drift, "what a device counted"))
    if watch is None:
        return Met(window)
    compiled = api.load_network(model).compile("mps2_an386")
    return Met(window, usual(watch, compiled.modules[0].info, compiled.plans[0]))


def _print(console: Console, output: Path, evidence: Path | None, claims: Sequence[Claim]) -> None:
    console.print(f"wrote {output}")
    if evidence is not None:
        console.print(f"wrote {evidence / 'index.html'}")
    for claim in claims:
        console.print(f"  {claim.answer:3}  {claim.claim}")
