"""The memory protection regions of a bare-metal image: the access that each of its memories permits.

Everything outside of the regions is a fault. Formats: ARM DDI 0403 (PMSAv7) and ARM DDI 0553 (PMSAv8).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from crtgen.boards import MAILBOX_SIZE, NPU_WINDOW, Board, Core, Slots

__all__ = ["Region", "protection", "regions"]

_DEVICES = (0x4000_0000, 0x2000_0000, "devices")

_ENABLE = 1
_V7_READ_ONLY, _V7_READ_WRITE = 6 << 24, 3 << 24
_V7_NO_CODE = 1 << 28
_V7_NORMAL_FLASH, _V7_NORMAL_RAM, _V7_DEVICE = 2 << 16, 0b001_011 << 16, 5 << 16
"""TEX, S, C, B. RAM is written back and not shared (S = 0): a Cortex-M7 caches no memory that is."""
_V8_READ_ONLY, _V8_READ_WRITE = 3 << 1, 1 << 1
_V8_NO_CODE = 1
_V8_DEVICE = 1 << 1
_V8_ALIGNMENT = 32
_V7_SMALLEST = 32


@dataclass(frozen=True, slots=True)
class Region:
    """A region: the values of RBAR and of RASR (PMSAv7) or RLAR (PMSAv8), as C, and a description."""

    base: str
    attributes: str
    text: str


def protection(core: Core) -> str:
    """Return the kind of a core's memory protection unit: ``v7``, ``v8``, or empty if it has none."""
    if core.arch.startswith("armv8"):
        return "v8"
    return "v7" if core.arch.startswith("armv7") else ""


def regions(
    board: Board,
    code_in_ram: Collection[str] = (),
    mailbox: int | None = None,
    slots: Slots | None = None,
    npu: bool = False,
) -> tuple[Region, ...]:
    """Return the regions of a board's memories, of its devices and of a mailbox at an address.

    The memories ``code_in_ram`` contain code, too. The window of an ``npu`` follows the mailbox. Slots in RAM
    contain code, and are written with the MPU off.
    """
    make = {"v7": _v7, "v8": _v8}.get(protection(board.core))
    if make is None:
        return ()
    found: list[Region] = []
    for memory in board.memories:
        is_ram = memory.kind == "ram"
        has_code = not is_ram or memory.name in code_in_ram
        inside = [slot for slot in slots.places if slot.memory == memory.name] if slots and is_ram else []
        start = memory.origin
        for slot in sorted(inside, key=lambda slot: slot.origin):
            found += make(start, slot.origin - start, memory.name, is_ram, has_code, False)
            found += make(slot.origin, slot.size, f"slot {slot.name}", False, True, False)
            start = slot.end
        if start < memory.end:
            found += make(start, memory.end - start, memory.name, is_ram, has_code, False)
    found += make(*_DEVICES, True, False, True)
    if mailbox is not None:
        size = MAILBOX_SIZE + (NPU_WINDOW if npu else 0)
        found += make(mailbox, size, "mailbox", True, False, False)
    return tuple(found)


def _v8(base: int, size: int, name: str, writes: bool, code: bool, device: bool) -> Iterator[Region]:
    access = (_V8_READ_WRITE if writes else _V8_READ_ONLY) | (0 if code else _V8_NO_CODE)
    last = (base + size - 1) // _V8_ALIGNMENT * _V8_ALIGNMENT
    yield _region(base | access, last | (_V8_DEVICE if device else 0) | _ENABLE, name, writes, code)


def _v7(base: int, size: int, name: str, writes: bool, code: bool, device: bool) -> Iterator[Region]:
    # A region is a power of two in size and starts at a multiple of it: a memory may take several.
    access = (_V7_READ_WRITE if writes else _V7_READ_ONLY) | (0 if code else _V7_NO_CODE)
    access |= _V7_DEVICE if device else _V7_NORMAL_RAM if writes else _V7_NORMAL_FLASH
    while size >= _V7_SMALLEST:
        largest = 1 << size.bit_length() - 1
        part = min(largest, base & -base) if base else largest
        yield _region(base, access | (part.bit_length() - 2) << 1 | _ENABLE, name, writes, code)
        base, size = base + part, size - part


def _region(base: int, attributes: int, name: str, writes: bool, code: bool) -> Region:
    text = f"{name}: {'read and write' if writes else 'read'}{', code' if code else ''}"
    return Region(f"{base:#010x}u", f"{attributes:#010x}u", text)
