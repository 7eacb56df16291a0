"""Chips whose flash has error correction, and whose power is cut while they erase and write.

They run unmodified images. Beside what ``Machine`` has, a chip knows which units of its flash are torn: those
that were being written or erased when the power went. A load of a torn one gives what is there, and

- on a STM32L4 sets ECCD and raises an NMI, as RM0432 3.3.7 says of an error of two bits;
- on a STM32H7 sets DBECCERR and is a bus fault, unless FAULTMASK and BFHFNMIGN say that it is ignored.

Whatever the L4's manual forbids is a fault of the test: a double word that is written twice, a cache of the
flash that is on meanwhile (erratum 2.2.3), or that is on again without having been reset.
"""

import random
import struct
from pathlib import Path

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm
from unicorn.unicorn_py3.unicorn import Uc

from crtgen.boards import Board, find_board
from tests.silicon.machine import _END, _SLICE, Machine
from tests.silicon.uarts import UARTS
from tests.support import symbol_table

__all__ = ["BOARD", "PowerCut", "TornFlash", "TornH7", "Updated"]

BOARD = "nucleo_l4r5zi"
_ACR, _KEYR, _SR, _CR, _ECCR = 0x4002_2000, 0x4002_2008, 0x4002_2010, 0x4002_2014, 0x4002_2018
_CACHES, _CACHE_RESETS = 3 << 9, 3 << 11
_PG, _PER, _STRT, _LOCK = 1, 2, 1 << 16, 1 << 31
_ECCD = 1 << 31
_PAGE, _UNIT = 0x1000, 8
_SCB_CCR, _BFHFNMIGN = 0xE000_ED14, 1 << 8
_H7_SR, _H7_BANK_2, _DBECCERR, _H7_START = 0x5200_2010, 0x0810_0000, 1 << 26, 1 << 7
_CLEARED = {_SR, 0x4002_3C0C}
"""Status registers of flashes: what is 1 in a write is cleared. The other is that of the F4."""

_MOST = 1 << 31
"""Instructions of a start; each NMI counts as 40,000, and a page may have a thousand of them."""

_SLOTS_BYTES = 64
_ACTIVE, _TRIAL = 48, 31
"""Places in ``struct crt_slots`` of the device."""


class PowerCut(Exception):
    """The power went."""


class Updated(Machine):
    """A board with slots, which is asleep: its functions can be called."""

    unit = 8

    def __init__(self, board: Board, image: Path, seed: int = 0) -> None:
        self.torn: set[int] = set()
        self.random = random.Random(seed)
        super().__init__(board, image, None)
        slots = board.slots
        assert slots is not None
        self.first = min(place.origin for place in slots.places)
        self.log, self.end = slots.log, slots.log + slots.log_size
        self.uc.mem_write(self.first, b"\xff" * (self.end - self.first))
        with image.open("rb") as file:
            symbols = list(symbol_table(ELFFile(file)).iter_symbols())
        self.functions = {s.name: int(s["st_value"]) | 1 for s in symbols}
        (self.slots,) = (
            int(s["st_value"])
            for s in symbols
            if s.name.partition(".")[0] == "slots" and s["st_size"] == _SLOTS_BYTES
        )

    def call(self, name: str, *arguments: int) -> int:
        """Call a function of the image while the core sleeps. Returns what it returns, as signed."""
        registers = (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2, arm.UC_ARM_REG_R3)
        context, back = self.uc.context_save(), self.pc
        stack = int(self.uc.reg_read(arm.UC_ARM_REG_SP)) - 64
        self.uc.mem_write(stack, struct.pack(f"<{len(arguments[4:])}I", *arguments[4:]))
        self.uc.reg_write(arm.UC_ARM_REG_SP, stack)
        self.uc.reg_write(arm.UC_ARM_REG_LR, _END | 1)
        for register, value in zip(registers, arguments, strict=False):
            self.uc.reg_write(register, value)
        self.pc = self.functions[name]
        while self.pc & ~1 != _END:
            self._emulate(_SLICE)
            assert not self.was_reset, f"{name} resets the board"
        (result,) = struct.unpack("<i", struct.pack("<I", self.uc.reg_read(arm.UC_ARM_REG_R0)))
        self.uc.context_restore(context)
        self.pc = back
        return int(result)

    @property
    def active(self) -> int:
        """The slot whose model runs, or -1."""
        return int(struct.unpack("<i", self.uc.mem_read(self.slots + _ACTIVE, 4))[0])

    @property
    def is_on_trial(self) -> bool:
        return self.uc.mem_read(self.slots + _TRIAL, 1)[0] != 0

    def _on_write(self, uc: Uc, offset: int, size: int, value: int, base: int) -> None:
        if base + offset in _CLEARED:
            value = self.before(base + offset) & ~value
        super()._on_write(uc, offset, size, value, base)

    def tear(self, address: int) -> None:
        """Leave a double word half written."""
        self.uc.mem_write(address, self.random.randbytes(self.unit))
        self.torn.add(address)

    def is_torn(self, address: int, size: int) -> bool:
        """Whether a load takes bytes of a torn unit."""
        units = range(address - address % self.unit, address + size, self.unit)
        return not self.torn.isdisjoint(units)


class TornH7(Updated):
    """A STM32H743; its sectors are erased, and nothing is written."""

    unit = 32

    def __init__(self, board: Board, image: Path) -> None:
        super().__init__(board, image)
        self.uc.hook_add(unicorn.UC_HOOK_MEM_READ, self._on_flash_read, begin=self.first, end=self.end - 1)

    def _on_flash_read(self, uc: Uc, kind: int, address: int, size: int, value: int, data: object) -> None:
        if self.is_torn(address, size):
            ignored = self.values.get(_SCB_CCR, 0) & _BFHFNMIGN and uc.reg_read(arm.UC_ARM_REG_FAULTMASK)
            bank = _H7_SR + 0x100 * (address >= _H7_BANK_2)
            self.values[bank] = self.values.get(bank, 0) | _DBECCERR
            if not ignored:
                self.fault = f"bus fault: {address:#x} is torn"
                uc.emu_stop()

    def _on_write(self, uc: Uc, offset: int, size: int, value: int, base: int) -> None:
        super()._on_write(uc, offset, size, value, base)
        for bank in (0, 0x100):
            if base + offset == _H7_SR + 4 + bank:  # CCR: clears what is 1
                self.values[_H7_SR + bank] = self.values.get(_H7_SR + bank, 0) & ~value
            if base + offset == _H7_SR - 4 + bank and value & _H7_START:
                sector = 0x0800_0000 + (bank << 12) + (value >> 8 & 7) * (128 << 10)
                self.uc.mem_write(sector, b"\xff" * (128 << 10))
                self.torn.difference_update(range(sector, sector + (128 << 10), self.unit))


class TornFlash(Updated):
    """A STM32L4 with an image; ``cut_in`` counts erasings and writes until the power goes, those of the log
    alone with ``log_only``."""

    def __init__(self, image: Path, seed: int) -> None:
        self.cut_in: int | None = None
        self.log_only = False
        self.nmis = self.operations = 0
        self._keys: list[int] = []
        self._was_reset_caches = True
        self._pending = self._cut = 0
        super().__init__(find_board(BOARD), image, seed)
        self.uc.hook_add(unicorn.UC_HOOK_MEM_WRITE, self._on_flash_write, begin=self.first, end=self.end - 1)
        self.uc.hook_add(unicorn.UC_HOOK_MEM_READ, self._on_flash_read, begin=self.first, end=self.end - 1)
        self._power_on()

    def _power_on(self) -> None:
        """Registers and RAM as after a cut of the power: the flash stays."""
        assert self.board.uart is not None
        self._reset()
        self.values[_CR] = _LOCK
        self.writes.clear()
        self.was_reset, self.fault = False, ""
        self._pending = self._cut = 0
        self._was_reset_caches = True
        self.uart = UARTS[self.board.uart.kind](lambda address: int(self.uc.mem_read(address, 1)[0]))
        for memory in self.board.memories:
            if memory.kind == "ram":
                self.uc.mem_write(memory.origin, b"\xa5" * memory.size)

    def boot(self) -> None:
        """Power on, and run to the first sleep. Raises ``PowerCut`` if the power is cut meanwhile."""
        self._power_on()
        self.run(_MOST)

    def _emulate(self, count: int) -> None:
        super()._emulate(count)
        if self._cut:
            self._lose_power()
        while self._pending:  # before the load, which is done now
            self._pending = 2
            super()._emulate(1)
            self._pending = 0
            self._nmi()

    def _nmi(self) -> None:
        (handler,) = struct.unpack("<I", self.uc.mem_read(self.vectors + 4 * 2, 4))
        context, back = self.uc.context_save(), self.pc
        self.nmis += 1
        self.uc.reg_write(arm.UC_ARM_REG_LR, _END | 1)
        self.pc = handler
        while self.pc & ~1 != _END and not self.was_reset:
            super()._emulate(_SLICE)
        if not self.was_reset:
            self.uc.context_restore(context)
            self.pc = back

    def _on_flash_read(self, uc: Uc, kind: int, address: int, size: int, value: int, data: object) -> None:
        if (
            self.torn
            and self._pending == 0
            and not self.torn.isdisjoint(range(address & ~7, address + size, _UNIT))
        ):
            self.values[_ECCR] = self.values.get(_ECCR, 0) | _ECCD
            self._pending = 1
            uc.emu_stop()

    def _on_flash_write(self, uc: Uc, kind: int, address: int, size: int, value: int, data: object) -> None:
        unit = address & ~7
        self._forbid(size == 4 and self.before(_CR) & _PG != 0, f"{address:#x} is stored to, not written")
        if address == unit:
            blank = self.uc.mem_read(unit, _UNIT) == b"\xff" * _UNIT and unit not in self.torn
            self._forbid(blank, f"{address:#x} is written, and not erased")
        else:
            self._operate(unit)

    def _forbid(self, allowed: bool, why: str) -> None:
        if not allowed:
            self.fault = why
            self.uc.emu_stop()

    def _operate(self, at: int) -> None:
        """An erasing or a write: the power may go in its middle."""
        self._forbid(self.before(_ACR) & _CACHES == 0, f"a cache is on while {at:#x} is written")
        self._was_reset_caches = False
        self.operations += 1
        if self.cut_in is not None and (at >= self.log or not self.log_only):
            self.cut_in -= 1
            if self.cut_in == 0:
                self.cut_in, self._cut = None, at
                self.uc.emu_stop()

    def _on_write(self, uc: Uc, offset: int, size: int, value: int, base: int) -> None:
        address = base + offset
        if address == _ECCR:
            value = self.before(_ECCR) & ~(value & _ECCD)
        elif address == _KEYR:
            self._keys = [*self._keys, value][-2:]
            if self._keys == [0x4567_0123, 0xCDEF_89AB]:
                self.values[_CR] = self.before(_CR) & ~_LOCK
        elif address == _CR and self.before(_CR) & _LOCK:
            value = self.before(_CR)
        elif address == _ACR:
            self._was_reset_caches |= value & _CACHE_RESETS == _CACHE_RESETS and value & _CACHES == 0
            self._forbid(value & _CACHES == 0 or self._was_reset_caches, "a cache is on that holds old bytes")
        super()._on_write(uc, offset, size, value, base)
        if address == _CR and value & _STRT and value & _PER:
            self.values[_CR] = value & ~_STRT
            page = (value >> 3 & 0xFF) * _PAGE + (0x10_0000 if value & 1 << 11 else 0)
            self._erase(self.board.memory(self.board.code).origin + page)

    def _erase(self, page: int) -> None:
        self._forbid(self.first <= page < self.end, f"{page:#x} is erased, which is the firmware's")
        self._operate(page)
        if not self._cut:
            self.uc.mem_write(page, b"\xff" * _PAGE)
            self.torn.difference_update(range(page, page + _PAGE, _UNIT))

    def _lose_power(self) -> None:
        """What was erased or written is in part: some of its units are torn, others whole, old or new."""
        at, erasing = self._cut, self.before(_CR) & _PER != 0
        for unit in range(at, at + (_PAGE if erasing else _UNIT), _UNIT):
            chance = self.random.random()
            if chance < 0.6:
                self.tear(unit)
            elif chance < 0.8:
                self.uc.mem_write(unit, b"\xff" * _UNIT)
                self.torn.discard(unit)
        raise PowerCut
