"""``crtgen generate``: a firmware project that builds with CMake alone."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.cases import read_inputs
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.project import Options

__all__ = ["command"]


def command(
    model: Annotated[Path, typer.Argument(help="A model file (.tflite).", show_default=False)],
    directory: Annotated[Path, typer.Argument(help="Where the project goes.", show_default=False)],
    board: options.Board = "mps2_an386",
    platform: options.Platform = None,
    type: Annotated[str, typer.Option(help="server, standalone or library.")] = "server",
    input: Annotated[Path | None, typer.Option(help="Built-in input of a standalone image.")] = None,
    optimize: options.Optimize = "balanced",
    keep_inputs: options.KeepInputs = False,
    profile: options.Profile = False,
    explain: Annotated[bool, typer.Option("--explain", help="Tell every rewrite of the graph.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a project: model, runtime, start-up, linker script, CMake files."""
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            loaded = api.load(model)
            compiled = api.compile([loaded], board, optimize=optimize, keep_inputs=keep_inputs, say=say)
            info = compiled.modules[0].info
            samples = {info.name: read_inputs(input, info.inputs)} if input else None
            settings = Options(profile=profile, optimize=optimize)
            generated = compiled.generate(type, settings, samples, platform)
            generated.extract(directory)
        project = generated.project
        data = {
            "directory": str(directory),
            "board": project.board,
            "type": project.type,
            "files": len(project.files),
            "digest": project.digest,
            "arena_bytes": info.arena,
            "arena_lower_bound": info.lower_bound,
            "arena_optimal": info.optimal,
            "weights_bytes": info.weights,
            "rewrites": [str(hit) for hit in compiled.hits],
        }

        def render(console: Console) -> None:
            if explain:
                for hit in compiled.hits:
                    console.print(str(hit), markup=False)
            bound = "optimal" if info.optimal else f"lower bound {info.lower_bound:,}"
            console.print(f"{directory}: {len(project.files)} files, {project.type} for {project.board}")
            console.print(f"arena {info.arena:,} bytes ({bound}), weights {info.weights:,} bytes")
            console.print(f"next: crtgen build {directory}")

        out.result(data, render)
