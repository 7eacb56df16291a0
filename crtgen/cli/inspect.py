"""``crtgen inspect``: shows what is in a model, and what crtgen would generate for it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer
from rich.console import Console

from crtgen.api import Model
from crtgen.api.report import Report, arena_map
from crtgen.base import files as writing
from crtgen.base.errors import UsageError
from crtgen.cli import options
from crtgen.cli.groups import Compiling, Files, flattened
from crtgen.cli.output import Debug, Json, guarded
from crtgen.cli.show import arena_line, interface_lines, layer_table, print_npu, print_real
from crtgen.firmware.library import Module
from crtgen.network.frontends import WRAPPINGS, Wrapped, unwrap
from crtgen.network.pipeline import JoinedPipeline

__all__ = ["command"]


@flattened
def command(
    model: Annotated[
        Path, typer.Argument(help="A model file, an archive or an exported library.", show_default=False)
    ],
    compiling: Compiling,
    files: Files,
    place: options.Place = None,
    graph: Annotated[bool, typer.Option("--graph", help="Show the whole graph, as text.")] = False,
    arena: Annotated[bool, typer.Option("--arena", help="Draw the arena.")] = False,
    modules: Annotated[bool, typer.Option("--modules", help="Show the tree of modules.")] = False,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw layers, cycles and the arena on a page.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show inputs, outputs, layers with their kernels, arena."""
    with guarded(as_json, debug) as out:
        if page is not None:
            from crtgen.lab.html import require_charts  # only here: it loads the checker of proofs, too

            require_charts()
            writing.check_writable(page)
        with out.stage() as say:
            loaded = files.load(model)
            compiled = compiling.compile([loaded], say, place=place or ()).placed()
        reports, trees = compiled.reports, compiled.trees
        if page is not None:
            from crtgen.lab.html import render_plan

            writing.write(page, render_plan(reports).encode())
        if any(report.graph is None for report in reports) and (graph or arena):
            raise UsageError(
                "code has no graph and no plan to show",
                where=str(model),
                hint="name the .tflite or .onnx that it was made of",
            )

        def render(console: Console) -> None:
            for report in reports:
                if graph:
                    console.print(report.graph, end="")
                if arena:
                    console.print(arena_map(report), end="")
            for tree in trees if modules else ():
                _print_module(console, tree)
            if not (graph or arena or modules):
                _print_all(console, reports, pipeline, inside)

        pipeline = loaded.on(compiled.board).pipeline if isinstance(loaded, Model) else None
        inside = unwrap(model) if model.suffix.lower() in WRAPPINGS else None
        models = _data(reports, trees, pipeline, inside)
        out.result(models[0] if len(models) == 1 else {"models": models}, render)


def _data(
    reports: Sequence[Report],
    trees: Sequence[Module],
    pipeline: JoinedPipeline | None,
    inside: Wrapped | None,
) -> list[dict[str, Any]]:
    models = [
        {**report.to_dict(), "modules": _module(tree)} for report, tree in zip(reports, trees, strict=True)
    ]
    if pipeline is not None:
        models[0]["features"] = asdict(pipeline.settings)
    if inside is not None:
        models[0]["inside"] = {
            "where": inside.where,
            "kind": inside.kind,
            "arena_bytes": inside.arena_bytes,
        }
    return models


def _verdict(inside: Wrapped, report: Report) -> str:
    # Content of the file, and the use of the memory plan that came with it.
    text = f"{inside.where}: a {inside.kind} of {len(inside.data):,} bytes"
    if inside.arena_bytes is None:
        return text
    saved = inside.arena_bytes - report.arena_bytes
    return (
        f"{text}; TensorFlow Lite Micro has an arena of {inside.arena_bytes:,} bytes there: {saved:,} saved"
    )


def _module(module: Module) -> dict[str, Any]:
    return {
        "name": module.name,
        "kind": module.key,
        "device": str(module.context),
        "functions": list(module.get_func_names()),
        "constants": list(module.get_const_vars()),
        "dso_exportable": module.is_dso_exportable,
        "crt_exportable": module.is_crt_exportable,
        "imports": [_module(m) for m in module.imports],
    }


def _print_module(console: Console, module: Module, depth: int = 0) -> None:
    indent = "  " * depth
    constants = len(module.get_const_vars())
    text = f"{module.name}: {module.key} on {module.context}" + (
        f", {constants} constants" if constants else ""
    )
    console.print(f"{indent}{text}")
    for name in module.get_func_names():
        console.print(f"{indent}  function {name}")
    for imported in module.imports:
        _print_module(console, imported, depth + 1)


def _print_all(
    console: Console, reports: Sequence[Report], pipeline: JoinedPipeline | None, inside: Wrapped | None
) -> None:
    if pipeline is not None:
        _print_settings(console, pipeline)
    for report in reports:
        if inside is not None:
            console.print(_verdict(inside, report))
        _print(console, report)


def _print_settings(console: Console, pipeline: JoinedPipeline) -> None:
    # The settings of the features, each as a line of its own could say it, wrapped.
    listed = (f"{name} = {json.dumps(value)}" for name, value in asdict(pipeline.settings).items())
    text = ", ".join(item for item in listed if not item.endswith("= null"))
    console.print("\n".join(wrap(f"[features] {text}", 110, break_long_words=False)))


def _print(console: Console, report: Report) -> None:
    planned = report.arena is not None
    if not planned:
        console.print(report.model)
    for line in interface_lines(report):
        console.print(line)
    console.print(layer_table(report, *(("MACs", "weights", "scratch") if planned else ()), output=planned))
    console.print(f"{report.macs:,} MACs, {arena_line(report)}")
    print_real(console, [report])
    print_npu(console, [report])
