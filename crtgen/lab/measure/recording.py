"""The black box of a model: a device's record of its last runs, converted to cases and to SDS files.

The memory layout is that of ``crt/record.h``, SPEC.md section 9.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from crtgen.base import files
from crtgen.base.errors import ProtocolError
from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.network.ir import Array

__all__ = ["RecordedRun", "read_memory", "runs_of", "write_recording", "write_sds"]

_HEAD = struct.Struct("<4I")
_RUN = struct.Struct("<2I")
_MAGIC = 0x42545243


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRun:
    """A run: its number since power-on, its inputs, and its outputs, which are empty if it did not end.

    It ``follows`` the run before it in a recording. If it follows none, ``state`` are the model's states
    before it.
    """

    number: int
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    follows: bool
    state: bytes


def read_memory(data: bytes, info: ModelInfo, runs: int, state_bytes: int) -> tuple[RecordedRun, ...]:
    """Return the runs in a black box of ``runs`` runs, the oldest first.

    Raises ``ProtocolError`` for memory that does not fit this model.
    """
    sizes = [-(-i.nbytes // 4) * 4 for i in (*info.inputs, *info.outputs)]
    states, each = -(-state_bytes // 4) * 4, _RUN.size + sum(sizes)
    begin = _HEAD.size + 2 * states
    if runs < 2 or len(data) != begin + runs * each:
        hint = "read it with the project of the image that runs"
        raise ProtocolError(
            f"the black box has {len(data):,} bytes, which is not the size for {info.name}", hint=hint
        )
    magic, _, following, first = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        return ()
    found: list[RecordedRun] = []
    half = runs // 2
    for number in range(max(0, following - runs), following):
        at = begin + number % runs * each
        said, ended = _RUN.unpack_from(data, at)
        if said != number or ended > 1:
            continue  # numbers are left out where states were set anew
        arrays = _arrays(data, at + _RUN.size, (*info.inputs, *info.outputs), sizes)
        follows = bool(found) and found[-1].number == number - 1 and number != first
        place = _HEAD.size + number // half % 2 * states
        state = data[place : place + state_bytes] if state_bytes and number % half == 0 else b""
        if state_bytes and not follows and not state:
            continue  # what lived before it was overwritten
        count = len(info.inputs)
        outputs = arrays[count:] if ended else ()
        found.append(RecordedRun(number, arrays[:count], outputs, follows, b"" if follows else state))
    return tuple(found)


def runs_of(data: bytes, info: ModelInfo) -> int:
    """Return the number of runs for which a black box of this size has room."""
    sizes = [-(-i.nbytes // 4) * 4 for i in (*info.inputs, *info.outputs)]
    states = -(-info.state // 4) * 4
    return max(0, len(data) - _HEAD.size - 2 * states) // (_RUN.size + sum(sizes))


def _arrays(data: bytes, at: int, interfaces: Sequence[Interface], sizes: Sequence[int]) -> tuple[Array, ...]:
    found = []
    for interface, size in zip(interfaces, sizes, strict=True):
        raw = np.frombuffer(data[at : at + interface.nbytes], interface.dtype.numpy)
        found.append(raw.reshape(interface.shape))
        at += size
    return tuple(found)


def write_recording(path: Path, info: ModelInfo, runs: Sequence[RecordedRun]) -> None:
    """Write cases for ``crtgen verify`` and ``crtgen replay``; consecutive runs form one case.

    The inputs of a run that did not end are stored as ``unfinished_input0`` and so on.
    """
    arrays: dict[str, Array] = {}
    case, step = -1, 0
    for run in runs:
        if not run.outputs:
            arrays |= {f"unfinished_input{i}": a for i, a in enumerate(run.inputs)}
            continue
        case, step = (case, step + 1) if run.follows and info.state else (case + 1, 0)
        stem = f"case{case}_step{step}" if info.state else f"case{case}"
        if run.state:
            arrays[f"case{case}_state"] = np.frombuffer(run.state, np.uint8)
        arrays |= {f"{stem}_input{i}": a for i, a in enumerate(run.inputs)}
        arrays |= {f"{stem}_output{i}": a for i, a in enumerate(run.outputs)}
    buffer = BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    files.write(path, buffer.getvalue())


def write_sds(folder: Path, info: ModelInfo, runs: Sequence[RecordedRun]) -> list[Path]:
    """Write a file for each input and output in Arm's SDS format: records of u32 time, u32 size, and the
    bytes.

    The time is the number of the run. Each file has a YAML description beside it:
    https://github.com/ARM-software/SDS-Framework
    """
    written = []
    for role, interfaces in (("input", info.inputs), ("output", info.outputs)):
        for index, interface in enumerate(interfaces):
            name = f"{info.name}_{role}_{interface.c_name}"
            records = b""
            for run in runs:
                arrays = run.inputs if role == "input" else run.outputs
                if arrays:
                    raw = arrays[index].tobytes()
                    records += struct.pack("<II", run.number, len(raw)) + raw
            written += [folder / f"{name}.0.sds", folder / f"{name}.sds.yml"]
            files.write(written[-2], records)
            files.write(written[-1], _yaml(name, interface).encode())
    return written


def _yaml(name: str, interface: Interface) -> str:
    kind = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "float32": "float"}
    dtype = interface.dtype.value
    quant = interface.quant
    scale, zero = (quant.scale, quant.zero_point) if quant is not None else (1.0, 0)
    return (
        f"sds:\n  name: {name}\n  description: recorded by crtgen, a record for each run\n  frequency: 1\n"
        f"  content:\n  - value: {interface.c_name}\n    type: {kind.get(dtype, dtype)}\n"
        f"    scale: {scale:g}\n    offset: {-scale * zero:g}\n"
    )
