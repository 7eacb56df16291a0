"""Follows an image from reset to the call of the network's function, and checks that memory then is as C
requires.

Flash holds the segments at their load addresses; RAM and registers are unknown. The device regions of the
memory map (Armv7-M Architecture Reference Manual, B3.1) are devices: reads from there are unknown, like reads
from flash that the image does not fill, and writes have no effect. Core registers are modelled
(``registers.py``). The number of interrupts, MPU regions and caches that the core has is tried with few and
with many.

A loop that waits for a device writes only to devices. It is run until registers are the same after each
round; a register that keeps changing becomes unknown. Then the loop is left: it is assumed that every device
answers eventually.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from crtgen.proof.checker.algebra.value import Word, WordOp, unknown
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core import registers
from crtgen.proof.checker.core.flow import is_jump
from crtgen.proof.checker.core.machine import SP, Machine, Step
from crtgen.proof.checker.core.memory import Content, WordMemory
from crtgen.proof.checker.core.registers import Protection, has_unit
from crtgen.proof.checker.refusal import Refusal

__all__ = ["MemoryWithDevices", "Needs", "Reset", "StartingCore", "entry_of", "start_up"]

_MOST_INSTRUCTIONS = 20_000_000
_MOST_ROUNDS = 20
_ICTR, _CLIDR, _CCSIDR, _MPU_TYPE = 0xE000E004, 0xE000ED78, 0xE000ED80, 0xE000ED90
# Read-only registers of each core: interrupt words, caches of 16 KiB, regions of the MPU.
_CORES = (
    {_ICTR: 0, registers.CCR: 0, _CLIDR: 0, _CCSIDR: 0, _MPU_TYPE: 0},
    {_ICTR: 7, registers.CCR: 0, _CLIDR: 0, _CCSIDR: 0, _MPU_TYPE: 8 << 8},
    {_ICTR: 15, registers.CCR: 3 << 16, _CLIDR: 3, _CCSIDR: 127 << 13 | 3 << 3, _MPU_TYPE: 16 << 8},
)


@dataclass(frozen=True, slots=True)
class Reset:
    """Result of following an image from its reset: ``stack`` bytes are in use at the call, of ``reserved``.

    ``vectors`` is the address of the table that the core has to start from. ``stopped`` says why the image
    could not be followed to the call, or what is wrong there; the other fields are then unknown.
    """

    instructions: int = 0
    reads: int = 0
    writes: int = 0
    stack: int = 0
    reserved: int = 0
    vectors: int = 0
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of the network's runs: bytes of stack, use of the FPU, and the addresses of their
    instructions.

    ``zeros`` are address ranges that must be 0 at the first call, ``changing`` the words that interrupts may
    write at any time, ``devices`` the device addresses that they use, with access rights.
    """

    stack: int
    unit: bool = False
    code: frozenset[int] = frozenset()
    zeros: tuple[tuple[int, int], ...] = ()
    changing: frozenset[int] = frozenset()
    devices: frozenset[tuple[int, str]] = frozenset()


def start_up(image: DecodedImage, name: str, needs: Needs) -> tuple[Reset, set[int]]:
    """Run an image from its reset to the first call of the network, and check its premises there.

    Also returns the addresses of the executed instructions.
    """
    found, code = Reset(), set[int]()
    for core in _CORES:
        machine = StartingCore(image, core)
        machine.words.changing = needs.changing
        try:
            entry = entry_of(image)
            with machine.located():
                found = _followed(machine, entry, name)
            _check_call(machine, name, needs)
        except Refusal as refusal:
            return Reset(stopped=str(refusal)), set()
        code |= machine.code
    return found, code


def _followed(machine: "StartingCore", pc: int, name: str) -> Reset:
    image, memory = machine.image, machine.memory
    if f"{name}_compute" not in image.symbols:
        raise Refusal(f"the image has {name}_step only, and what it does between steps is not followed")
    vectors, main, compute, bottom, top = (image.symbols[n] for n in (*_NAMES, f"{name}_compute", *_STACK))
    machine.begin(bottom, top)
    ready = False
    others = {a: n.removesuffix("_compute") for n, a in image.symbols.items() if n.endswith("_compute")}
    while pc != compute:
        pc = machine.one(pc)
        if pc in others and pc != compute:
            raise Refusal(f"another network, {others[pc]}, is called first; what follows is not followed")
        if pc == main:
            _check_memory(image.initial, memory, "main", machine.words.changing)
            ready = True
    if not ready:
        raise Refusal("start-up code calls the network before main")
    words = machine.words
    used = top - memory.floor
    return Reset(machine.count, words.reads, words.writes, used, top - bottom, vectors)


def entry_of(image: DecodedImage) -> int:
    """Return the core's entry point, from a vector table in which every handler must be Thumb code of the
    image.
    """
    if missing := [n for n in (*_NAMES, *_STACK) if n not in image.symbols]:
        raise Refusal(f"the image has no symbol {missing[0]}")
    vectors, end = image.span("crt_vectors")
    if not any(load <= vectors and end <= load + len(data) for load, data in image.loaded):
        raise Refusal(f"nothing is loaded where the vector table ought to be, at {vectors:#x}")
    memory = WordMemory(image.loaded, image.unaligned)
    first, entry = memory.load(vectors), memory.load(vectors + 4)
    if first != image.symbols["crt_stack_top"] or not isinstance(entry, int):
        raise Refusal("the vector table does not begin with the top of the stack and the reset handler")
    flash = min(load for load, _ in image.loaded)
    is_rp2040 = image.architecture == "armv6-m" and flash == _FLASH_OF_RP2040
    if vectors != (_AFTER_SECOND_STAGE if is_rp2040 else flash):
        raise Refusal(f"the vector table at {vectors:#x} is not where the image begins, {flash:#x}")
    for at in range(vectors + 4, max(end, vectors + _SYSTEM), 4):
        handler = memory.load(at)
        if handler != 0 and not (
            isinstance(handler, int) and handler & 1 and handler - 1 in image.instructions
        ):
            raise Refusal(f"the vector table has no Thumb code of the image at {at:#x}")
    if image.entry | 1 != entry:
        raise Refusal(f"the file says that the image begins at {image.entry:#x}, its vector table {entry:#x}")
    return entry - 1


_NAMES, _STACK = ("crt_vectors", "main"), ("crt_stack_bottom", "crt_stack_top")
# Bytes of the table that every core has.
_SYSTEM = 4 * 16
_FLASH_OF_RP2040, _AFTER_SECOND_STAGE = 0x10000000, 0x10000100
"""Address ranges for the RP2040, which copies a loader of 256 bytes to RAM and runs it before it reads the
table.
"""


def _check_memory(
    wanted: Iterable[tuple[int, bytes]],
    memory: WordMemory,
    call: str,
    changing: frozenset[int] = frozenset(),
) -> None:
    # Every variable has its first value, and everything that is copied to RAM is there.
    for first, data in wanted:
        for i, byte in enumerate(data):
            if first + i >> 2 not in changing and memory.byte(first + i) != byte:
                raise Refusal(f"{call} is called, and {first + i:#x} does not hold {byte:#x}")


def _check_call(machine: "StartingCore", name: str, needs: Needs) -> None:
    # The network finds what its proof takes for given.
    image, memory = machine.image, machine.memory
    zeros = [(first, bytes(end - first)) for first, end in needs.zeros]
    copied = [(s.address, s.data) for s in image.segments if s.data and s.load != s.address]
    copied = [(a, data) for a, data in copied if (a, data) in image.constant]
    _check_memory([*copied, *zeros], memory, "the network")
    bottom, top = image.symbols["crt_stack_bottom"], image.symbols["crt_stack_top"]
    used = top - memory.floor
    if used + needs.stack > top - bottom:
        raise Refusal(f"the stack is too small: {used + needs.stack} bytes are needed of {top - bottom}")
    limit = machine.register(registers.MSPLIM)
    if memory.floor - needs.stack < limit:
        raise Refusal(f"the stack is too small: its limit MSPLIM is {limit:#x}, and it begins at {top:#x}")
    if needs.unit and not has_unit(machine.register(registers.CPACR)):
        raise Refusal("the network uses the FPU or Helium, which CPACR does not switch on")
    if machine.register(registers.CCR) & _UNALIGN_TRP:
        raise Refusal("CCR.UNALIGN_TRP is set: loads and stores that are not aligned are faults")
    if (
        registers.VTOR >> 2 in memory.words
        and memory.words[registers.VTOR >> 2] != image.symbols["crt_vectors"]
    ):
        raise Refusal("VTOR says another vector table than the one that the image begins with")
    machine.devices.used |= needs.devices
    machine.check_protection(needs.code)


_UNALIGN_TRP = 1 << 3


_RIGHTS = {"run": "run code", "read": "read", "write": "write", "is_normal": "take it for normal memory"}


class _Words(dict[int, Content]):
    """Words of memory by address / 4, without words of devices and words that interrupts write."""

    reads = writes = 0
    changing: frozenset[int] = frozenset()

    def __init__(self, words: Mapping[int, Content]) -> None:
        super().__init__(words)
        self.stored: set[int] = set()
        """Words of variables that were written."""

    def __setitem__(self, i: int, v: Content) -> None:
        if _is_device(i):
            self.writes += 1
        elif i in self.changing:
            self.stored.add(i)
        else:
            super().__setitem__(i, v)

    def __missing__(self, i: int) -> Word:
        return unknown()


class MemoryWithDevices(WordMemory):
    """Memory in which some regions of the memory map belong to devices, and some registers to the core."""

    core: Mapping[int, int] = {}
    used: set[tuple[int, str]]
    """Addresses of devices that were read or written since the MPU was changed."""
    check_protection: Callable[[], None]
    """Called before and after each change of the MPU."""

    def _miss(self, i: int) -> Word:
        assert isinstance(self.words, _Words)
        if i in self.words.changing:
            return unknown()
        if not _is_device(i) and not _is_followed(i) and 4 * i >= 0x20000000:
            return super()._miss(i)
        self.words.reads += 1
        self.used.add((4 * i, "read"))
        return self.core.get(4 * i, unknown())

    is_v7 = True
    has_helium = False

    def _to(self, a: int, size: int) -> int:
        i = a >> 2
        if i in self.stack and a < self.floor:
            raise Refusal("a store below the stack pointer, where an interrupt may write at any time")
        if not _is_device(i) and not _is_followed(i):
            assert isinstance(self.words, _Words)
            self.words.stored.add(i)
            return super()._to(a, size)
        self.used.add((a, "write"))
        if _is_core(a):
            self._to_core(a, size)
        if self.undo and _is_followed(i):
            self._before(i, self.words.get(i))
        return i

    def _to_core(self, a: int, size: int) -> None:
        if _is_followed(a >> 2):
            if size != 4 or a & 3:
                raise Refusal(f"a part of {registers.NAMES[a & ~3]} is written")
        elif not any(first <= a < end for first, end in registers.FREE) and not (
            self.has_helium and a == registers.ACTLR
        ):
            if a == registers.FPDSCR:
                raise Refusal("how numbers of float32 are rounded is set, which is not followed")
            name = registers.NAMES.get(a & ~3, "of which nothing is known")
            raise Refusal(f"a write to a register of the core that is not followed: {a:#x}, {name}")

    def store(self, a: Word, v: Word) -> None:
        """Store a word; a store to the MPU's registers goes to the selected region."""
        if isinstance(a, int) and a in _PROTECTION:
            self._store_protection(a, v)
        elif isinstance(a, int) and _is_followed(a >> 2) and not isinstance(v, int):
            raise Refusal(f"what {registers.NAMES[a & ~3]} is set to is not known")
        else:
            super().store(a, v)

    def _store_protection(self, a: int, v: Word) -> None:
        if not isinstance(v, int):
            raise Refusal(f"what {registers.NAMES[a]} is set to is not known")
        self.check_protection()
        if a == registers.MPU_REGION[0] and v & 16 and self.is_v7:
            super().store(registers.MPU_NUMBER, v & 15)  # RBAR.VALID
        if a in registers.MPU_REGION:
            number = self.words[registers.MPU_NUMBER >> 2]
            count = self.core.get(_MPU_TYPE, 0) >> 8
            if not isinstance(number, int) or 0 < count <= number:
                raise Refusal(f"region {number} of the MPU is set, of a core that may have {count}")
            i = _REGIONS + 2 * number + registers.MPU_REGION.index(a)
            self._before(i, self.words.get(i))
            self.words[i] = v
        else:
            super().store(a, v)
        self.check_protection()


_PROTECTION = (registers.MPU_CONTROL, registers.MPU_NUMBER, *registers.MPU_REGION)
# Registers of the MPU's regions: RBAR, and RASR or RLAR, by number.
_REGIONS = 1 << 42


def _is_device(i: int) -> bool:
    return (0x40000000 <= 4 * i < 0x60000000 or 0xA0000000 <= 4 * i < 1 << 32) and not _is_followed(i)


def _is_core(a: int) -> bool:
    # The registers of the core, which no MPU protects.
    return 0xE0000000 <= a < 0xE0100000


def _is_followed(i: int) -> bool:
    return 4 * i in registers.FOLLOWED or 4 * i == registers.VTOR


class StartingCore(Machine):
    """A core just after reset, with the image at its load addresses."""

    starts = True

    def __init__(
        self,
        image: DecodedImage,
        core: Mapping[int, int],
        constants: Iterable[tuple[int, bytes]] | None = None,
    ) -> None:
        super().__init__(image, _MOST_INSTRUCTIONS)
        self.memory = self.devices = memory = MemoryWithDevices(
            image.loaded if constants is None else constants, image.unaligned, self._split
        )
        memory.core, memory.is_v7 = core, not image.architecture.startswith("armv8")
        memory.has_helium = image.architecture == "armv8.1-m.main"
        self.words = self.memory.words = _Words(self.memory.words)
        memory.used, memory.check_protection = set(), self.check_protection
        for first, end in image.variable if constants is None else ():
            self.memory.allow(first, end)
        for at, value in registers.FOLLOWED.items():
            self.words[at >> 2] = core.get(at, value)

    def begin(self, bottom: int, top: int) -> None:
        if not self.image.is_variable(bottom, top) or (bottom | top) & 7:
            raise Refusal("the stack is not in memory that the image has for variables")
        self.memory.stack, self.memory.floor, self.lowest = range(bottom >> 2, top >> 2), top, top
        self.r[SP] = self.sp = top
        self.returns = [(-1, ())]

    def call(self, target: int, following: int) -> int:
        # Run BL. The network's call is handled only once all paths have met.
        if self.memory.undo and self.image.function_of(target).endswith("_compute"):
            raise Refusal("whether the network is called depends on a device")
        return super().call(target, following)

    def register(self, at: int) -> int:
        v = self.words.get(at >> 2)
        if not isinstance(v, int):
            raise Refusal(f"what {registers.NAMES[at]} holds when the network is called is not known")
        return v

    def limit_stack(self, word: Word) -> None:
        self.memory.store(registers.MSPLIM, word)

    def protection(self) -> Protection:
        regions: dict[int, tuple[int, int]] = {}
        for i in [i for i in self.words if i >= _REGIONS]:
            number = i - _REGIONS >> 1
            pair = [self.words.get(_REGIONS + 2 * number + k, 0) for k in (0, 1)]
            if not isinstance(pair[0], int) or not isinstance(pair[1], int):
                raise Refusal(f"what region {number} of the MPU holds is not known")
            regions[number] = pair[0], pair[1]
        memory = self.register(registers.MPU_MEMORY), self.register(registers.MPU_MEMORY + 4)
        is_v8 = self.image.architecture.startswith("armv8")
        return Protection(is_v8, self.register(registers.MPU_CONTROL), regions, memory)

    def check_protection(self, more: frozenset[int] = frozenset()) -> None:
        """Check that the MPU, if it is on, permits executing code, reading constants, and writing to
        variables and devices.

        Code is everything that was executed, plus ``more``; devices are those that were used since the last
        change. Raises ``Refusal`` for the first address that is not permitted.
        """
        used, self.devices.used = self.devices.used, set()
        control = self.words.get(registers.MPU_CONTROL >> 2)
        if control == 0:
            return
        image, protection = self.image, self.protection()
        spans: list[tuple[int, int, tuple[str, ...]]] = [
            (at, image.instructions[at].following, ("run",)) for at in sorted(more | self.code)
        ]
        for s in image.segments:
            spans.append((s.address, s.end, ("read", "is_normal", *(("write",) if s.is_written else ()))))
        spans += [(at, at + 1, (right,)) for at, right in sorted(used) if not _is_core(at)]
        for first, end, what in spans:
            for right in what:
                at = protection.first_refused(first, end, right)
                if at is not None:
                    raise Refusal(f"the MPU does not let the core {_RIGHTS[right]} at {at:#x}")

    def compiled(self, pc: int) -> tuple[Step, int, int]:
        """Return the step of an instruction; FPU and Helium instructions require the FPU to be on."""
        step, following, cycles = super().compiled(pc)
        if self.image.instructions[pc].name[0] != "v":
            return step, following, cycles

        def with_unit() -> int | None:
            if not has_unit(self.words[registers.CPACR >> 2]):
                raise Refusal("an instruction of the FPU or of Helium, which CPACR did not switch on")
            return step()

        return with_unit, following, cycles

    def branch(self, holds: WordOp, pc: int, taken: int, following: int) -> int:
        """Take a branch that depends on a device; it may belong to a loop that waits for the device."""
        body = [i for a, i in self.image.instructions.items() if taken <= a < pc]
        plain = body and not any(is_jump(i) or i.name.startswith("it") for i in body)
        if plain and self._waited(holds, pc, taken):
            return following
        if len(self.returns) == 1 and taken > pc:  # a handler that never returns has no end to meet at
            self.nearer.setdefault(pc, taken)
        return super().branch(holds, pc, taken, following)

    def _waited(self, holds: WordOp, pc: int, taken: int) -> bool:
        # Go round a loop that waits for a device, until each round leaves registers as they were. Those that
        # a round changes are unknown. Returns False, and changes nothing, for another kind of loop.
        start, sp = self._state(), self.r[SP]
        written: dict[int, Content | None] = {}
        waits_for = self._compared(holds)
        unknowns: set[int] = set()
        self.memory.undo.append(written)
        try:
            for _ in range(_MOST_ROUNDS):
                before = [*self.r[:15], *(w for q in self.q for w in q)]
                at = taken
                while at != pc:
                    at = self.one(at)
                if written or self.r[SP] is not sp:
                    break
                waits_for &= self._compared(holds)
                after = [*self.r[:15], *(w for q in self.q for w in q)]
                changed = {
                    n for n, (u, v) in enumerate(zip(before, after, strict=True)) if not _is_same(u, v)
                }
                kept = [unknown() if n in changed | unknowns else w for n, w in enumerate(before)]
                self.r[:15], self.q[:] = kept[:15], [kept[k : k + 4] for k in range(15, 47, 4)]
                if changed <= unknowns:
                    for n in waits_for:
                        self.r[n] = holds.args[1]
                    self.forget_flags()
                    return True
                unknowns |= changed
        finally:
            self.memory.undo.pop()
        self._restore(start, {i: (w, None) for i, w in written.items()})
        return False

    def _compared(self, holds: WordOp) -> set[int]:
        # The registers that are a number once the loop is left: that which is waited for.
        kind, waited, value, _ = self.flags
        number = holds.args[1] if holds.name == "ne" and len(holds.args) == 2 else None
        if not isinstance(number, int) or not (kind == "sub" and value == number) | (
            kind == "result" and number == 0
        ):
            return set()
        return {n for n in range(13) if self.r[n] is waited}


def _is_same(u: Word, v: Word) -> bool:
    return u is v or (isinstance(u, int) and isinstance(v, int) and u == v)
