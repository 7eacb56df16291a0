"""Options that several commands share; ``choices`` parses their values."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crtgen.boards import RUNNERS, all_boards, parse_size

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
    "board_names",
    "nbytes",
]


def nbytes(text: str) -> int:
    """Parse a number of bytes, plain or with a unit: ``8192``, ``8K``, ``8 KiB``."""
    text = str(text)  # crtgen.toml has numbers
    try:
        return int(text) if text.isascii() and text.isdigit() else parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


_code = partial(typer.Option, rich_help_panel="From a model to code")
_project = partial(typer.Option, rich_help_panel="From code to an image")
_board = partial(typer.Option, rich_help_panel="The board")


def board_names(incomplete: str) -> list[str]:
    """Return the names of boards that begin with ``incomplete``, for a shell's completion."""
    return [board.name for board in all_boards() if board.name.startswith(incomplete)]


Models = Annotated[
    list[Path],
    typer.Argument(help="Model files (.tflite, .onnx), archives or exported libraries.", show_default=False),
]
MoreModels = Annotated[
    list[Path] | None,
    typer.Argument(help="Model files; default: those of crtgen.toml.", show_default=False),
]
Boards = Annotated[
    list[str] | None,
    typer.Option(
        "--board", "-b", help="Boards, instead of those of crtgen.toml.", autocompletion=board_names
    ),
]
Junit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write the results as JUnit XML."),
]
Source = Annotated[
    Path,
    typer.Argument(
        help="A model file, an archive, an exported library, or a generated project.", show_default=False
    ),
]
ParamsFile = Annotated[
    Path | None,
    _code("--params", help="Parameters of an exported library; default: the file beside it."),
]
GraphFile = Annotated[
    Path | None,
    _code("--graph-json", help="Graph JSON of an exported library; default: the file beside it."),
]
Shape = Annotated[
    list[str] | None,
    _code(
        "--shape",
        metavar="INPUT=1,96,96,3",
        help="Replace the shape of an input, or fill in its open lengths.",
    ),
]
Io = Annotated[
    str,
    _code("--io", metavar="TYPE", help="int8 or uint8: the type of quantised inputs and outputs."),
]
Channels = Annotated[
    str,
    _code(
        "--channels",
        metavar="last",
        help="last: inputs and outputs of an ONNX model are [N, H, W, C], as cameras give them.",
    ),
]
Board = Annotated[
    str,
    _board(
        "--board",
        "-b",
        help="A board or its file; `crtgen boards` lists them.",
        autocompletion=board_names,
    ),
]
Platform = Annotated[
    str | None,
    _project(help="host, baremetal or zephyr; default: the board's first."),
]
FvpPath = Annotated[
    Path | None,
    _board(help="The program of the FVP; default: CRTGEN_FVP, then the PATH."),
]
Port = Annotated[
    str | None,
    _board(help="The serial port or Unix socket of a device that already runs the image."),
]
Baud = Annotated[
    int | None,
    _board(help="The rate of the serial port; default: the board's."),
]
Serial = Annotated[
    str | None,
    _board(help="The board's debug probe, by the first characters of its number."),
]
CoreDump = Annotated[
    Path | None,
    _board(help="If the device faults, write a core dump for gdb-multiarch."),
]
Runner = Annotated[
    str | None,
    _board(help=f"{', '.join(RUNNERS)}; default: the board's first."),
]
HardwareMap = Annotated[
    Path | None,
    _board(
        envvar="CRTGEN_HARDWARE_MAP",
        help="A file that lists connected boards, in the format of Zephyr's twister.",
    ),
]
Simulate = Annotated[
    bool, _board("--simulate", help="Use the simulator of a board that could also be connected.")
]
Optimize = Annotated[str, _code(help="speed, size, balanced or ram.")]
Target = Annotated[str, _project(help="c: C files; llvm: object files, compiled by LLVM.")]
Executor = Annotated[
    str, _code(help="aot: direct calls in C; graph: tables of calls, as TVM's graph executor.")
]
Cores = Annotated[int, _code(min=1, max=2, help="2: each of two cores computes half of every layer.")]
Feed = Annotated[
    str,
    _code(metavar="rows", help="rows: take an image row by row, without storing it; see docs/by-rows.md."),
]
Fold = Annotated[
    bool,
    _code("--fold/--no-fold", help="Remove channels that have the same value for every input; exact."),
]
Slides = Annotated[
    tuple[str, str] | None,
    _code(
        "--sliding",
        metavar="axis=1 step=2",
        help="Input windows overlap: a run gets only what is new; exact; see docs/sliding.md.",
    ),
]
Profile = Annotated[
    bool,
    _project("--profile", help="Measure each layer; adds two reads of the timer per layer."),
]
Rtt = Annotated[
    bool,
    _project("--rtt", help="Talk through the debug probe (pyOCD) instead of a serial port."),
]
Record = Annotated[
    int, _project("--record", metavar="RUNS", help="Keep the last runs in RAM, also over a reset.")
]
Push = Annotated[
    str | None,
    _board(metavar="SLOT", help="Push the model into this slot of a running device, without flashing it."),
]
Slots = Annotated[
    bool, _project("--slots", help="Let the server run models that are pushed into the board's slots.")
]
Pack = Annotated[
    Path | None,
    typer.Option("--pack", help="The CMSIS pack of --chip, .pack or .pdsc; default: installed packs."),
]
Pins = Annotated[
    str,
    typer.Option("--pins", metavar="TX,RX", help="Pins of the UART of --chip, PA9,PA10 for example."),
]
KeepInputs = Annotated[
    bool, _code("--keep-inputs", help="Keep inputs intact, so that a run can be repeated; costs arena.")
]
Place = Annotated[
    list[str] | None,
    _project(
        metavar="PART=MEMORY",
        help="Put arena, weights, kernels or npu (an NPU's scratch memory) into this memory of the board. "
        "By default weights that the core waits for are copied to free RAM, and an arena is in the RAMs "
        "where it waits least.",
    ),
]
Stack = Annotated[
    int | None,
    _project(
        parser=nbytes,
        metavar="BYTES",
        help="Size of the stack; default: 8192, or a quarter of a small RAM.",
    ),
]
Pool = Annotated[
    str | None,
    _project(
        metavar="BYTES[:BLOCKS]",
        help="Memory that a host can allocate on the device; default: what the models need.",
    ),
]
Receive = Annotated[
    int | None,
    _project(
        parser=nbytes,
        metavar="BYTES",
        help="The longest packet from a host; default: 2048, or 1/8 of a small RAM.",
    ),
]
QuantizeInput = Annotated[
    bool, typer.Option("--quantize-input", help="Inputs are real values: quantise them as the model says.")
]
Toolchain = Annotated[
    str | None,
    _project(
        help="gcc (arm-none-eabi), picolibc (GCC with that C library), zig, or cc for the host; default: "
        "the first that is found."
    ),
]
Codegen = Annotated[
    list[str] | None,
    _code(
        metavar="NAME[:OPTION=VALUE,...]",
        help="Use an external code generator for the operators that it supports; see docs/byoc.md.",
    ),
]
CmsisNn = Annotated[
    Path | None,
    _code("--cmsis-nn", help="Use CMSIS-NN with its sources in this folder, or in CMSIS_NN_PATH."),
]
Fallback = Annotated[
    bool,
    _code("--fallback", help="Use crtgen's kernels for operators that no code generator supports."),
]
Npu = Annotated[
    str,
    _code(
        "--npu",
        metavar="NAME",
        help="Layers for this NPU: ethos-u55-128, for example; board: the one in the board's file.",
    ),
]
NpuDriver = Annotated[
    str,
    _code(
        "--npu-driver",
        metavar="NAME",
        help="Driver of the NPU: crtgen, or arm (ethos-u-core-driver), which the program brings.",
    ),
]
Tune = Annotated[
    Path | None,
    _code("--tune", metavar="FILE", help="Use the kernels that `crtgen tune` chose."),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Allow the code in an archive or exported library to be compiled and run."),
]
Directory = Annotated[
    Path | None,
    _project("--dir", "-d", help="Keep the project in this folder; default: a temporary one."),
]

_battery = partial(typer.Option, rich_help_panel="Energy")

Every = Annotated[
    float | None,
    _battery(metavar="SECONDS", help="Seconds between two runs: print how many days a cell lasts."),
]
Cell = Annotated[float, _battery(metavar="MWH", help="Energy of the cell; default: a CR2032.")]
Power = Annotated[
    Path | None,
    _battery(
        metavar="FILE",
        help="A recording of a Joulescope, a PPK2 or hpx; default: the figure of the board's file.",
    ),
]
Volts = Annotated[float | None, _battery(help="Supply voltage, if the recording has only currents.")]
