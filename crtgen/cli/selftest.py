"""``crtgen selftest``: measures a board that you have."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.base import files
from crtgen.boards import find_board
from crtgen.cli.groups import Connecting, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.lab.measure.selftest import build_selftest, run_rates, run_selftest, run_watchdog

__all__ = ["command"]


@flattened
def command(
    board: Annotated[str, typer.Option(help="The board.", show_default=False)],
    connecting: Connecting,
    output: Annotated[
        Path | None, typer.Option(help="Write BOARD.json and BOARD.md into this folder.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Your name, for the report.")] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a board: clock, serial port, memories, a network, guard, watchdog.

    Reports from hardware are collected in boards/seen and shown in docs/board-checks.md; yours is welcome.
    """
    with guarded(as_json, debug) as out:
        target, site = find_board(board), connecting.site()
        site.check(target)
        with out.stage() as say:
            image = build_selftest(target, say=say)
            say("measuring")
            with image.run(site=site) as session:
                simulated = target.simulator if site.is_simulated(target) else ""
                found = run_selftest(session, target, simulated, by)
            say("waiting for the watchdog")
            more = (run_watchdog(image, target, site), *run_rates(target, site, say))
            found = replace(found, checks=(*found.checks, *more))
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            text = json.dumps(found.to_dict(), indent=1) + "\n"
            files.write(output / f"{target.name}.json", text.encode())
            files.write(output / f"{target.name}.md", found.to_page().encode())

        def render(console: Console) -> None:
            rows = table("check", "value", "", "expected", "verdict", "", right=("value", "expected"))
            verdicts = {True: "ok", False: "wrong", None: ""}
            for check in found.checks:
                value = check.value if isinstance(check.value, str) else f"{check.value or 0:.4g}"
                shown = "" if check.value is None else value
                should = f"{check.expected:.4g}" if check.expected else ""
                rows.add_row(check.name, shown, check.unit, should, verdicts[check.passed], check.note)
            console.print(rows)

        out.result(found.to_dict(), render)
        if not found.passed:
            raise typer.Exit(1)
