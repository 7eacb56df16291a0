"""The image of a model for a slot, and its header: ``crt/slot.h``, SPEC.md section 6."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod

from crtgen.base.errors import CorruptModelError
from crtgen.boards import Core
from crtgen.compiler.codegen.module import Interface
from crtgen.network.ir import DType, Quant, shape_text

__all__ = [
    "HEADER_BYTES",
    "SIGNATURE_BYTES",
    "SlotImage",
    "SlotTensor",
    "core_bits",
    "header_bytes",
    "interface_digest",
]

_HEADER = struct.Struct("<IHH10I16s32s")
_MAGIC, _FORMAT, _ABI = 0x53545243, 1, 1
_COVERED = 16  # what the CRC covers begins here
_ALIGN = 16
HEADER_BYTES = _HEADER.size
SIGNATURE_BYTES = 64
_TENSOR = struct.Struct("<BBfiB")
_DTYPES = {dtype: number for number, dtype in enumerate(sorted(DType, key=lambda dtype: dtype.value))}
_MOST_NAME, _MOST_TENSOR_NAME, _MOST_AXES = 31, 255, 8


@dataclass(frozen=True, slots=True)
class SlotTensor:
    """An input or output: name, shape, type, scale (0 if it is not quantised) and zero point."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scale: float
    zero_point: int

    @classmethod
    def of(cls, interface: Interface) -> "SlotTensor":
        quant = interface.quant
        scale, zero = (quant.scales[0], quant.zero_points[0]) if isinstance(quant, Quant) else (0.0, 0)
        single = struct.unpack("<f", struct.pack("<f", scale))[0]
        return cls(interface.name, interface.shape, interface.dtype, single, int(zero))

    def __str__(self) -> str:
        quant = f", scale {self.scale:.6g} zero {self.zero_point}" if self.scale else ""
        return f"{self.name}: {shape_text(self.shape)} {self.dtype.value}{quant}"

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def packed(self) -> bytes:
        name = self.name.encode()[:_MOST_TENSOR_NAME]
        head = _TENSOR.pack(_DTYPES[self.dtype], len(self.shape), self.scale, self.zero_point, len(name))
        return head + struct.pack(f"<{len(self.shape)}I", *self.shape) + name


_NPU = 256  # CRT_CORE_NPU


def core_bits(core: Core, *, npu: bool = False) -> int:
    """Return the features that code for a core requires: ``CRT_CORE_...`` of ``crt/slot.h``.

    ``npu`` adds the features of an NPU.
    """
    has = (
        not core.narrow,
        core.dsp,
        core.fpu != "none",
        core.fpu == "dp",
        core.mve,
        core.arch.startswith("armv8"),
        core.mve,
    )
    return sum(bit << number for number, bit in enumerate(has)) | _NPU * npu


def header_bytes(inputs: Sequence[SlotTensor], outputs: Sequence[SlotTensor]) -> int:
    """Return the number of bytes before the code: the header and the description that follows it."""
    return -(-(HEADER_BYTES + len(_description(inputs, outputs))) // _ALIGN) * _ALIGN


def _description(inputs: Sequence[SlotTensor], outputs: Sequence[SlotTensor]) -> bytes:
    counts = struct.pack("<BB", len(inputs), len(outputs))
    return counts + b"".join(tensor.packed for tensor in (*inputs, *outputs))


def interface_digest(inputs: Sequence[SlotTensor], outputs: Sequence[SlotTensor], stateful: bool) -> bytes:
    """Return the digest of an interface, 16 bytes: models with equal digests can replace each other."""
    roles = (*(("input", tensor) for tensor in inputs), *(("output", tensor) for tensor in outputs))
    rows = [f"{role} {t.name} {t.shape} {t.dtype.value} {t.scale.hex()} {t.zero_point}" for role, t in roles]
    return sha256("\n".join([*rows, f"stateful {stateful}"]).encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class SlotImage:
    """An image for the slot at address ``origin``, which uses ``work_size`` bytes of RAM at ``work``.

    ``core`` is the required core, as ``core_bits`` encodes it; ``entry`` is the address of the image's table
    of functions, and ``stack`` the bytes of stack that a run needs. ``stateful`` models keep states between
    runs. ``code`` follows header and description. ``signature`` is empty, or 64 bytes.
    """

    name: str
    version: int
    origin: int
    work: int
    work_size: int
    stack: int
    core: int
    entry: int
    stateful: bool
    inputs: tuple[SlotTensor, ...]
    outputs: tuple[SlotTensor, ...]
    code: bytes
    signature: bytes = b""

    @property
    def interface(self) -> bytes:
        """Digest of the model's interface, 16 bytes, which firmware compares with the expected one."""
        return interface_digest(self.inputs, self.outputs, self.stateful)

    @property
    def image(self) -> bytes:
        """Bytes that are written to the slot, without the signature."""
        start = header_bytes(self.inputs, self.outputs)
        description = _description(self.inputs, self.outputs)
        header = _HEADER.pack(
            *(_MAGIC, _FORMAT, _ABI, start + len(self.code), 0, self.origin, self.work, self.work_size),
            *(self.stack, self.core, self.version, self.entry, len(description) | self.stateful << 31),
            *(self.interface, self.name.encode()[:_MOST_NAME]),
        )
        whole = (header + description).ljust(start, b"\0") + self.code
        crc = zlib.crc32(whole[_COVERED:])
        return whole[: _COVERED - 4] + struct.pack("<I", crc) + whole[_COVERED:]

    @property
    def data(self) -> bytes:
        return self.image + self.signature

    @classmethod
    def read(cls, data: bytes, where: str) -> "SlotImage":
        """Parse an image. Raises ``CorruptModelError`` if it is incomplete or of another format."""
        if len(data) < HEADER_BYTES or data[:4] != struct.pack("<I", _MAGIC):
            raise CorruptModelError(
                "the file is not a slot image", where=where, hint="crtgen slot makes them"
            )
        fields = _HEADER.unpack_from(data)
        _, form, abi, size, crc, *numbers, entry, about, digest, name = fields
        origin, work, work_size, stack, core, version = numbers
        if (form, abi) != (_FORMAT, _ABI):
            raise CorruptModelError(
                "the image was made by another release of crtgen", where=where, hint="make it again"
            )
        if not HEADER_BYTES < size <= len(data) or len(data) - size not in (0, SIGNATURE_BYTES):
            raise CorruptModelError(
                f"the header says {size:,} bytes, but the file has {len(data):,}", where=where
            )
        if zlib.crc32(data[_COVERED:size]) != crc:
            raise CorruptModelError("the image is damaged: its CRC does not match", where=where)
        try:
            inputs, outputs = _read_description(data[HEADER_BYTES : HEADER_BYTES + (about & 0x7FFFFFFF)])
        except (struct.error, ValueError, IndexError, KeyError) as error:
            raise CorruptModelError(
                "the inputs and outputs of the image cannot be read", where=where
            ) from error
        made = cls(
            name=name.rstrip(b"\0").decode("utf-8", "replace"),
            version=version,
            origin=origin,
            work=work,
            work_size=work_size,
            stack=stack,
            core=core,
            entry=entry,
            stateful=bool(about >> 31),
            inputs=inputs,
            outputs=outputs,
            code=data[header_bytes(inputs, outputs) : size],
            signature=data[size:],
        )
        if made.interface != digest or made.data != data:
            raise CorruptModelError("the header of the image contradicts itself", where=where)
        return made


def _read_description(data: bytes) -> tuple[tuple[SlotTensor, ...], tuple[SlotTensor, ...]]:
    by_number = {number: dtype for dtype, number in _DTYPES.items()}
    found, at = [], 2
    for _ in range(data[0] + data[1]):
        dtype, axes, scale, zero, length = _TENSOR.unpack_from(data, at)
        at += _TENSOR.size
        if axes > _MOST_AXES:
            raise ValueError("too many axes")
        shape = struct.unpack_from(f"<{axes}I", data, at)
        at += 4 * axes
        found.append(SlotTensor(data[at : at + length].decode(), shape, by_number[dtype], scale, zero))
        at += length
    if at != len(data):
        raise ValueError("bytes are left")
    return tuple(found[: data[0]]), tuple(found[data[0] :])
