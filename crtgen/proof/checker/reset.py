"""From reset to the call of the network's function, on numbers: is memory then what C takes it to be?

Flash holds the segments where they are loaded; RAM and registers hold nothing known. What lies in the
regions for devices of the memory map (Armv7-M Architecture Reference Manual, B3.1) is a device: what is read
there is unknown, as in flash that the image does not fill, and what is written is gone. A loop that only
reads until a device says something is left. How many interrupts, regions of the MPU and caches the core has
is tried with few and with many.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crtgen.proof.checker.image import DecodedImage
from crtgen.proof.checker.machine import SP, Machine
from crtgen.proof.checker.memory import Content, WordMemory
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.value import Word, WordOp, unknown

__all__ = ["Reset", "start_up"]

_MOST_INSTRUCTIONS = 20_000_000
_ACTS = ("st", "push", "pop", "b", "vst")
_ICTR, _CCR, _CLIDR, _CCSIDR, _MPU_TYPE = 0xE000E004, 0xE000ED14, 0xE000ED78, 0xE000ED80, 0xE000ED90
_CORES = (
    {_ICTR: 0, _CCR: 0, _CLIDR: 0, _CCSIDR: 0, _MPU_TYPE: 0},
    {_ICTR: 15, _CCR: 3 << 16, _CLIDR: 3, _CCSIDR: 127 << 13 | 3 << 3, _MPU_TYPE: 16 << 8},
)
"""What registers say that are of the core: words of interrupts, caches of 16 KiB, regions of the MPU."""


@dataclass(frozen=True, slots=True)
class Reset:
    """``stack`` are the bytes that are in use when the network's function is called, of ``reserved``.

    ``stopped`` says why it was not followed to there; nothing is said then.
    """

    instructions: int = 0
    reads: int = 0
    writes: int = 0
    stack: int = 0
    reserved: int = 0
    stopped: str = ""


def start_up(image: DecodedImage, name: str, depth: int) -> tuple[Reset, set[int]]:
    """Run an image from its reset to the first call of the network, which takes ``depth`` bytes of stack.

    Gives the addresses of what was run, too.
    """
    found, code = Reset(), set[int]()
    for core in _CORES:
        machine = _Starting(image, core)
        try:
            with machine.located():
                found = _followed(machine, name, depth)
        except Refusal as refusal:
            return Reset(stopped=str(refusal)), set()
        code |= machine.code
    return found, code


def _followed(machine: "_Starting", name: str, depth: int) -> Reset:
    image, memory = machine.image, machine.memory
    names = ("crt_vectors", "main", f"{name}_compute", "crt_stack_bottom", "crt_stack_top")
    if missing := [n for n in names if n not in image.symbols]:
        raise Refusal(f"the image has no symbol {missing[0]}")
    vectors, main, compute, bottom, top = (image.symbols[n] for n in names)
    first, entry = memory.load(vectors), memory.load(vectors + 4)
    if first != top or not isinstance(entry, int):
        raise Refusal("the vector table does not begin with the top of the stack and the reset handler")
    machine.r[SP], pc = first, entry & ~1
    machine.returns = [(0, ())]
    ready = False
    others = {a for n, a in image.symbols.items() if n.endswith("_compute")} - {compute}
    while pc != compute:
        pc = machine.one(pc)
        if pc in others:
            raise Refusal("another network is called first")
        if pc == main:
            _check(image, memory)
            ready = True
    used = first - machine.number(SP)
    low, high = image.arena(name)
    if not ready:
        raise Refusal("it calls the network before main")
    if used + depth > top - bottom or (low < top and bottom < high):
        raise Refusal(f"the stack is too small: {used + depth} bytes are needed, or it overlaps the arena")
    words = machine.words
    return Reset(machine.count, words.reads, words.writes, used, top - bottom)


def _check(image: DecodedImage, memory: WordMemory) -> None:
    """Every variable has its first value, and everything that is copied to RAM is there."""
    for first, data in image.initial:
        for i, byte in enumerate(data):
            if memory.byte(first + i) != byte:
                raise Refusal(f"main is called, and {first + i:#x} does not hold {byte:#x}")


_FPDSCR = 0xE000EF3C
"""The register that FPSCR begins with."""


class _Words(dict[int, Content]):
    """Words of memory by address / 4. Those of devices are never there."""

    reads = writes = 0

    def __setitem__(self, i: int, v: Content) -> None:
        if 4 * i == _FPDSCR:
            raise Refusal("how numbers of float32 are rounded is set, which is not followed")
        if _is_device(i):
            self.writes += 1
        else:
            super().__setitem__(i, v)

    def __missing__(self, i: int) -> Word:
        return unknown()


class _Memory(WordMemory):
    core: Mapping[int, int] = {}

    def _miss(self, i: int) -> Word:
        if not _is_device(i) and 4 * i >= 0x20000000:
            return super()._miss(i)
        assert isinstance(self.words, _Words)
        self.words.reads += 1
        return self.core.get(4 * i, unknown())

    def _to(self, a: int) -> int:
        return a >> 2 if _is_device(a >> 2) else super()._to(a)


def _is_device(i: int) -> bool:
    return 0x40000000 <= 4 * i < 0x60000000 or 4 * i >= 0xA0000000


class _Starting(Machine):
    """A core that was just reset."""

    starts = True

    def __init__(self, image: DecodedImage, core: Mapping[int, int]) -> None:
        super().__init__(image, _MOST_INSTRUCTIONS)
        self.memory = memory = _Memory(image.loaded, image.unaligned)
        memory.core = core
        self.words = self.memory.words = _Words(self.memory.words)
        for first, end in image.variable:
            self.memory.allow(first, end)

    def number(self, register: int) -> int:
        v = self.r[register]
        if not isinstance(v, int):
            raise Refusal("the stack pointer is unknown")
        return v

    def branch(self, holds: WordOp, pc: int, taken: int, following: int) -> int:
        span = [i for a, i in self.image.instructions.items() if taken <= a < pc]
        if span and not any(i.name.startswith(_ACTS) and i.name not in ("bic", "bics", "bfi") for i in span):
            waited, value = holds.args
            if holds.name == "ne" and isinstance(value, int):  # compilers know it then, too
                self.r[:] = [value if v is waited else v for v in self.r]
            return following
        if len(self.returns) == 1 and taken > pc:  # a handler that never returns has no end to meet at
            self.nearer.setdefault(pc, taken)
        return super().branch(holds, pc, taken, following)
