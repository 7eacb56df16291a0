"""The commands of a stream: code, name, and the parameter bits that may be set.

Commands below 0x100 start something; the others set a register, which keeps its value until it is set again.
A command with a payload has a second word of 32 bits. Parameter bits that no field uses must be 0: a stream
in which one is set is damaged, or for another NPU.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["LONG", "SHORT", "Register"]

_ANY = 0xFFFF
_REGION = 0x0007
_ADDRESS = 0x00FF  # bits 32 to 39 of an address of 40 bits


@dataclass(frozen=True, slots=True)
class Register:
    """A command: ``allowed`` are the parameter bits that have a meaning."""

    code: int
    name: str
    allowed: int = _ANY


def _feature_map(name: str, base: int) -> Iterator[Register]:
    # The short commands that a map of features has in all three places.
    yield Register(base + 0x0A, f"{name}_WIDTH0_M1")
    yield Register(base + 0x0B, f"{name}_HEIGHT0_M1")
    yield Register(base + 0x0C, f"{name}_HEIGHT1_M1")
    yield Register(base + 0x0F, f"{name}_REGION", _REGION)


def _addresses(name: str, base: int) -> Iterator[Register]:
    for tile in range(4):
        yield Register(base + tile, f"{name}_BASE{tile}", _ADDRESS)
    for at, axis in enumerate("XYC", 4):
        yield Register(base + at, f"{name}_STRIDE_{axis}", _ADDRESS)


def _table(registers: Iterator[Register]) -> Mapping[int, Register]:
    return MappingProxyType({register.code: register for register in registers})


def _short() -> Iterator[Register]:
    yield Register(0x000, "STOP")
    yield Register(0x001, "IRQ")
    yield Register(0x002, "CONV", 0)
    yield Register(0x003, "DEPTHWISE", 0)
    yield Register(0x005, "POOL", 0x0003)
    yield Register(0x006, "ELEMENTWISE", 0x003F)
    yield Register(0x010, "DMA_START", 0)
    yield Register(0x011, "DMA_WAIT")
    yield Register(0x012, "KERNEL_WAIT")
    yield Register(0x013, "PMU_MASK")
    for at, side in enumerate(("TOP", "LEFT", "RIGHT", "BOTTOM")):
        yield Register(0x100 + at, f"IFM_PAD_{side}", 0x00FF)
    yield Register(0x104, "IFM_DEPTH_M1")
    yield Register(0x105, "IFM_PRECISION", 0xC3CD)
    yield Register(0x107, "IFM_UPSCALE", 0x0003)
    yield Register(0x109, "IFM_ZERO_POINT")
    yield from _feature_map("IFM", 0x100)
    yield Register(0x10D, "IFM_IB_END")
    yield Register(0x111, "OFM_WIDTH_M1")
    yield Register(0x112, "OFM_HEIGHT_M1")
    yield Register(0x113, "OFM_DEPTH_M1")
    yield Register(0x114, "OFM_PRECISION", 0xC1C7)
    yield Register(0x115, "OFM_BLK_WIDTH_M1")
    yield Register(0x116, "OFM_BLK_HEIGHT_M1")
    yield Register(0x117, "OFM_BLK_DEPTH_M1")
    yield Register(0x118, "OFM_ZERO_POINT")
    yield from _feature_map("OFM", 0x110)
    yield Register(0x120, "KERNEL_WIDTH_M1")
    yield Register(0x121, "KERNEL_HEIGHT_M1")
    yield Register(0x122, "KERNEL_STRIDE", 0x0FFF)
    yield Register(0x123, "PARALLEL_MODE", 0x0001)
    yield Register(0x124, "ACC_FORMAT", 0x0003)
    yield Register(0x125, "ACTIVATION", 0xF01F)
    yield Register(0x126, "ACTIVATION_MIN")
    yield Register(0x127, "ACTIVATION_MAX")
    yield Register(0x128, "WEIGHT_REGION", _REGION)
    yield Register(0x129, "SCALE_REGION", _REGION)
    yield Register(0x12D, "AB_START")
    yield Register(0x12F, "BLOCKDEP", 0x0003)
    yield Register(0x130, "DMA0_SRC_REGION", 0x0707)
    yield Register(0x131, "DMA0_DST_REGION", 0x0707)
    yield Register(0x132, "DMA0_SIZE0")
    yield Register(0x133, "DMA0_SIZE1")
    yield Register(0x180, "IFM2_BROADCAST", 0x00C7)
    yield Register(0x181, "IFM2_SCALAR")
    yield Register(0x185, "IFM2_PRECISION", 0x00CD)
    yield Register(0x189, "IFM2_ZERO_POINT")
    yield from _feature_map("IFM2", 0x180)
    yield Register(0x18D, "IFM2_IB_START")


def _long() -> Iterator[Register]:
    yield from _addresses("IFM", 0x000)
    yield from _addresses("OFM", 0x010)
    yield Register(0x020, "WEIGHT_BASE", _ADDRESS)
    yield Register(0x021, "WEIGHT_LENGTH", 0)
    yield Register(0x022, "SCALE_BASE", _ADDRESS)
    yield Register(0x023, "SCALE_LENGTH", 0)
    yield Register(0x024, "OFM_SCALE", 0x003F)
    yield Register(0x025, "OPA_SCALE", 0x003F)
    yield Register(0x026, "OPB_SCALE", 0)
    yield Register(0x030, "DMA0_SRC", _ADDRESS)
    yield Register(0x031, "DMA0_DST", _ADDRESS)
    yield Register(0x032, "DMA0_LEN", _ADDRESS)
    yield Register(0x033, "DMA0_SKIP0", _ADDRESS)
    yield Register(0x034, "DMA0_SKIP1", _ADDRESS)
    yield from _addresses("IFM2", 0x080)
    yield Register(0x090, "WEIGHT1_BASE", _ADDRESS)
    yield Register(0x091, "WEIGHT1_LENGTH", 0)
    yield Register(0x092, "SCALE1_BASE", _ADDRESS)
    yield Register(0x093, "SCALE1_LENGTH", 0)


SHORT: Mapping[int, Register] = _table(_short())
"""Commands of one word, by code."""

LONG: Mapping[int, Register] = _table(_long())
"""Commands with a payload, by code."""
