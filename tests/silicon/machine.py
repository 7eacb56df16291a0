"""A chip under Unicorn: its core, its memories, registers that keep what is written to them, and a UART.

What start-up code waits for comes, one wait after the other. The registers have the values that the maker's
SVD file says they have after a reset. Interrupts are injected: that of the UART where it is enabled. There is
no boot ROM, no flash protocol, no analog part and no erratum.
"""

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm
from unicorn.unicorn_py3.unicorn import Uc, UcError

from crtgen.base.errors import LinkTimeoutError
from crtgen.boards import Board, all_steps
from crtgen.npu.device import NpuDevice
from tests.silicon.svd import Register
from tests.silicon.uarts import UARTS, NrfUarte
from tests.silicon.watchdogs import started
from tests.support import symbol_table

__all__ = ["Access", "Machine", "is_usb_memory"]

_CORES = {
    "cortex-m0": arm.UC_CPU_ARM_CORTEX_M0,
    "cortex-m0plus": arm.UC_CPU_ARM_CORTEX_M0,
    "cortex-m3": arm.UC_CPU_ARM_CORTEX_M3,
    "cortex-m4": arm.UC_CPU_ARM_CORTEX_M4,
    "cortex-m7": arm.UC_CPU_ARM_CORTEX_M7,
    "cortex-m33": arm.UC_CPU_ARM_CORTEX_M33,
}
_END = 0x0F00_0000
"""Where handlers return to: a loop."""

_WFI = b"\x30\xbf"
_SLICE = 20_000
_WATCHDOG = 200_000
"""Instructions until a watchdog ends that nobody feeds."""
_CPUID, _ICTR, _SYST_CVR, _MPU_TYPE, _CLIDR, _CCSIDR = (
    0xE000ED00,
    0xE000E004,
    0xE000E018,
    0xE000ED90,
    0xE000ED78,
    0xE000ED80,
)
_CORE = 0xE000_0000
_AIRCR = 0xE000ED0C
_ISER, _ICER = 0xE000E100, 0xE000E180


def is_usb_memory(address: int) -> bool:
    """The memory of RP2040's USB: it lies among registers, and is none."""
    return 0x5010_0000 <= address < 0x5010_1000


@dataclass(frozen=True)
class Access:
    """One write to a register: what was there, and what is there now."""

    address: int
    bits: int
    before: int
    value: int


class Machine:
    """A board with an image in its memories. It is a stream of bytes, too: that of its UART."""

    flow_controlled = True

    def __init__(self, board: Board, image: Path, registers: dict[int, list[Register]] | None) -> None:
        self.board, self.registers = board, registers or {}
        self.known = registers is not None
        self.writes: list[Access] = []
        self.undocumented: set[tuple[str, int]] = set()
        self.values: dict[int, int] = {}
        self.enabled: set[int] = set()
        self.was_reset = False
        self.npu: NpuDevice | None = None
        self.hangs_until: int | None = None  # instructions at which a watchdog that runs ends
        self.silent_writes = 0  # those before the first byte that the UART sends
        self.fault = ""
        self.instructions = 0
        self._polls: Counter[int] = Counter()
        self._last_read = (0, 0)
        self._asleep = self._has_sent = False
        self._waits = self._awaited()
        assert board.uart is not None
        self.uart = UARTS[board.uart.kind](lambda address: int(self.uc.mem_read(address, 1)[0]))
        if isinstance(self.uart, NrfUarte):
            self.uart.deliver = lambda address, byte: self.uc.mem_write(address, bytes([byte]))
        self.uc = Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self.uc.ctl_set_cpu_model(_CORES[board.core.name.partition("+")[0]])
        self._map_memories()
        self._load(image)
        self._map_devices()

    def _awaited(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for step in all_steps(self.board.start):
            if step.operation == "wait":
                found.setdefault(step.address, []).append((step.mask, step.value))
        return found

    def _map_memories(self) -> None:
        for memory in self.board.memories:
            start, end = memory.origin & ~0xFFF, memory.end + 0xFFF & ~0xFFF
            self.uc.mem_map(start, end - start)
            fill = b"\xa5" if memory.kind == "ram" else b"\xff"
            self.uc.mem_write(memory.origin, fill * min(memory.size, 1 << 20))
        self.uc.mem_map(_END, 0x1000)
        self.uc.mem_write(_END, b"\xfe\xe7" * 8)

    def _load(self, image: Path) -> None:
        with image.open("rb") as file:
            elf = ELFFile(file)
            for segment in elf.iter_segments("PT_LOAD"):
                if segment["p_filesz"]:
                    self.uc.mem_write(segment["p_paddr"], segment.data())
            found = symbol_table(elf).get_symbol_by_name("crt_vectors")
            assert found
            self.vectors = int(found[0]["st_value"])
            text = elf.get_section_by_name(".text")
            assert text is not None
            code, base = text.data(), int(text["sh_addr"])
        for offset in range(0, len(code) - 1, 2):
            if code[offset : offset + 2] == _WFI:
                place = base + offset
                self.uc.hook_add(unicorn.UC_HOOK_CODE, self._on_wfi, None, place, place)
        self._reset()

    def _reset(self) -> None:
        """As a reset leaves the core: at the start, with nothing enabled."""
        stack, self.pc = struct.unpack("<II", self.uc.mem_read(self.vectors, 8))
        self.uc.reg_write(arm.UC_ARM_REG_SP, stack)
        self.uc.reg_write(arm.UC_ARM_REG_LR, 0xFFFF_FFFF)
        self.uc.reg_write(arm.UC_ARM_REG_PRIMASK, 0)
        self.enabled.clear()
        self.values.clear()
        self.hangs_until = None

    def _map_devices(self) -> None:
        places = [(0x4000_0000, 0x2000_0000), (_CORE, 0x10_0000)]
        taken = [(m.origin, m.end) for m in self.board.memories]
        others = {step.address & ~0xFFF for step in all_steps(self.board.start)}
        for page in sorted(others):
            inside = [a <= page < b for a, b in taken] + [a <= page < a + n for a, n in places]
            if not any(inside):
                places.append((page, 0x1000))
        for base, size in places:
            self.uc.mmio_map(base, size, self._on_read, base, self._on_write, base)
        self.uc.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._on_invalid)
        self.uc.hook_add(unicorn.UC_HOOK_INTR, self._on_exception)

    def _on_wfi(self, uc: Uc, address: int, size: int, data: object) -> None:
        self._asleep = True
        uc.emu_stop()

    def _on_invalid(self, uc: Uc, kind: int, address: int, *rest: object) -> bool:
        self.fault = f"nothing is at {address:#x}, pc {uc.reg_read(arm.UC_ARM_REG_PC):#x}"
        return False

    def _on_exception(self, uc: Uc, number: int, data: object) -> None:
        self.fault = f"exception {number}, pc {uc.reg_read(arm.UC_ARM_REG_PC):#x}"
        uc.emu_stop()

    def register(self, address: int) -> Register | None:
        """The register at an address, or the one that it is a part of."""
        for offset in range(4):
            for each in self.registers.get(address - offset, ()):
                if each.bits > 8 * offset:
                    return each
        return None

    def before(self, address: int) -> int:
        """What a register holds."""
        if address not in self.values and address < _CORE:
            found = self.register(address)
            return found.reset >> 8 * (address - found.address) if found is not None else 0
        return self.values.get(address, 0)

    def _on_read(self, uc: Uc, offset: int, size: int, base: int) -> int:
        address, mask = base + offset, (1 << 8 * size) - 1
        if address >= _CORE:
            return self._core(address) & mask
        if (place := self._npu_register(address)) is not None:
            return place[0].read(place[1])
        uart = self.board.uart
        assert uart is not None
        if uart.base <= address < uart.base + 0x800:
            self._look_up("read", address)
            answer = self.uart.read(address - uart.base)
            if answer is not None:
                return answer & mask
        timer = self.board.timer
        if timer is not None and timer.base and address == timer.base + 0x544:
            return self.instructions & mask
        self._look_up("read", address)
        value = self.before(address)
        poll = (int(uc.reg_read(arm.UC_ARM_REG_PC)), address)
        if poll == self._last_read and address in self._waits:
            wanted, result = self._waits[address][self._polls[address] % len(self._waits[address])]
            self._polls[address] += 1
            value = value & ~wanted | result
        self._last_read = poll
        return value & mask

    def _on_write(self, uc: Uc, offset: int, size: int, value: int, base: int) -> None:
        address = base + offset
        self._last_read = (0, 0)
        if (place := self._npu_register(address)) is not None:
            place[0].write(place[1], value)
        else:
            self._store(uc, address, size, value)

    def _npu_register(self, address: int) -> tuple[NpuDevice, int] | None:
        npu = self.board.npu
        if self.npu is None or npu is None or not npu.base <= address < npu.base + 0x1000:
            return None
        return self.npu, address - npu.base

    def _store(self, uc: Uc, address: int, size: int, value: int) -> None:
        uart = self.board.uart
        assert uart is not None
        if uart.base <= address < uart.base + 0x800:
            self.uart.write(address - uart.base, value)
        if not self.uart.sent and not self._has_sent:
            self.silent_writes = len(self.writes) + 1
        self._has_sent = self._has_sent or bool(self.uart.sent)
        if address < _CORE:
            self._look_up("write", address)
        self.writes.append(Access(address, 8 * size, self.before(address), value))
        self.values[address] = value
        for start, change in ((_ISER, self.enabled.add), (_ICER, self.enabled.discard)):
            if start <= address < start + 0x40:
                for bit in range(32):
                    if value >> bit & 1:
                        change((address - start) * 8 + bit)
        watchdog = self.board.watchdog
        if watchdog is not None and started(watchdog, address - watchdog.base, value):
            self.hangs_until = self.instructions + _WATCHDOG
        if address == _AIRCR:
            self.was_reset = True
            uc.emu_stop()

    def _core(self, address: int) -> int:
        """Registers of the core: its timer counts instructions, it has eight regions and caches of 16 KiB."""
        m7 = self.board.core.name.startswith("cortex-m7")
        small = self.board.core.narrow
        fixed = {
            _CPUID: 0x410F_C240,
            _ICTR: 15,
            _SYST_CVR: -self.instructions & 0xFF_FFFF,
            _MPU_TYPE: 0 if small else 0x800,
            _CLIDR: 0x0900_0003 if m7 else 0,
            _CCSIDR: 0xF00F_E019 if m7 else 0,
        }
        return fixed.get(address, self.values.get(address, 0))

    def _look_up(self, kind: str, address: int) -> None:
        if self.known and self.register(address) is None and not is_usb_memory(address):
            self.undocumented.add((kind, address))

    def raise_fault(self) -> None:
        """A fault at the next instruction, as the core raises it, up to the reset that follows the report."""
        stack = int(self.uc.reg_read(arm.UC_ARM_REG_SP)) - 32
        self.uc.mem_write(stack, struct.pack("<8I", 0, 1, 2, 3, 12, 14, self.pc & ~1, 1 << 24))
        self.uc.reg_write(arm.UC_ARM_REG_SP, stack)
        self.uc.reg_write(arm.UC_ARM_REG_LR, 0xFFFF_FFF9)
        (self.pc,) = struct.unpack("<I", self.uc.mem_read(self.vectors + 4 * 3, 4))
        self.run()

    def run(self, most: int = 20_000_000) -> None:
        """Until the core sleeps for good, or resets itself. A fault is an ``AssertionError``."""
        end = self.instructions + most
        while not self.was_reset:
            assert self.instructions < end, f"it still runs after {most} instructions, pc {self.pc:#x}"
            self._asleep = False
            self._emulate(_SLICE)
            if self.hangs_until is not None and self.instructions > self.hangs_until:
                self._reset()
                continue
            wakes = self.uart.interrupts and self.board.uart.irq in self.enabled  # type: ignore[union-attr]
            if self._asleep:
                if not wakes:
                    return
                self.pc += len(_WFI)
                while self.uc.reg_read(arm.UC_ARM_REG_PRIMASK):
                    self._emulate(1)
            if wakes and not self.uc.reg_read(arm.UC_ARM_REG_PRIMASK):
                self._interrupt()

    def step(self, count: int) -> None:
        """So many instructions, wherever they lead; no interrupt is taken."""
        self._emulate(count)

    def _emulate(self, count: int) -> None:
        self.instructions += count
        try:
            self.uc.emu_start(self.pc | 1, _END, count=count)
        except UcError as error:
            raise AssertionError(f"{error}: {self.fault}") from error
        assert not self.fault, self.fault
        self.pc = int(self.uc.reg_read(arm.UC_ARM_REG_PC))

    def _interrupt(self) -> None:
        assert self.board.uart is not None
        (handler,) = struct.unpack("<I", self.uc.mem_read(self.vectors + 4 * (16 + self.board.uart.irq), 4))
        context, back = self.uc.context_save(), self.pc
        self.uc.reg_write(arm.UC_ARM_REG_LR, _END | 1)
        self.uc.emu_start(handler | 1, _END)
        self.uc.context_restore(context)
        self.pc = back

    def read(self, timeout: float) -> bytes:
        """What the UART sent, once the core sleeps."""
        if not self.uart.sent:
            self.run()
        if not self.uart.sent:
            raise LinkTimeoutError("the core sleeps", where=self.board.name)
        data = bytes(self.uart.sent)
        self.uart.sent.clear()
        return data

    def write(self, data: bytes) -> None:
        """Bytes on the line to the UART."""
        self.uart.came.extend(data)

    def close(self) -> None:
        """Nothing has to be ended."""
