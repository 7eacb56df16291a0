"""``crtgen eval``: how good a pipeline is on labelled recordings."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crtgen import api
from crtgen.cli import options
from crtgen.cli.groups import Building, Compiling, Connecting, Files, Generating, flattened
from crtgen.cli.output import Debug, Json, Rows, guarded, on_log, table
from crtgen.errors import UsageError
from crtgen.ir import Array
from crtgen.measure.evaluation import (
    Classified,
    Detected,
    Ranked,
    Run,
    classify,
    detect,
    rank,
    read_clips,
    read_recordings,
    swept,
)
from crtgen.pipeline import Pipeline
from crtgen.session import Session

__all__ = ["command"]

_NORMAL = "normal"


@flattened
def command(
    source: options.Source,
    data: Annotated[
        Path,
        typer.Argument(
            help="A folder of clips for each label, or a table: file,start,stop.", show_default=False
        ),
    ],
    compiling: Compiling,
    generating: Generating,
    building: Building,
    files: Files,
    connecting: Connecting,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Count what a pipeline gets right on labelled recordings.

    Clips in folders give accuracy and confusion; a folder "normal" beside others, for an anomaly detector,
    the area under the curve; a table of events gives hits, misses, false alarms, also for other thresholds.
    """
    with guarded(as_json, debug) as out:
        pipeline = _pipeline(source)
        with out.stage() as say:
            image = building.image(source, files, compiling, generating, say, site=connecting.site())
            say("starting")
            with image.run(on_log=on_log, site=connecting.site()) as session:
                say("evaluating")
                result, sweep = _evaluated(pipeline, data, _runner(session))
        rows = [{"above": above, **asdict(found)} for above, found in sweep]
        value: dict[str, Any] = {"model": pipeline.graph.name, "board": image.board, **_figures(result)}

        def render(console: Console) -> None:
            console.print(f"{pipeline.graph.name} on {image.board}, {data}")
            for line in _lines(result):
                console.print(f"  {line}")
            if isinstance(result, Classified):
                console.print(_confusion(result))
            if sweep:
                console.print(_thresholds(sweep))

        out.result({**value, **({"thresholds": rows} if rows else {})}, render)


def _pipeline(source: Path) -> Pipeline:
    loaded = api.load(source)
    if not isinstance(loaded, api.Model) or loaded.pipeline is None or loaded.pipeline.decision is None:
        hint = "describe features, network and decision: docs/pipelines.md"
        raise UsageError("it is no pipeline with a decision", where=str(source), hint=hint)
    return loaded.pipeline


def _runner(session: Session) -> Run:
    def run(inputs: Sequence[Array]) -> list[Array]:
        session.reset()
        return [session.infer(samples)[0] for samples in inputs]

    return run


def _evaluated(
    pipeline: Pipeline, data: Path, run: Run
) -> tuple[Classified | Ranked | Detected, list[tuple[float, Detected]]]:
    assert pipeline.decision is not None
    if data.suffix.lower() == ".csv":
        recordings = read_recordings(data)
        found, kept = detect(pipeline, recordings, run)
        return found, list(swept(pipeline, recordings, kept, found.hours))
    if not data.is_dir():
        raise UsageError("it is neither a folder nor a table", where=str(data), hint="see crtgen eval --help")
    if not pipeline.decision.anomaly:
        return classify(pipeline, read_clips(data, pipeline.decision.names), run), []
    clips = read_clips(data, [path.name for path in sorted(data.iterdir()) if path.is_dir()])
    normal = [clip.path for clip in clips if clip.path.parent.name == _NORMAL]
    others = [clip.path for clip in clips if clip.path.parent.name != _NORMAL]
    if not normal or not others:
        raise UsageError('it needs a folder "normal", and others', where=str(data))
    return rank(pipeline, normal, others, run), []


def _figures(result: Classified | Ranked | Detected) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if isinstance(result, Classified):
        more = {"accuracy": result.accuracy, "clips": result.count}
    if isinstance(result, Detected):
        more = {"false_alarms_an_hour": result.false_alarms_an_hour}
    return {**asdict(result), **more}


def _lines(result: Classified | Ranked | Detected) -> list[str]:
    match result:
        case Classified():
            right = sum(row[i] for i, row in enumerate(result.confusion))
            return [f"accuracy {result.accuracy:.4f}, {right} of {result.count} clips"]
        case Ranked():
            return [f"AUC {result.auc:.4f}, {result.normal} normal clips and {result.anomalies} others"]
        case Detected():
            alarms = f"{result.false_alarms} false alarms in {result.hours:.2f} h"
            return [f"{result.hits} hits, {result.misses} misses, {alarms}"]


def _confusion(result: Classified) -> Rows:
    rows = table("is \\ taken for", *result.names, right=result.names)
    for name, row in zip(result.names, result.confusion, strict=True):
        rows.add_row(name, *map(str, row))
    return rows


def _thresholds(sweep: Sequence[tuple[float, Detected]]) -> Rows:
    columns = ("above", "hits", "misses", "false alarms", "an hour")
    rows = table(*columns, right=columns)
    for above, found in sweep:
        counts = (found.hits, found.misses, found.false_alarms)
        rows.add_row(f"{above:g}", *map(str, counts), f"{found.false_alarms_an_hour:.1f}")
    return rows
