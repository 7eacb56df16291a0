"""Options that several commands share; ``choices`` has what they mean."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crtgen.boards import RUNNERS, parse_size

__all__ = [
    "Baud",
    "Board",
    "Boards",
    "Cell",
    "Channels",
    "CmsisNn",
    "Codegen",
    "CoreDump",
    "Cores",
    "Directory",
    "Every",
    "Executor",
    "Fallback",
    "Fold",
    "FvpPath",
    "GraphFile",
    "HardwareMap",
    "Io",
    "Junit",
    "KeepInputs",
    "Models",
    "MoreModels",
    "Optimize",
    "ParamsFile",
    "Place",
    "Platform",
    "Pool",
    "Port",
    "Power",
    "Profile",
    "QuantizeInput",
    "Receive",
    "Runner",
    "Serial",
    "Shape",
    "Simulate",
    "Slides",
    "Source",
    "Stack",
    "Target",
    "Toolchain",
    "Trust",
    "Tune",
    "Volts",
    "nbytes",
]


def nbytes(text: str) -> int:
    """Bytes, as a number or as the files of boards write them: ``8192``, ``8K``, ``8 KiB``."""
    text = str(text)  # crtgen.toml has numbers
    try:
        return int(text) if text.isascii() and text.isdigit() else parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


_code = partial(typer.Option, rich_help_panel="From a model to code")
_project = partial(typer.Option, rich_help_panel="From code to an image")
_board = partial(typer.Option, rich_help_panel="The board")

Models = Annotated[
    list[Path],
    typer.Argument(help="Model files (.tflite, .onnx), archives or exported libraries.", show_default=False),
]
MoreModels = Annotated[
    list[Path] | None,
    typer.Argument(help="Model files; those of crtgen.toml if none is named.", show_default=False),
]
Boards = Annotated[
    list[str] | None,
    typer.Option("--board", "-b", help="Boards, in the place of those of crtgen.toml."),
]
Junit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write the results as JUnit XML."),
]
Source = Annotated[
    Path,
    typer.Argument(help="A model file, an archive, a library, or a generated project.", show_default=False),
]
ParamsFile = Annotated[
    Path | None,
    _code("--params", help="Parameters of an exported library, if not beside it."),
]
GraphFile = Annotated[
    Path | None,
    _code("--graph-json", help="Graph JSON of an exported library, if not beside it."),
]
Shape = Annotated[
    list[str] | None,
    _code("--shape", metavar="INPUT=1,96,96,3", help="The shape of an input, where the file's is not meant."),
]
Io = Annotated[
    str,
    _code("--io", metavar="TYPE", help="int8 or uint8: of quantised inputs and outputs, in any file."),
]
Channels = Annotated[
    str,
    _code("--channels", metavar="last", help="Images of an ONNX model are [N, H, W, C], as of cameras."),
]
Board = Annotated[
    str, _board("--board", "-b", help="The board, or the file of one; `crtgen boards` lists them.")
]
Platform = Annotated[
    str | None,
    _project(help="host, baremetal or zephyr; the board's first if not given."),
]
FvpPath = Annotated[
    Path | None,
    _board(help="The program of the FVP; else CRTGEN_FVP, else the PATH."),
]
Port = Annotated[
    str | None,
    _board(help="The serial port, or Unix socket, of a board that runs the image already."),
]
Baud = Annotated[
    int | None,
    _board(help="The rate of the serial port; the board's if not given."),
]
Serial = Annotated[
    str | None,
    _board(help="The first characters of the number of the board's probe."),
]
CoreDump = Annotated[
    Path | None,
    _board(help="If the device faults, write registers and stack here, for gdb-multiarch."),
]
Runner = Annotated[
    str | None,
    _board(help=f"{', '.join(RUNNERS)}; else the board's first."),
]
HardwareMap = Annotated[
    Path | None,
    _board(envvar="CRTGEN_HARDWARE_MAP", help="What is connected, in the format of Zephyr's twister."),
]
Simulate = Annotated[
    bool, _board("--simulate", help="The board's simulator, where it could be connected as well.")
]
Optimize = Annotated[str, _code(help="speed, size, balanced or ram.")]
Target = Annotated[str, _project(help="c, or llvm: the models as object files, made by LLVM.")]
Executor = Annotated[str, _code(help="aot: calls in C; graph: tables of calls, for own models.")]
Cores = Annotated[int, _code(min=1, max=2, help="2: two cores compute a half of each layer.")]
Feed = Annotated[
    str,
    _code(metavar="rows", help="rows: the image comes by rows, and lies in no memory; docs/by-rows.md."),
]
Fold = Annotated[
    bool,
    _code("--fold/--no-fold", help="Remove channels that cannot vary; exact."),
]
Slides = Annotated[
    tuple[str, str] | None,
    _code(
        "--sliding",
        metavar="axis=1 step=2",
        help="Windows of the input overlap: a run gets what is new of one; exact; see docs/sliding.md.",
    ),
]
Profile = Annotated[
    bool,
    _project("--profile", help="Measure each layer; adds a call per layer."),
]
Rtt = Annotated[
    bool,
    _project("--rtt", help="A server's serial port is memory that a debug probe reads: no wire, by pyOCD."),
]
Record = Annotated[int, _project("--record", metavar="RUNS", help="Keep the last runs, also over a reset.")]
Push = Annotated[
    str | None,
    _board(metavar="SLOT", help="Push the model into this slot of the device; its firmware stays."),
]
Slots = Annotated[
    bool, _project("--slots", help="A server also runs models that are pushed into the board's slots.")
]
Pack = Annotated[
    Path | None,
    typer.Option("--pack", help="The CMSIS pack of --chip, .pack or .pdsc; else those that are installed."),
]
Pins = Annotated[
    str,
    typer.Option("--pins", metavar="TX,RX", help="The UART's pins of --chip, PA9,PA10 for example."),
]
KeepInputs = Annotated[bool, _code("--keep-inputs", help="A run leaves its inputs intact.")]
Place = Annotated[
    list[str] | None,
    _project(metavar="PART=MEMORY", help="Put arena, weights or kernels into a memory of the board."),
]
Stack = Annotated[
    int | None,
    _project(
        parser=nbytes,
        metavar="BYTES",
        help="What bare metal and Zephyr reserve for the stack; 8192, or a quarter of a small RAM.",
    ),
]
Pool = Annotated[
    str | None,
    _project(
        metavar="BYTES[:BLOCKS]",
        help="What a host can allocate on the device; what the models need if not given.",
    ),
]
Receive = Annotated[
    int | None,
    _project(
        parser=nbytes,
        metavar="BYTES",
        help="The longest packet that a host can send; 2048, as TVM's own host, or 1/8 of a small RAM.",
    ),
]
QuantizeInput = Annotated[
    bool, typer.Option("--quantize-input", help="Inputs are real values: quantise them as the model says.")
]
Toolchain = Annotated[
    str | None,
    _project(help="gcc (arm-none-eabi), zig, or cc for the host; the first found if not given."),
]
Codegen = Annotated[
    list[str] | None,
    _code(
        metavar="NAME[:OPTION=VALUE,...]",
        help="Let an external code generator do what it can; see docs/byoc.md.",
    ),
]
CmsisNn = Annotated[
    Path | None,
    _code("--cmsis-nn", help="Use CMSIS-NN; its sources are here, or in CMSIS_NN_PATH."),
]
Fallback = Annotated[
    bool,
    _code("--fallback", help="What no code generator does is done by crtgen's own kernels."),
]
Tune = Annotated[
    Path | None,
    _code("--tune", metavar="FILE", help="Kernels that `crtgen tune` chose, for what the file names."),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="The code in an archive or exported library may be compiled and run.")
]
Directory = Annotated[
    Path | None,
    _project("--dir", "-d", help="Keep the project here, instead of in a temporary directory."),
]

_battery = partial(typer.Option, rich_help_panel="Energy")

Every = Annotated[
    float | None,
    _battery(metavar="SECONDS", help="A run starts every so many seconds: print days on a cell."),
]
Cell = Annotated[float, _battery(metavar="MWH", help="What the cell holds; a CR2032 if not given.")]
Power = Annotated[
    Path | None,
    _battery(
        metavar="FILE",
        help="What a Joulescope, a PPK2 or hpx recorded while the model ran; else the board's file says it.",
    ),
]
Volts = Annotated[float | None, _battery(help="The supply, where the recording has only currents.")]
