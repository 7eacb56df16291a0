"""``crtgen test``: every model of a folder on every rung that is there."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from crtgen import files
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.settings import chosen_models
from crtgen.errors import MismatchError
from crtgen.measure.rungs import Outcome, junit, verify_on
from crtgen.run import Site

__all__ = ["command"]


def command(
    models: options.MoreModels = None,
    board: options.Boards = None,
    optimize: options.Optimize = "balanced",
    tune: options.Tune = None,
    cases: Annotated[int, typer.Option(min=1, help="Random cases, where a model has no file.")] = 4,
    hardware_map: options.HardwareMap = None,
    fvp_path: options.FvpPath = None,
    junit_file: options.Junit = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify models on this computer, emulators, connected boards."""
    with guarded(as_json, debug) as out:
        if junit_file is not None:
            files.check_writable(junit_file)
        site = Site(fvp=fvp_path, hardware_map=hardware_map)
        outcomes = []
        with out.stage() as say:
            for model in chosen_models(models, board):
                for name in dict.fromkeys(("host", *model.boards)):
                    outcome = verify_on(
                        model.file, name, model.expect, cases, optimize, site, say, options.tuned(tune)
                    )
                    outcomes.append(outcome)
        if junit_file is not None:
            files.write(junit_file, junit(outcomes))
        out.result({"outcomes": [o.to_dict() for o in outcomes]}, lambda console: _print(console, outcomes))
        if not all(outcome.is_right for outcome in outcomes):
            raise typer.Exit(MismatchError.exit_code)


def _print(console: Console, outcomes: Sequence[Outcome]) -> None:
    rows = table("model", "rung", "board", "")
    for o in outcomes:
        rows.add_row(o.model, o.rung, o.board, _result(o))
    console.print(rows)
    for o in outcomes:
        for verdict in o.verdicts:
            if verdict.difference:
                console.print(f"{o.model} on {o.board}: {verdict.case}: {verdict.difference}")


def _result(outcome: Outcome) -> str:
    if outcome.skipped:
        return f"not tested: {outcome.skipped}"
    if outcome.error is not None:
        return f"error: {outcome.error}"
    count = len(outcome.verdicts)
    return f"{count - outcome.failed} of {count} cases as expected"
