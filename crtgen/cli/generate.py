"""``crtgen generate``: a firmware project that builds with CMake alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.base import files, trust
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.base.temporary import TemporaryFolder
from crtgen.boards import (
    HOST,
    Board,
    board_file,
    board_of_core,
    chip_board,
    find_board,
    find_core,
    name_board,
)
from crtgen.cli import choices, options
from crtgen.cli.groups import Compiling, Files, Generating, flattened
from crtgen.cli.limits import limits_of
from crtgen.cli.output import Debug, Json, guarded
from crtgen.cli.show import arena_line, print_npu, print_real
from crtgen.compiler.codegen.drift import DriftReference
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.firmware.builder import find_workspace
from crtgen.firmware.project import FRAMEWORKS, Project, framework_of
from crtgen.firmware.project.manifest import MANIFEST
from crtgen.lab.measure.cases import read_inputs
from crtgen.network.ir import Array
from crtgen.network.passes import FoldedLayer

__all__ = ["command"]


@flattened
def command(
    context: typer.Context,
    models: options.Models,
    directory: Annotated[Path, typer.Argument(help="The folder of the project.", show_default=False)],
    compiling: Compiling,
    generating: Generating,
    reading: Files,
    type: Annotated[
        str | None,
        typer.Option(
            help="server, standalone, library or mlperftiny; default: server, or library with --for."
        ),
    ] = None,
    framework: Annotated[
        str, typer.Option("--for", metavar="FRAMEWORK", help=f"A library for {', '.join(FRAMEWORKS)}.")
    ] = "",
    core: Annotated[
        str | None,
        typer.Option(help="The core of a library, without --board or for a board that crtgen does not know."),
    ] = None,
    chip: Annotated[
        str | None, typer.Option(help="A chip of a CMSIS pack instead of a board, STM32F411RE for example.")
    ] = None,
    pack: options.Pack = None,
    pins: options.Pins = "",
    input: Annotated[Path | None, typer.Option(help="Built-in input of a standalone image.")] = None,
    watch: Annotated[
        Path | None,
        typer.Option(
            help="Notice inputs that differ from those in this file (inputs, cases or a recording)."
        ),
    ] = None,
    watch_layers: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Up to four layers whose saturated values --watch counts, too."),
    ] = "",
    own_arenas: Annotated[
        bool, typer.Option("--own-arenas", help="Give each of several models an arena of its own.")
    ] = False,
    registry: Annotated[
        bool, typer.Option("--registry", help="Add the function registry, with TVM's types, to a library.")
    ] = False,
    trust: options.Trust = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that were edited since they were generated.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print every rewrite of the graph.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a firmware project or a library.

    Model, runtime, start-up, linker script, CMake files.
    """
    with guarded(as_json, debug) as out:
        if pins and chip is None:
            raise UsageError("--pins needs --chip", hint="leave --pins out: a board's file names its pins")
        _require_own(directory, named=_is_typed(context, "directory"))
        with out.stage() as say:
            loaded = [reading.load(model, trust) for model in models]
            framework = framework_of(framework)
            kind = type or ("library" if framework else "server")
            named = _is_named(context, "board")
            if chip is not None:
                folder = TemporaryFolder()  # the project takes the board's file from there
                board = _chip(chip, pack, pins, named or core is not None, kind, folder.path)
            else:
                board = choices.slotted(_board(compiling.board, named, core, kind, framework))
            compiled = compiling.compile(loaded, say, board, generating.place or ())
            samples = _samples(input, kind, [module.info for module in compiled.modules])
            share = False if own_arenas else None
            compiled = compiled.placed(kind, **generating.options(share, registry, framework))
            watched = _watched(watch, watch_layers, compiled)
            generated = generating.generate(compiled, kind, samples, share, registry, framework, watched)
            kept = _extract(generated, directory, force)
        project, reports = generated.project, compiled.reports
        data = {
            "directory": str(directory),
            "board": project.board,
            "type": project.type,
            "files": len(project.files),
            "digest": project.digest,
            "kept": list(kept),
            "arena_bytes": sum(report.arena_bytes for report in reports),
            "models": [report.to_dict() for report in reports],
            "rewrites": [str(rewrite) for rewrite in compiled.rewrites],
            "folded": [
                rewrite.to_dict() for rewrite in compiled.rewrites if isinstance(rewrite, FoldedLayer)
            ],
        }

        def render(console: Console) -> None:
            if explain:
                for rewrite in compiled.rewrites:
                    console.print(str(rewrite))
            console.print(f"{directory}: {len(project.files)} files, {project.type} for {project.board}")
            for report in reports:
                console.print(f"{report.model}: {arena_line(report)}")
            print_real(console, reports)
            print_npu(console, reports)
            _print_boxes(console, generating, project.type)
            for path in kept:
                console.print(f"kept: {path}, which was edited; --force overwrites it")
            if compiled.untrusted:
                console.print(f"it holds the code of {compiled.untrusted}: build it if you trust that")
            console.print(f"next: {_next(project, directory)}")
            if project.platform == "zephyr" and not framework:
                _print_exports(console)
            _print_clock(console, board if chip else find_board(HOST.name))

        out.result(data, render)


def _require_own(directory: Path, *, named: bool) -> None:
    # Refuse a project that came along: files that crtgen does not know would be built with it. A computer
    # that remembers nothing has the person's word for a directory that is ``named``.
    if not (directory / MANIFEST).exists() or trust.is_claimed(directory):
        return
    if not named or trust.remembers():
        raise UsageError(
            "you did not generate the project there",
            where=str(directory),
            hint=f"name a new directory; or look at it, and if you agree: crtgen trust {directory}",
        )


def _extract(generated: api.GeneratedProject, directory: Path, force: bool) -> tuple[str, ...]:
    # Write the project and claim its directory; a new one before, so that a kill leaves no stranger.
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        trust.claim(directory)
    kept = generated.extract(directory, force=force).kept
    trust.claim(directory)
    return kept


def _is_typed(context: typer.Context, name: str) -> bool:
    # True if a value is from the command line, and not from crtgen.toml.
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _is_named(context: typer.Context, option: str) -> bool:
    # True if the option was given on the command line, not by default or settings.
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def _next(project: Project, directory: Path) -> str:
    # The next step for the user.
    framework = project.manifest.options.framework
    if framework:
        return f"{FRAMEWORKS[framework].use}: {directory}"
    is_part = (project.platform, project.type) == ("zephyr", "library")
    return f"include {directory}/crtgen.cmake" if is_part else f"crtgen build {directory}"


def _print_boxes(console: Console, generating: Generating, type: str) -> None:
    # Say which models a black box is not for.
    if generating.slots and generating.record and type == "server":
        console.print("models that are pushed into slots have no black box")


def _print_clock(console: Console, board: Board) -> None:
    # Clock of a chip that no board file describes.
    if board.timer is not None:
        clock = board.timer.clock // 1_000_000
        console.print(f"{board.name} runs at {clock} MHz: its internal oscillator, no PLL")


def _chip(name: str, pack: Path | None, pins: str, is_named: bool, type: str, folder: Path) -> Board:
    # A chip: for a library what its pack says, for an image a board with the start of its family.
    if is_named:
        raise UsageError("--chip is instead of --board and --core", hint="leave them out")
    chip = chip_board(name, pack)
    if type == "library":
        return chip
    file = folder / f"{chip.name}.toml"
    files.write(file, board_file(chip, pins).encode())
    return name_board(file)


def _board(name: str, named: bool, core: str | None, type: str, framework: str) -> Board:
    # The board; any board with the core, if crtgen does not know it, or nobody named one, for a library. A
    # framework that knows no Cortex-M gets portable C unless something else is named.
    if not named and core is None and framework in FRAMEWORKS and FRAMEWORKS[framework].portable:
        return find_board(HOST.name)
    if not named and core is not None:
        if type != "library":
            message = f"--core is for a library: a {type} image is for a board"
            raise UsageError(message, hint="--type library, or name a --board")
        return find_board(core) if core == HOST.name else board_of_core(core)
    try:
        board = find_board(name)
    except UsageError:
        if core is None or type != "library":
            raise
        return board_of_core(core)
    if core is not None and find_core(core).arch != board.core.arch:
        raise UsageError(
            f"the board has a {board.core.name}, not a {core}", where=name, hint="leave --core out"
        )
    return board


def _print_exports(console: Console) -> None:
    # Variables that a plain ``west build`` needs and ``crtgen build`` sets itself.
    try:
        lines = find_workspace().exports()
    except ToolMissingError:
        return
    if lines:
        console.print("before a plain west build:")
    for line in lines:
        console.print(f"  {line}")


def _watched(file: Path | None, layers: str, compiled: "api.Compiled") -> dict[str, DriftReference]:
    if file is None:
        if layers:
            raise UsageError("--watch-layers needs data of usual runs", hint="name it with --watch")
        return {}
    if len(compiled.plans) != 1 or len(compiled.modules) != 1:
        raise UsageError(
            "--watch supports one network only",
            where=str(file),
            hint="leave --watch out, or generate one model",
        )
    info = compiled.modules[0].info
    return {info.name: limits_of(file, [n for n in layers.split(",") if n], compiled)}


def _samples(
    file: Path | None, type: str, models: Sequence[ModelInfo]
) -> dict[str, tuple[Array, ...]] | None:
    if file is None:
        return None
    if type != "standalone":
        raise UsageError(f"--input is for a standalone image, not for a {type}", hint="--type standalone")
    if len(models) > 1:
        raise UsageError(
            "--input supports one model only", hint="leave it out: the inputs are then a pattern"
        )
    given = read_inputs(file, models[0].inputs)
    if given.is_sequence:
        raise UsageError(
            "the cases are a sequence of runs; expected one run",
            where=given.source,
            hint="give a file with one array per input",
        )
    return {models[0].name: given.runs[0]}
