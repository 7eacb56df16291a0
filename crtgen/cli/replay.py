"""``crtgen replay``: repeats recorded runs."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from crtgen.api.slot import start_server
from crtgen.base.errors import MismatchError, UsageError
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, guarded, on_log
from crtgen.cli.verify import Verified
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.lab.measure.cases import ReferenceRun
from crtgen.lab.measure.layers import verify_layers
from crtgen.lab.measure.verification import cases_of, verify_cases

__all__ = ["command"]


@flattened
def command(
    recording: Annotated[Path, typer.Argument(help="A file of `crtgen record`.", show_default=False)],
    source: Annotated[Path, typer.Argument(help="The model's file.", show_default=False)],
    compiling: Compiling,
    generating: Generating,
    building: Building,
    files: Files,
    connecting: Connecting,
    layers: Annotated[
        bool, typer.Option("--layers", help="Name the first layer that differs from the network.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run what a device recorded, here or on a board, and compare.

    --board host is this computer. Every bit of the outputs has to be as recorded.
    """
    with guarded(as_json, debug) as out:
        if source.is_dir():
            raise UsageError(
                "a project has no network to compare with", where=str(source), hint="name the model's file"
            )
        with out.stage() as say:
            site = connecting.site()
            box = 0 if site is not None and site.slot else 2  # it sets the states; a slot has none
            generating = replace(generating, record=box, profile=layers)
            cases: dict[str, tuple[ReferenceRun, ...]] = {}

            def check(models: Sequence[ModelInfo]) -> None:
                cases.update(cases_of(models, source, recording))
                if not box and any(case.state for runs in cases.values() for case in runs):
                    hint = (
                        "without --push: firmware with the model has one, which sets what lived before a run"
                    )
                    raise UsageError("a model in a slot has no black box", where=str(recording), hint=hint)

            image = building.image(
                source, files, compiling, generating, say, check, site=site, with_plans=layers
            )
            say("starting")
            with start_server(image, site, counting=False, on_log=on_log) as session:
                results = verify_cases(session, cases, say)
                watched = None
                if layers:
                    wrong = {(r.model, r.case) for r in results if r.difference}
                    watched = {}
                    for plan in image.plans:
                        first = _first(plan.graph.name, cases, wrong)
                        watched[plan.graph.name] = verify_layers(session, plan, first, say)
        verified = Verified(image.board, results, watched, None)
        out.result(verified.to_dict(), verified.print)
        if not verified.is_right:
            raise typer.Exit(MismatchError.exit_code)


def _first(
    name: str, cases: Mapping[str, Sequence[ReferenceRun]], wrong: Set[tuple[str, str]]
) -> Sequence[ReferenceRun]:
    # The first case of a model that is wrong, behind those that it follows; its first one if none is.
    found = cases[name]
    end = next((n for n, case in enumerate(found) if (name, case.name) in wrong), 0)
    start = max(n for n in range(end + 1) if not found[n].follows)
    return found[start : end + 1]
