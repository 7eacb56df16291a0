"""The NPU's registers and memory as operators use them: feature maps, weights and scales."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from crtgen.npu.config import Config
from crtgen.npu.errors import RegionError, StreamError
from crtgen.npu.rounding import Int64

__all__ = ["FeatureMap", "NpuMemory", "NpuState", "Type", "check_elements", "signed16"]

Bytes = npt.NDArray[np.uint8]

TABLES = 2048
"""Bytes at the end of the memory inside of the NPU that hold look-up tables."""

_BRICK = 16

_MOST_ELEMENTS = 1 << 24  # of a map or of weights: the memory of no such chip holds more
_MOST_WORK = 1 << 34  # multiplications of a stream: half a minute of the NPU, some of this computer


def check_elements(what: str, shape: Sequence[int]) -> None:
    """Raise ``ValueError`` for more elements than the model is willing to allocate."""
    if prod(shape) > _MOST_ELEMENTS:
        text = "x".join(map(str, shape))
        raise ValueError(f"{what} of {text} has more than {_MOST_ELEMENTS:,} elements")


def signed16(value: int) -> int:
    return value - 0x10000 if value & 0x8000 else value


@dataclass(frozen=True, slots=True)
class Type:
    signed: bool
    size: int

    @property
    def limits(self) -> tuple[int, int]:
        bits = 8 * self.size
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if self.signed else (0, (1 << bits) - 1)

    def number(self, bits: int) -> int:
        return signed16(bits) if self.signed else bits

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}int{8 * self.size}"


class NpuMemory:
    """The regions that the base pointers name, each as a view of the caller's memory."""

    def __init__(self, regions: Mapping[int, Bytes], constant: frozenset[int] = frozenset()) -> None:
        self._regions = regions
        self._constant = constant

    def find(self, region: int, what: str, *, written: bool = False) -> Bytes:
        """Return a region. Raises ``RegionError`` if it is missing, or is to be written but constant."""
        if region not in self._regions:
            raise RegionError(f"{what} is in region {region}, which has no memory")
        if written and region in self._constant:
            raise RegionError(f"{what} is in region {region}, which is constant")
        return self._regions[region]

    def piece(self, region: int, start: int, length: int, what: str, *, written: bool = False) -> Bytes:
        """Return ``length`` bytes from ``start`` on. Raises ``RegionError`` if the region is shorter."""
        memory = self.find(region, what, written=written)
        if start < 0 or start + length > memory.size:
            raise RegionError(
                f"{what}: {length:,} bytes at {start:#x} of region {region}, which has {memory.size:,} bytes"
            )
        return memory[start : start + length]


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """A feature map in memory: up to four tiles, which meet at one row and one column.

    In the brick format (``NHCWB16``), a row stores 16 channels of all columns, then the next 16 channels.
    """

    name: str
    region: int
    type: Type
    bricks: bool
    tiles: tuple[int, int, int, int]
    width0: int
    height0: int
    height1: int
    strides: tuple[int, int, int]

    def addresses(self, shape: tuple[int, int, int]) -> Int64:
        """Return the address of each element ``[y, x, c]``."""
        y, x, z = np.ogrid[: shape[0], : shape[1], : shape[2]]
        right = x >= self.width0
        low = y >= np.where(right, self.height1, self.height0)
        tile = np.array(self.tiles)[2 * low + right]
        row = y - np.where(low, np.where(right, self.height1, self.height0), 0)
        column = x - np.where(right, self.width0, 0)
        by_row, by_column, by_channel = self.strides
        size = self.type.size
        base: Int64 = tile + row * by_row
        if self.bricks:
            at: Int64 = base + z // _BRICK * by_channel + (column * _BRICK + z % _BRICK) * size
        else:
            at = base + column * by_column + z * size
        return at

    def load(self, memory: NpuMemory, shape: tuple[int, int, int]) -> Int64:
        """Return elements as integers. Raises ``RegionError`` if one is outside of its region."""
        region, at = self._checked(memory, shape, written=False)
        size = self.type.size
        value: Int64 = region[at].astype(np.int64)
        for byte in range(1, size):
            value = value | region[at + byte].astype(np.int64) << (8 * byte)
        if self.type.signed:
            bits = 64 - 8 * size
            value = value << bits >> bits
        return value

    def store(self, memory: NpuMemory, value: Int64) -> None:
        """Write elements ``[y, x, c]``. Raises ``RegionError`` if one is outside of its region."""
        height, width, depth = value.shape
        region, at = self._checked(memory, (height, width, depth), written=True)
        for byte in range(self.type.size):
            region[at + byte] = (value >> (8 * byte) & 0xFF).astype(np.uint8)

    def _checked(
        self, memory: NpuMemory, shape: tuple[int, int, int], *, written: bool
    ) -> tuple[Bytes, Int64]:
        check_elements(f"the {self.name}", shape)
        region = memory.find(self.region, f"the {self.name}", written=written)
        at = self.addresses(shape)
        least, most = int(at.min()), int(at.max()) + self.type.size
        if least < 0 or most > region.size:
            raise RegionError(
                f"the {self.name} of {'x'.join(map(str, shape))} has bytes {least:#x} to {most:#x} of region "
                f"{self.region}, which has {region.size:,} bytes"
            )
        return region, at


@dataclass(slots=True)
class NpuState:
    """Registers by name with their current values, the memory, and the NPU's internal tables."""

    config: Config
    memory: NpuMemory
    registers: dict[str, int] = field(default_factory=dict)
    shifts: dict[str, int] = field(default_factory=dict)
    tables: Bytes = field(default_factory=lambda: np.zeros(TABLES, np.uint8))
    work: int = 0

    def spend(self, work: int) -> None:
        """Count multiplications. Raises ``ValueError`` for a stream with more than any real network needs."""
        self.work += work
        if self.work > _MOST_WORK:
            raise ValueError(f"the stream has more than {_MOST_WORK:,} multiplications")

    def get(self, name: str, default: int | None = None) -> int:
        """Return a register. Raises ``ValueError`` if it was never set and has no default."""
        value = self.registers.get(name, default)
        if value is None:
            raise ValueError(f"{name} was never set")
        return value

    def scale(self, name: str) -> tuple[int, int]:
        """Return a scale and its shift; 1 and 0 if they were never set."""
        return self.registers.get(name, 1), self.shifts.get(name, 0)

    def type(self, name: str) -> Type:
        bits = self.get(f"{name}_PRECISION")
        code = bits >> 1 & 3 if name == "OFM" else bits >> 2 & 3
        if code == 3:
            raise ValueError(f"{name}_PRECISION {bits:#x} has no such element type")
        return Type(bool(bits & 1), 1 << code)

    def zero_point(self, name: str) -> int:
        """Return a zero point: 0 for a 32-bit input, otherwise that of its register."""
        type_ = self.type(name)
        if type_.size == 4 and name != "OFM":
            return 0
        return type_.number(self.get(f"{name}_ZERO_POINT", 0))

    @property
    def rounding(self) -> int:
        mode = self.get("OFM_PRECISION") >> 14
        if mode == 3:
            raise ValueError("OFM_PRECISION has the rounding mode 3, which is reserved")
        return mode

    @property
    def output_shape(self) -> tuple[int, int, int]:
        return self.get("OFM_HEIGHT_M1") + 1, self.get("OFM_WIDTH_M1") + 1, self.get("OFM_DEPTH_M1") + 1

    def map(self, name: str) -> FeatureMap:
        form = self.get(f"{name}_PRECISION") >> 6 & 3
        if form > 1:
            raise ValueError(f"{name}_PRECISION has the layout {form}, which is reserved")
        height0, height1, width0 = (
            self.get(f"{name}_{part}_M1") + 1 for part in ("HEIGHT0", "HEIGHT1", "WIDTH0")
        )
        first, second, third, fourth = (self.get(f"{name}_BASE{tile}", 0) for tile in range(4))
        y, x, c = (self.get(f"{name}_STRIDE_{axis}") for axis in "YXC")
        return FeatureMap(
            name=name,
            region=self.get(f"{name}_REGION"),
            type=self.type(name),
            bricks=form == 1,
            tiles=(first, second, third, fourth),
            width0=width0,
            height0=height0,
            height1=height1,
            strides=(y, x, c),
        )

    def load(self, name: str, shape: tuple[int, int, int]) -> Int64:
        """Return the elements of a feature map, minus its zero point."""
        return self.map(name).load(self.memory, shape) - self.zero_point(name)

    def refuse(self, offset: int, error: Exception) -> StreamError:
        return StreamError(str(error), offset=offset, is_bus=isinstance(error, RegionError))
