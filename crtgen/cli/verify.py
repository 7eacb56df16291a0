"""``crtgen verify``: compares what the board computes with what is expected."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crtgen import api
from crtgen.api.slot import start_server
from crtgen.base.errors import MismatchError, UsageError
from crtgen.base.files import check_writable, write
from crtgen.boards import find_board
from crtgen.cli import choices, options
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, guarded, on_log, table
from crtgen.cli.settings import cases_file
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.device.session import Session
from crtgen.lab.measure.against import Loss, losses, within_range
from crtgen.lab.measure.cases import ReferenceRun, first_runs
from crtgen.lab.measure.layers import LayerVerdict, verify_against_host, verify_layers
from crtgen.lab.measure.targets import TargetOutcome, junit, target_of
from crtgen.lab.measure.verification import Verdict, cases_of, verify_cases
from crtgen.network.ir import Graph
from crtgen.network.pipeline import PIPELINE, Borders, count_borders

__all__ = ["Verified", "command"]

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
        typer.Option(
            help="Cases (.npz: case0_input0, case0_output0 ...); default: random ones, numpy reference."
        ),
    ] = None,
    cases: Annotated[int, typer.Option(min=1, help="Number of random cases, without a file of cases.")] = 4,
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare the output of each layer, for the first case.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="Show how far each layer is from this network, the float one for example."),
    ] = None,
    junit_file: options.Junit = None,
    core_dump: options.CoreDump = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare what the board computes with what is expected.

    Integers have to be equal, floats within 1e-5 of the largest.
    """
    with guarded(as_json, debug, core_dump) as out:
        expect = cases_file(source, expect)
        sliding = choices.sliding(compiling.sliding)
        if against and sliding:
            raise UsageError("--against does not support sliding windows", hint="leave --sliding out")
        if junit_file:
            check_writable(junit_file)
        with out.stage() as say:
            if layers:
                generating = replace(generating, profile=True)
            check, site = _check(expect), connecting.site()
            image = building.image(source, files, compiling, generating, say, check, site, layers)
            lost = _lost(source, files, against, image, expect, cases) if against else None
            say("starting")
            with start_server(image, site, counting=False, on_log=on_log) as session:
                given = cases_of(session.models, source, expect, cases, sliding)
                results = verify_cases(session, given, say)
                watched = None
                if layers:
                    found = cases_of(session.models, source, expect, 1, sliding)
                    made_of = None if source.is_dir() else files.load(source, building.trust)
                    watched = _watched(session, image, source, made_of, found, say)
        borders = _borders(source, files, image.board, given)
        verified = Verified(image.board, results, watched, lost, borders)
        if junit_file:
            target = target_of(find_board(image.board), site)
            write(junit_file, junit([TargetOutcome(source.stem, image.board, target, results)]))
        out.result(verified.to_dict(), verified.print)
        if not verified.is_right:
            raise typer.Exit(MismatchError.exit_code)


def _check(expect: Path | None) -> Callable[[Sequence[ModelInfo]], object]:
    # The function that reads the file of cases before anything is built.
    def check(models: Sequence[ModelInfo]) -> None:
        if expect is not None:
            cases_of(models, Path(), expect, 0)

    return check


@dataclass(frozen=True, slots=True, eq=False)
class Verified:
    """Result of ``verify``: the cases and, if requested, outputs and losses of layers, by model.

    ``borders`` are those of a pipeline's integer features.
    """

    board: str
    results: Sequence[Verdict]
    watched: Mapping[str, Sequence[LayerVerdict]] | None
    lost: Sequence[Loss] | None
    borders: Borders | None = None

    @property
    def failed(self) -> list[Verdict]:
        return [result for result in self.results if result.difference]

    @property
    def model(self) -> str:
        return ", ".join(dict.fromkeys(result.model for result in self.results))

    @property
    def is_right(self) -> bool:
        layers = [verdict for verdicts in (self.watched or {}).values() for verdict in verdicts]
        return not self.failed and not any(verdict.wrong for verdict in layers)

    def to_dict(self) -> dict[str, Any]:
        watched = {name: [v.to_dict() for v in layers] for name, layers in (self.watched or {}).items()}
        return {
            "model": self.model,
            "board": self.board,
            "cases": len(self.results),
            "failed": len(self.failed),
            "differences": {_name(r, self.results): str(r.difference) for r in self.failed},
            "layers": None if self.watched is None else watched,
            "losses": None if self.lost is None else [loss.to_dict() for loss in self.lost],
            "borders": None if self.borders is None else asdict(self.borders),
        }

    def print(self, console: Console) -> None:
        for result in self.results:
            console.print(f"{_name(result, self.results)}: {result.difference or 'equal'}")
        count = len(self.results)
        console.print(
            f"{self.model} on {self.board}: {count - len(self.failed)} of {count} cases as expected"
        )
        if self.borders is not None:
            console.print(self.borders.text)
        for name, verdicts in (self.watched or {}).items():
            _print_layers(console, name, verdicts)
        if self.lost is not None:
            _print_losses(console, self.lost)


def _name(result: Verdict, results: Sequence[Verdict]) -> str:
    # The case, with its model if there are several.
    several = len({r.model for r in results}) > 1
    return f"{result.model}.{result.case}" if several else result.case


def _watched(
    session: Session,
    image: api.Image,
    source: Path,
    reference: api.Model | api.Imported | None,
    cases: Mapping[str, Sequence[ReferenceRun]],
    say: api.Say,
) -> dict[str, tuple[LayerVerdict, ...]]:
    # The layers of each model of the image, for its first case; ``reference`` is what it was made of.
    first = {name: first_runs(found) for name, found in cases.items()}
    plans = {plan.graph.name: plan for plan in image.plans}
    if plans:
        return {name: verify_layers(session, plan, first[name], say) for name, plan in plans.items()}
    known = any(layer.writes for info in session.models for layer in info.layers)
    if reference is None or not known:
        hint = "name the model's own file, or an archive with a graph"
        raise UsageError("--layers needs the network", where=str(source), hint=hint)
    on_host = reference.compile("host").generate("server", profile=True).build(say=say)
    with on_host.run() as host:
        return {name: verify_against_host(session, host, name, runs, say) for name, runs in first.items()}


def _borders(
    source: Path, files: Files, board: str, cases: Mapping[str, Sequence[ReferenceRun]]
) -> Borders | None:
    # Distance of integer features from their rounding borders, and the features that differ.
    if source.suffix != PIPELINE:
        return None
    pipeline = files.load_network(source).on(find_board(board)).pipeline
    given = (case.inputs[0] for found in cases.values() for case in found)
    return None if pipeline is None else count_borders(pipeline, given)


def _lost(
    source: Path, files: Files, against: Path, image: api.Image, expect: Path | None, cases: int
) -> tuple[Loss, ...]:
    # Loss against another network on the same cases.
    known = next(iter(cases_of(image.built.manifest.models, source, expect, cases).values()))
    graphs: list[Graph] = []
    for path in (source, against):
        graphs.append(files.load_network(path).graph)
    ours, theirs = graphs
    return losses(ours, theirs, known if expect else within_range(known, ours, theirs))


def _print_layers(console: Console, name: str, verdicts: Sequence[LayerVerdict]) -> None:
    wrong = [v for v in verdicts if v.wrong]
    right = f"{len(verdicts) - len(wrong)} of {len(verdicts)}"
    console.print(f"{name}: {right} layers compute what the reference does, in the first case")
    if wrong:
        first = wrong[0]
        console.print(f"the first that does not: {first.layer}, by the kernel {first.kernel}")
        console.print(f"  {first.value}{first.wrong}")


def _print_losses(console: Console, lost: Sequence[Loss]) -> None:
    console.print("\nwhat the layers lose: errors by signal to noise, the largest, of values up to")
    rows = table("layer", "operator", "dB", "error", "of", "", right=("dB", "error", "of"))
    for loss in lost:
        most = max(loss.histogram)
        bars = "".join(_BARS[-(-8 * count // most)] for count in loss.histogram)
        rows.add_row(
            loss.layer, loss.operator, f"{loss.sqnr:.1f}", f"{loss.largest:.3g}", f"{loss.range:.3g}", bars
        )
    console.print(rows)
