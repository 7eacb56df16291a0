"""``crtgen verify``: does the board compute what is expected?"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.cli import options
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, guarded, on_log, table
from crtgen.errors import MismatchError, UsageError
from crtgen.ir import Graph
from crtgen.measure.against import Loss, losses
from crtgen.measure.cases import first_runs
from crtgen.measure.layers import LayerVerdict, verify_layers
from crtgen.measure.verification import Verdict, cases_of, verify
from crtgen.session import Session

__all__ = ["command"]

_BARS = " ▁▂▃▄▅▆▇█"


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
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare what each layer computes, for the first case.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="Show what each layer loses against this network, that of floats for example."),
    ] = None,
    core_dump: options.CoreDump = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run every case on the board: integers have to be equal, floats within 1e-5 of the largest."""
    with guarded(as_json, debug, core_dump) as out:
        with out.stage() as say:
            if layers:
                generating = replace(generating, profile=True)
            image = building.image(source, files, compiling, generating, say, runs=bool(connecting.port))
            lost = _lost(source, files, against, image, expect, cases) if against else ()
            say("starting")
            with image.run(counting=False, on_log=on_log, site=connecting.site()) as session:
                results = verify(session, source, expect, cases, say)
                watched = _watched(session, image, source, expect, say) if layers else {}
        failed = [r for r in results if r.difference]
        wrong = [v for verdicts in watched.values() for v in verdicts if v.wrong]
        data = {
            "model": ", ".join(dict.fromkeys(r.model for r in results)),
            "board": image.board,
            "cases": len(results),
            "failed": len(failed),
            "differences": {_name(r, results): str(r.difference) for r in failed},
        }
        if layers:
            data["layers"] = {name: [v.to_dict() for v in verdicts] for name, verdicts in watched.items()}
        if against:
            data["against"] = [loss.to_dict() for loss in lost]

        def render(console: Console) -> None:
            for result in results:
                console.print(f"{_name(result, results)}: {result.difference or 'equal'}")
            right = len(results) - len(failed)
            console.print(f"{data['model']} on {image.board}: {right} of {len(results)} cases as expected")
            for name, verdicts in watched.items():
                _print_layers(console, name, verdicts)
            if against:
                _print_losses(console, against, lost)

        out.result(data, render)
        if failed or wrong:
            raise typer.Exit(MismatchError.exit_code)


def _name(result: Verdict, results: Sequence[Verdict]) -> str:
    """The case, with its model if there are several."""
    several = len({r.model for r in results}) > 1
    return f"{result.model}.{result.case}" if several else result.case


def _watched(
    session: Session, image: api.Image, source: Path, expect: Path | None, say: api.Say
) -> dict[str, tuple[LayerVerdict, ...]]:
    """The layers of each model of the image, for its first case."""
    plans = {plan.graph.name: plan for plan in image.plans}
    if set(plans) != {info.name for info in session.models}:
        raise UsageError("--layers needs the network", where=str(source), hint="name the model's own file")
    cases = cases_of(session.models, source, expect, 1)
    return {name: verify_layers(session, plan, first_runs(cases[name]), say) for name, plan in plans.items()}


def _lost(
    source: Path, files: Files, against: Path, image: api.Image, expect: Path | None, cases: int
) -> tuple[Loss, ...]:
    """What the network loses against another one, on the cases."""
    known = cases_of(image.built.manifest.models, source, expect, cases)
    graphs: list[Graph] = []
    for path in (source, against):
        loaded = files.load(path)
        if not isinstance(loaded, api.Model):
            raise UsageError("it is code, not a network", where=str(path))
        graphs.append(loaded.graph)
    ours, theirs = graphs
    return losses(ours, theirs, next(iter(known.values())))


def _print_layers(console: Console, name: str, verdicts: Sequence[LayerVerdict]) -> None:
    wrong = [v for v in verdicts if v.wrong]
    right = f"{len(verdicts) - len(wrong)} of {len(verdicts)}"
    console.print(f"{name}: {right} layers compute what the reference does, in the first case")
    if wrong:
        first = wrong[0]
        console.print(f"the first that does not: {first.layer}, by the kernel {first.kernel}")
        console.print(f"  {first.value}{first.wrong}")


def _print_losses(console: Console, against: Path, lost: Sequence[Loss]) -> None:
    console.print(f"\nagainst {against.name}")
    rows = table("layer", "operator", "dB", "error", "of", "", right=("dB", "error", "of"))
    for loss in lost:
        most = max(loss.histogram)
        bars = "".join(_BARS[-(-8 * count // most)] for count in loss.histogram)
        rows.add_row(
            loss.layer, loss.operator, f"{loss.sqnr:.1f}", f"{loss.largest:.3g}", f"{loss.range:.3g}", bars
        )
    console.print(rows)
