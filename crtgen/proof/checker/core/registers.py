"""Core registers that decide what the image may do: FPU enable, stack limits, memory protection.

If the core does not allow a load, a store or an instruction, it takes a fault and computes nothing. So the
way from reset has to leave these registers as the network needs them. They are memory words from 0xE000E000
on. Registers that decide whether something is allowed are modelled. Some others may be written freely, since
they only affect when something happens, or how fast. A write to any other register ends the way from reset,
since its effect is unknown.

The MPU holds regions, which are address ranges with access rights. ``Protection`` returns the rights of the
last region that contains an address (PMSAv7, Armv7-M Architecture Reference Manual, B3.5), or of the only
such region (PMSAv8, Armv8-M, B9, where two are a fault). With the MPU off, the default memory map applies.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = [
    "ACTLR",
    "CCR",
    "CPACR",
    "FOLLOWED",
    "FPDSCR",
    "FREE",
    "MPU_CONTROL",
    "MPU_MEMORY",
    "MPU_NUMBER",
    "MPU_REGION",
    "MSPLIM",
    "NAMES",
    "VTOR",
    "Protection",
    "has_unit",
]

ACTLR, CPACR, CCR, VTOR = 0xE000E008, 0xE000ED88, 0xE000ED14, 0xE000ED08
FPDSCR = 0xE000EF3C
"""Value of FPSCR at the start: the rounding mode."""
MPU_CONTROL, MPU_NUMBER, MPU_REGION, MPU_MEMORY = 0xE000ED94, 0xE000ED98, (0xE000ED9C, 0xE000EDA0), 0xE000EDC0
MSPLIM = 1 << 41
"""Stack limit, a register without an address; this number stands for it."""

NAMES = {
    ACTLR: "ACTLR", 0xE000ED0C: "AIRCR", CPACR: "CPACR", CCR: "CCR", VTOR: "VTOR", 0xE000EF34: "FPCCR",
    0xE000EF38: "FPCAR", FPDSCR: "FPDSCR", MPU_CONTROL: "MPU_CTRL", MPU_NUMBER: "MPU_RNR",
    MPU_REGION[0]: "MPU_RBAR", MPU_REGION[1]: "MPU_RASR or MPU_RLAR", MPU_MEMORY: "MPU_MAIR0",
    MPU_MEMORY + 4: "MPU_MAIR1", MSPLIM: "MSPLIM",
}  # fmt: skip

FOLLOWED = {CPACR: 0, CCR: 0, MPU_CONTROL: 0, MPU_NUMBER: 0, MPU_MEMORY: 0, MPU_MEMORY + 4: 0, MSPLIM: 0}
"""Values of the registers after a reset. The chip sets VTOR."""

FREE = (
    (0xE000E010, 0xE000E020),  # SysTick
    (0xE000E100, 0xE000E500),  # NVIC: which interrupts come, and in which order
    (0xE000ED10, 0xE000ED14),  # SCR: sleep
    (0xE000ED18, 0xE000ED30),  # priorities, which faults have a handler, what faults there were
    (0xE000ED84, 0xE000ED88),  # CSSELR: the cache of which CCSIDR tells the size
    (0xE000EF50, 0xE000EF7C),  # what caches hold is written back and dropped
    (0xE001E000, 0xE001E004),  # MSCR: whether caches work
)

_UNIT = 0xF << 20


def has_unit(cpacr: object) -> bool:
    return isinstance(cpacr, int) and cpacr & _UNIT == _UNIT


class _Allowed(NamedTuple):
    """Access rights of memory. ``is_normal``: no side effects, so accesses may be unaligned."""

    read: bool
    write: bool
    run: bool
    is_normal: bool


_NOTHING = _Allowed(False, False, False, False)
_STEP = 0x20000000
_CODE_OR_RAM = _Allowed(True, True, True, True)
_DEVICE = _Allowed(True, True, False, False)
# The map of memory, by steps of 512 MB.
_DEFAULT = (_CODE_OR_RAM, _CODE_OR_RAM, _DEVICE, _CODE_OR_RAM, _CODE_OR_RAM, _DEVICE, _DEVICE, _DEVICE)


class Protection:
    """Access rights of the MPU, with ``regions`` by number: RBAR, and RASR or RLAR."""

    def __init__(
        self, is_v8: bool, control: int, regions: Mapping[int, tuple[int, int]], memory: tuple[int, int]
    ) -> None:
        self._is_v8, self._control, self._memory = is_v8, control, memory
        kind = _of_v8 if is_v8 else _of_v7
        self._regions = [r for n in sorted(regions) if (r := kind(*regions[n])) is not None]

    def first_refused(self, first: int, end: int, right: str) -> int | None:
        """Return the first address of a range that lacks a right, which is a field of ``_Allowed``."""
        edges = [e for r in self._regions for e in r.edges()] + [k * _STEP for k in range(8)]
        for at in sorted({first, *(e for e in edges if first < e < end)}):
            if not getattr(self._at(at), right):
                return at
        return None

    def _at(self, at: int) -> _Allowed:
        found = [r for r in self._regions if r.has(at)] if self._control & 1 else []
        if self._control & 1 and not found and not self._control & 4:
            return _NOTHING
        if not found:
            return _DEFAULT[at // _STEP]
        if self._is_v8:
            return found[0].of_v8(self._memory) if len(found) == 1 else _NOTHING
        return found[-1].of_v7()


class _ProtectedRegion(NamedTuple):
    first: int
    end: int
    base: int
    attributes: int
    parts: int
    """Subregions, a bit for each of eight, which disable."""

    def edges(self) -> Iterable[int]:
        return (
            range(self.first, self.end + 1, max((self.end - self.first) // 8, 1)) if self.parts else self[:2]
        )

    def has(self, at: int) -> bool:
        if not self.first <= at < self.end:
            return False
        return not self.parts >> (at - self.first) * 8 // (self.end - self.first) & 1

    def of_v7(self) -> _Allowed:
        # AP, XN, and the type by TEX, C and B.
        a = self.attributes
        access = a >> 24 & 7
        type_, cached, buffered = a >> 19 & 7, a >> 17 & 1, a >> 16 & 1
        device = not cached and (type_ == 0 or (type_ == 2 and not buffered))
        read, write = access not in (0, 4), access in (1, 2, 3)
        return _Allowed(read, write, read and not a >> 28 & 1 and not device, not device)

    def of_v8(self, memory: tuple[int, int]) -> _Allowed:
        # AP and XN, and the type by the byte of MAIR.
        which = self.attributes >> 1 & 7
        device = memory[which >> 2] >> 8 * (which & 3) & 0xF0 == 0
        runs = not self.base & 1 and not self.attributes & 16 and not device
        return _Allowed(True, not self.base & 4, runs, not device)


def _of_v7(base: int, attributes: int) -> _ProtectedRegion | None:
    size = (attributes >> 1 & 31) + 1
    if not attributes & 1 or size < 5:
        return None
    first = base & ~((1 << size) - 1) & 0xFFFFFFFF
    parts = attributes >> 8 & 255 if size >= 8 else 0
    return _ProtectedRegion(first, first + (1 << size), base, attributes, parts)


def _of_v8(base: int, attributes: int) -> _ProtectedRegion | None:
    if not attributes & 1:
        return None
    return _ProtectedRegion(base & ~31, (attributes & ~31 & 0xFFFFFFFF) + 32, base, attributes, 0)
