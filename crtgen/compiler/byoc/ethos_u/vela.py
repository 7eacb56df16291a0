"""Runs Vela, Arm's compiler for Ethos-U, as a separate program, and reads its output.

crtgen requests Vela's ``raw`` format: the stream, the constants, and the positions of inputs, outputs and
scratch. With regions of their own (``--separate-io-regions``, and ``regions`` for each of several) the stream
reads the network's inputs and writes its outputs at the addresses of our plan; nothing is copied.
"""

import re
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import prod
from pathlib import Path
from types import MappingProxyType

from crtgen.base.child import run_to_end
from crtgen.base.errors import BuildError, ToolMissingError
from crtgen.base.formats.arrays import AnyArray, read_arrays
from crtgen.base.formats.tables import read_table
from crtgen.base.temporary import TemporaryFolder
from crtgen.compiler.byoc.ethos_u.regions import RegionPiece, translated
from crtgen.npu.config import Config
from crtgen.npu.errors import StreamError

__all__ = [
    "DEDICATED",
    "SHARED",
    "SRAM_ONLY",
    "CompiledStream",
    "VelaMemory",
    "compile_network",
    "left_to_the_core",
    "run_vela",
    "vela_version",
]

SHARED, SRAM_ONLY, DEDICATED = "Shared_Sram", "Sram_Only", "Dedicated_Sram"
"""Vela's names of where constants and scratch are: constants in flash, scratch in the SRAM; both in the
SRAM; both in a slower memory, with a part of the SRAM to work in.
"""

_PACKAGE = "ethos-u-vela"
_KNOWN = "5.2."
_SCRATCH, _FAST = 1, 2  # the same memory, except with DEDICATED
_ARCH = 0xFFFF0000  # of the register ID, the revision of the architecture
_TIME_LIMIT = 900.0
_HINT = "pip install 'crtgen[npu]'"
_ARRAYS = (
    *("cmd_data", "weight_data", "weight_region", "scratch_size", "scratch_region"),
    *("scratch_fast_size", "scratch_fast_region", "input_region", "input_offset"),
    *("input_shape", "input_elem_size", "output_shape", "output_elem_size"),
    *("output_region", "output_offset"),
)
_HEADER = struct.Struct("<4s15I")
_REFUSED = re.compile(r"operator: (\w+), ofm: '([^']*)'\n((?: *-? ?[^\n]+\n)*?)(?=\n|Warning|\Z)")
_ON_CORE = re.compile(r"^ +CPU: (\w+) = (.+?) \(outputs", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class VelaMemory:
    """One of Vela's memory modes. With ``DEDICATED``, a stream uses at most ``most`` bytes of the SRAM; 0
    leaves the limit to Vela.
    """

    mode: str = SHARED
    most: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CompiledStream:
    """Vela's output: constants are in region 0, ``scratch`` bytes in region 1, ``fast`` bytes of the SRAM in
    region 2; ``inputs`` and ``outputs`` are the regions of each.

    ``config`` and ``arch`` are the registers CONFIG and ID of the target NPU. ``cycles`` is Vela's estimate
    of one run.
    """

    stream: bytes
    constants: bytes
    scratch: int
    fast: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    config: int
    arch: int
    cycles: int


def vela_version() -> str:
    """Return Vela's version. Raises ``ToolMissingError`` if it is not installed, or if the version is not
    supported.
    """
    try:
        found = version(_PACKAGE)
    except PackageNotFoundError:
        found = ""
    if not found or find_spec("ethosu") is None:
        raise ToolMissingError("Vela, Arm's compiler for Ethos-U, is not installed", hint=_HINT)
    if not found.startswith(_KNOWN):
        raise ToolMissingError(f"Vela {found} is installed; crtgen knows {_KNOWN}x", hint=_HINT)
    return found


@lru_cache(maxsize=64)
def left_to_the_core(network: bytes, config: Config) -> Mapping[str, str]:
    """Return the reason for each operator that Vela does not accept, by the name of its output."""
    with TemporaryFolder() as folder:
        log = _run(folder, network, config, "--show-cpu-operations")
    reasons = {name: _first(text) for _, name, text in _REFUSED.findall(log)}
    return MappingProxyType(
        {name: reasons.get(name, f"Vela leaves {kind} to the core") for kind, name in _ON_CORE.findall(log)}
    )


def _first(text: str) -> str:
    # The first line of Vela's reason without its title.
    lines = [line.strip(" -") for line in text.splitlines() if line.strip(" -")]
    reason = lines[0].removeprefix("Reason: ") if lines else "it names no reason"
    return f"Vela: {reason}"


def compile_network(
    network: bytes,
    config: Config,
    *,
    small: bool = False,
    memory: VelaMemory = VelaMemory(),
    first: int = _SCRATCH + 1,
) -> CompiledStream:
    """Return the stream for a network, optimised for speed, or with ``small`` for little scratch.

    Inputs, then outputs, are in regions from ``first`` on. Constants in flash are copied to scratch before
    the NPU uses them, if that is faster; those in RAM are not.

    Raises ``BuildError`` if Vela fails, or leaves a part of the network to the core.
    """
    found = run_vela(network, config, "Size" if small else "Performance", memory)
    return _compiled(*found, first, memory.mode == DEDICATED)


@lru_cache(maxsize=64)
def run_vela(
    network: bytes, config: Config, aim: str, memory: VelaMemory
) -> tuple[Mapping[str, AnyArray], int, str]:
    with TemporaryFolder() as folder:
        options = ("--separate-io-regions", "--cop-format", "COP2", "--output-format", "raw")
        log = _run(folder, network, config, *options, "--optimise", aim, memory=memory)
        files = sorted((folder / "out").glob("*.npz"))
        if len(files) != 1:
            raise BuildError("Vela left a part of these layers to the core", where=config.name, log=log)
        arrays = read_arrays(files[0], "Vela's output", needed=_ARRAYS, only=_ARRAYS)
        return arrays, _cycles(folder / "out"), log


def _run(
    folder: Path, network: bytes, config: Config, *options: str, memory: VelaMemory = VelaMemory()
) -> str:
    vela_version()
    file = folder / "network.tflite"
    file.write_bytes(network)
    system = "Ethos_U65_Embedded" if config.product else "Ethos_U55_High_End_Embedded"
    system = "Ethos_U65_High_End" if memory.mode == DEDICATED else system  # the one with a RAM outside
    where = ("--config", "Arm/vela.ini", "--system-config", system, "--memory-mode", memory.mode)
    most = ("--arena-cache-size", str(memory.most)) if memory.mode == DEDICATED and memory.most else ()
    command = [sys.executable, "-m", "ethosu.vela", str(file), "--accelerator-config", config.name]
    code, log = run_to_end(
        [*command, *where, *most, *options, "--output-dir", str(folder / "out")],
        time_limit=_TIME_LIMIT,
        directory=folder,
    )
    if code != 0:
        what = f"did not end within {_TIME_LIMIT:g} s" if code is None else f"failed with code {code}"
        raise BuildError(f"Vela {what}", where=config.name, log=log)
    return log


def _compiled(
    arrays: Mapping[str, AnyArray], cycles: int, log: str, first: int, is_dedicated: bool
) -> CompiledStream:
    data = arrays["cmd_data"].tobytes()
    if len(data) < _HEADER.size:
        raise BuildError("Vela's stream has no header", log=log)
    magic, *words = _HEADER.unpack(data[: _HEADER.size])
    if magic != b"COP2" or words[6] != int.from_bytes(b"VEUM", "little"):
        raise BuildError("the header of Vela's stream is unknown to crtgen", log=log)
    inputs = _pieces(arrays, "input", first)
    outputs = _pieces(arrays, "output", first + len(inputs))
    scratch, fast = int(arrays["scratch_size"]), int(arrays["scratch_fast_size"])
    if not is_dedicated:
        scratch, fast = scratch + fast, 0
    merged = [RegionPiece(_FAST, 0, scratch, _SCRATCH)] if scratch and not is_dedicated else []
    try:
        stream = translated(data[_HEADER.size :], [*inputs, *outputs, *merged])
    except (ValueError, StreamError) as error:
        raise BuildError(f"Vela's stream is unknown to crtgen: {error}", log=log) from error
    return CompiledStream(
        stream=stream,
        constants=arrays["weight_data"].tobytes(),
        scratch=scratch,
        fast=fast,
        inputs=tuple(piece.becomes for piece in inputs),
        outputs=tuple(piece.becomes for piece in outputs),
        config=words[9],
        arch=words[10] & _ARCH,
        cycles=cycles,
    )


def _pieces(arrays: Mapping[str, AnyArray], what: str, first: int) -> list[RegionPiece]:
    # Where Vela put the inputs or outputs, and their regions from ``first`` on.
    regions, offsets, widths = (
        arrays[f"{what}_{part}"].reshape(-1).tolist() for part in ("region", "offset", "elem_size")
    )
    sizes = [
        prod(shape) * width for shape, width in zip(arrays[f"{what}_shape"].tolist(), widths, strict=True)
    ]
    places = enumerate(zip(regions, offsets, sizes, strict=True), first)
    return [
        RegionPiece(int(region), int(start), int(size), number) for number, (region, start, size) in places
    ]


def _cycles(folder: Path) -> int:
    # Vela's estimate, from the summary that it writes beside the network.
    for file in folder.glob("*_summary_*.csv"):
        titles, figures = read_table(file, "Vela's summary")[:2]
        return round(float(dict(zip(titles, figures, strict=True))["cycles_total"]))
    return 0
