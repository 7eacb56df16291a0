"""Options that several commands share, and how they turn into an image."""

from pathlib import Path
from typing import Annotated

import typer

from crtgen.byoc import CMSIS_NN, Generator, read_generator
from crtgen.errors import UsageError

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
    "Trust",
    "generators",
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
Target = Annotated[str, typer.Option(help="c, or llvm: the models as object files, made by LLVM.")]
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
Trust = Annotated[
    bool, typer.Option("--trust", help="The code in an archive or exported library may be compiled and run.")
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
