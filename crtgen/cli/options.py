"""Options that several commands share, and how they turn into an image."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from crtgen import api
from crtgen.byoc import CMSIS_NN, Generator, read_generator
from crtgen.errors import UsageError
from crtgen.project import Options

__all__ = [
    "Baud",
    "Board",
    "CmsisNn",
    "Codegen",
    "Directory",
    "Executor",
    "Fallback",
    "Fold",
    "FvpPath",
    "GraphFile",
    "HardwareMap",
    "KeepInputs",
    "Models",
    "Optimize",
    "ParamsFile",
    "Place",
    "Platform",
    "Port",
    "Profile",
    "Runner",
    "Serial",
    "Source",
    "Target",
    "Toolchain",
    "generators",
    "make_image",
    "places",
]

Models = Annotated[
    list[Path],
    typer.Argument(help="Model files (.tflite), archives or exported libraries.", show_default=False),
]
Source = Annotated[
    Path,
    typer.Argument(help="A model file, an archive, a library, or a generated project.", show_default=False),
]
ParamsFile = Annotated[
    Path | None, typer.Option("--params", help="Parameters of an exported library, if not beside it.")
]
GraphFile = Annotated[
    Path | None, typer.Option("--graph-json", help="Graph JSON of an exported library, if not beside it.")
]
Board = Annotated[str, typer.Option("--board", "-b", help="The board; `crtgen boards` lists them.")]
Platform = Annotated[
    str | None, typer.Option(help="host, baremetal or zephyr; the board's first if not given.")
]
FvpPath = Annotated[Path | None, typer.Option(help="The program of the FVP; else CRTGEN_FVP, else the PATH.")]
Port = Annotated[str | None, typer.Option(help="The serial port of a board that runs the image already.")]
Baud = Annotated[int | None, typer.Option(help="The rate of the serial port; the board's if not given.")]
Serial = Annotated[str | None, typer.Option(help="The first characters of the number of the board's probe.")]
Runner = Annotated[
    str | None, typer.Option(help="west, pyocd, openocd, jlink, nrfjprog, gdb; else the board's first.")
]
HardwareMap = Annotated[
    Path | None,
    typer.Option(envvar="CRTGEN_HARDWARE_MAP", help="What is connected, in the format of Zephyr's twister."),
]
Optimize = Annotated[str, typer.Option(help="speed, size or balanced.")]
Target = Annotated[str, typer.Option(help="c, or llvm: the models as one object file, made by LLVM.")]
Executor = Annotated[str, typer.Option(help="aot: calls in C; graph: tables of calls, for own models.")]
Fold = Annotated[bool, typer.Option("--fold/--no-fold", help="Remove channels that cannot vary; exact.")]
Profile = Annotated[bool, typer.Option("--profile", help="Measure each layer; adds a call per layer.")]
KeepInputs = Annotated[bool, typer.Option("--keep-inputs", help="A run leaves its inputs intact.")]
Place = Annotated[
    list[str] | None,
    typer.Option(metavar="PART=MEMORY", help="Put arena, weights or kernels into a memory of the board."),
]
Toolchain = Annotated[
    str | None,
    typer.Option(help="gcc (arm-none-eabi), zig, or cc for the host; the first found if not given."),
]
Codegen = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:OPTION=VALUE,...]",
        help="Let an external code generator do what it can; see docs/byoc.md.",
    ),
]
CmsisNn = Annotated[
    Path | None, typer.Option("--cmsis-nn", help="Use CMSIS-NN; its sources are here, or in CMSIS_NN_PATH.")
]
Fallback = Annotated[
    bool, typer.Option("--fallback", help="What no code generator does is done by crtgen's own kernels.")
]
Directory = Annotated[
    Path | None,
    typer.Option("--dir", "-d", help="Keep the project here, instead of in a temporary directory."),
]


def places(pairs: list[str]) -> dict[str, str]:
    """``PART=MEMORY`` pairs as a table."""
    table = {}
    for pair in pairs:
        part, equals, memory = pair.partition("=")
        if not equals:
            raise UsageError(f"--place {pair} names no memory", hint="for example --place arena=dtcm")
        table[part] = memory
    return table


def generators(names: list[str] | None, cmsis_nn: Path | None) -> tuple[Generator, ...]:
    """The code generators of those names, with their options; a path to CMSIS-NN asks for that one too."""
    chosen = list(names or [])
    if cmsis_nn is not None and CMSIS_NN not in (name.partition(":")[0] for name in chosen):
        chosen.append(CMSIS_NN)
    settings = {CMSIS_NN: {"path": str(cmsis_nn)}} if cmsis_nn is not None else {}
    return tuple(read_generator(name, settings) for name in chosen)


def make_image(
    source: Path,
    board: str,
    directory: Path | None,
    toolchain: str | None,
    say: Callable[[str], None],
    *,
    optimize: str = "balanced",
    keep_inputs: bool = False,
    profile: bool = False,
    platform: str | None = None,
    target: str = "c",
    params: Path | None = None,
    graph: Path | None = None,
    executor: str = "aot",
    generators: tuple[Generator, ...] = (),
    fallback: bool = False,
) -> api.Image:
    """The server image of a file with models, or of a project that was generated before."""
    if source.is_dir():
        say("building")
        return api.open_project(source).build(toolchain=toolchain, say=say)
    say(f"reading {source.name}")
    model = api.load(source, params=params, graph=graph)
    compiled = api.compile(
        [model],
        board,
        optimize=optimize,
        keep_inputs=keep_inputs,
        executor=executor,
        generators=generators,
        fallback=fallback,
        say=say,
    )
    settings = Options(profile=profile, optimize=optimize)
    generated = compiled.generate("server", settings, platform=platform, target=target)
    say("building")
    if directory is None:
        return generated.build(toolchain=toolchain, say=say)
    return generated.extract(directory).build(toolchain=toolchain, say=say)
