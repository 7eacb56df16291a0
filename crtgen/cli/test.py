"""``crtgen test``: every model of a folder on every available target."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from crtgen.base import files
from crtgen.base.errors import CrtgenError, MismatchError, UsageError
from crtgen.cli import options
from crtgen.cli.groups import Coding, Files, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.cli.settings import chosen_models
from crtgen.device.run import Site
from crtgen.lab.measure.targets import TEST_TARGETS, TargetOutcome, junit, verify_on

__all__ = ["command"]


@flattened
def command(
    coding: Coding,
    reading: Files,
    models: options.MoreModels = None,
    board: options.Boards = None,
    place: options.Place = None,
    cases: Annotated[
        int, typer.Option(min=1, help="Number of random cases, for a model without a file of cases.")
    ] = 4,
    require: Annotated[
        str, typer.Option(help=f"Fail for a board tested on less than this: {', '.join(TEST_TARGETS)}.")
    ] = TEST_TARGETS[0],
    hardware_map: options.HardwareMap = None,
    push: options.Push = None,
    fvp_path: options.FvpPath = None,
    junit_file: options.Junit = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify models on this computer, emulators, connected boards."""
    with guarded(as_json, debug) as out:
        if require not in TEST_TARGETS:
            raise UsageError(f"unknown target {require}", hint=f"known: {', '.join(TEST_TARGETS)}")
        if junit_file is not None:
            files.check_writable(junit_file)
        site = Site(fvp=fvp_path, hardware_map=hardware_map, slot=push or "")
        outcomes = []
        with out.stage() as say:
            for model in chosen_models(models, board):
                for name in dict.fromkeys(("host", *model.boards)):
                    outcome = verify_on(
                        model.file,
                        name,
                        model.expect,
                        cases,
                        site,
                        say,
                        reading.load,
                        **coding.request(place or ()),
                    )
                    outcomes.append(outcome)
        if junit_file is not None:
            files.write(junit_file, junit(outcomes))
        out.result({"outcomes": [o.to_dict() for o in outcomes]}, lambda console: _print(console, outcomes))
        if any(outcome.failed for outcome in outcomes):
            raise typer.Exit(MismatchError.exit_code)
        if error := next((outcome.error for outcome in outcomes if outcome.error is not None), None):
            raise typer.Exit(error.exit_code)
        if below := [o for o in outcomes if _is_below(o, require)]:
            names = ", ".join(dict.fromkeys(f"{o.model} on {o.board}" for o in below))
            raise CrtgenError(f"not tested on the target of --require {require}: {names}")


def _is_below(outcome: TargetOutcome, require: str) -> bool:
    # True if a board was tested on fewer targets than required; this computer does not count.
    if outcome.target == TEST_TARGETS[0] or require == TEST_TARGETS[0]:
        return False
    return bool(outcome.skipped) or TEST_TARGETS.index(outcome.target) < TEST_TARGETS.index(require)


def _print(console: Console, outcomes: Sequence[TargetOutcome]) -> None:
    rows = table("model", "target", "board", "")
    for o in outcomes:
        target = f"{o.target} {o.stand_in}" if o.stand_in else o.target
        rows.add_row(o.model, target, o.board, _result(o))
    console.print(rows)
    for o in outcomes:
        for verdict in o.verdicts:
            if verdict.difference:
                console.print(f"{o.model} on {o.board}: {verdict.case}: {verdict.difference}")


def _result(outcome: TargetOutcome) -> str:
    if outcome.skipped:
        return f"not tested: {outcome.skipped}"
    if outcome.error is not None:
        return f"error: {outcome.error}"
    count = len(outcome.verdicts)
    return f"{count - outcome.failed} of {count} cases as expected"
