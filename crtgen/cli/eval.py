"""``crtgen eval``: measures the quality of a model on labelled data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crtgen import api
from crtgen.api.slot import start_server
from crtgen.base.errors import MismatchError
from crtgen.base.files import read_text
from crtgen.base.quality import GOALS, limits_of, shortfalls
from crtgen.boards import find_board
from crtgen.cli import options
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, Rows, guarded, on_log, table
from crtgen.lab.measure.evaluation import Classified, Evaluation, Threshold, evaluate, rehearse, sweep_cells
from crtgen.lab.measure.media import Scaling
from crtgen.lab.measure.subject import Subject, reference, run_of, seen_by
from crtgen.network.ir import Array
from crtgen.network.pipeline import Borders, count_borders

__all__ = ["command"]


@flattened
def command(
    source: options.Source,
    data: Annotated[
        Path,
        typer.Argument(
            help="A folder with a folder of clips per label, arrays (.npz), or a table of file,start,stop.",
            show_default=False,
        ),
    ],
    compiling: Compiling,
    generating: Generating,
    building: Building,
    files: Files,
    connecting: Connecting,
    against: Annotated[
        Path | None,
        typer.Option(help="Compare with another model on the same data, the float one for example."),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(help=f"Fail below the goal of a benchmark: {', '.join(GOALS)}.", show_default=False),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="A file with names of a network's outputs, as the folders of DATA are called."),
    ] = None,
    mean: Annotated[float | None, typer.Option(help="For a picture: (pixel - mean) / std.")] = None,
    std: Annotated[
        float | None, typer.Option(help="For a picture; default: what suits the input's type.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Count what a pipeline, or a network, gets right on labelled data.

    Labelled clips give accuracy and confusion, or for an anomaly detector the area under the curve. A table
    of events gives hits, misses and false alarms, also for other thresholds.
    """
    with guarded(as_json, debug) as out:
        limits = limits_of(goal) if goal is not None else {}
        names = read_text(labels, "the labels").splitlines() if labels else []
        scaling = Scaling(mean, std)
        loaded = files.loaded(source)
        subject = Subject.of(loaded.model, names, scaling)
        shortfalls(limits, rehearse(subject, data).figures)
        found: dict[str, Evaluation] = {}
        with out.stage() as say:
            if against is not None:
                say(f"evaluating {against.name} and {source.name} by the reference")
                other = Subject.of(api.load_network(against), names, scaling)
                found[f"{against.name}, reference"] = evaluate(other, data, reference(other.model))
                found[f"{source.name}, reference"] = evaluate(subject, data, reference(subject.model))
            site = connecting.site()
            again = loaded if loaded.model.pipeline is not None else None
            image = building.image(source, files, compiling, generating, say, site=site, loaded=again)
            say("starting")
            with start_server(image, site, counting=False, on_log=on_log) as session:
                say("evaluating")
                signals: list[Array] = []
                run, pipeline = run_of(session), subject.model.on(find_board(image.board)).pipeline
                if pipeline is not None:
                    run = seen_by(run, pipeline, signals)
                found[f"{source.name} on {image.board}"] = evaluate(subject, data, run)
        borders = None if pipeline is None else count_borders(pipeline, signals)
        shown = _Shown(subject.model.name, image.board, data, found, limits, borders)
        out.result(shown.to_dict(), shown.print)
        if shown.shortfalls:
            raise typer.Exit(MismatchError.exit_code)


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """Result of ``eval``: ``found`` by the machine that computed it, the image last; ``borders`` of integer
    features.
    """

    model: str
    board: str
    data: Path
    found: Mapping[str, Evaluation]
    limits: Mapping[str, float]
    borders: Borders | None

    @property
    def last(self) -> Evaluation:
        return list(self.found.values())[-1]

    @property
    def shortfalls(self) -> list[str]:
        return shortfalls(self.limits, self.last.figures)

    def to_dict(self) -> dict[str, Any]:
        others = [{"by": by, **e.figures, **self._same(e)} for by, e in list(self.found.items())[:-1]]
        made: dict[str, Any] = {"model": self.model, "board": self.board, **_figures(self.last)}
        if self.last.thresholds:
            made["thresholds"] = [asdict(each) for each in self.last.thresholds]
        if self.borders is not None:
            made["borders"] = asdict(self.borders)
        if others:
            made["against"] = others
        if self.limits:
            made |= {"goal": dict(self.limits), "shortfalls": self.shortfalls}
        return made

    def _same(self, other: Evaluation) -> dict[str, int]:
        # Counts of clips that another network classified the same way.
        if not other.taken:
            return {}
        return {"same": sum(a == b for a, b in zip(other.taken, self.last.taken, strict=True))}

    def print(self, console: Console) -> None:
        console.print(f"{self.model} on {self.board}, {self.data}")
        for by, other in self.found.items():
            same = self._same(other) if other is not self.last else {}
            more = f"; {same['same']} clips taken for the same" if same else ""
            console.print(f"  {by}: {other.text}{more}" if len(self.found) > 1 else f"  {other.text}")
        if isinstance(self.last.result, Classified):
            console.print(_confusion(self.last.result))
        if self.last.thresholds:
            console.print(_thresholds(self.last.thresholds))
        if self.borders is not None:
            console.print(f"  {self.borders.text}")
        for line in self.shortfalls:
            console.print(f"  NOT GOOD ENOUGH: {line}")


def _figures(evaluation: Evaluation) -> dict[str, Any]:
    result = evaluation.result
    counted = {"clips": result.count} if isinstance(result, Classified) else {}
    return {**asdict(result), **evaluation.figures, **counted}


def _confusion(result: Classified) -> Rows:
    rows = table("is \\ taken for", *result.names, right=result.names)
    for name, row in zip(result.names, result.confusion, strict=True):
        rows.add_row(name, *map(str, row))
    return rows


def _thresholds(sweep: Sequence[Threshold]) -> Rows:
    columns, lines = sweep_cells(sweep)
    rows = table(*columns, right=columns)
    for line in lines:
        rows.add_row(*line)
    return rows
