"""Loads and stores of registers."""

from collections.abc import Callable

from crtgen.proof.checker.algebra.value import M32, Word
from crtgen.proof.checker.algebra.words import add
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.machine import PC, SP, Machine, Step
from crtgen.proof.checker.core.operands import address, indexed, known_place, register, register_list
from crtgen.proof.checker.refusal import Refusal

__all__ = ["aligned_base"]


@family("ldr", "ldrb", "ldrsb", "ldrh", "ldrsh")
def load(m: Machine, i: DecodedInstruction) -> Step:
    """Load a register, also from a constant table whose index depends on an input."""
    d, at, memory, r = register(i.operands[0]), address(m, i, i.operands[1:]), m.memory, m.r
    if d == PC:
        return lambda: m.leave(memory.load(at()))
    reads: dict[str, Callable[[Word], Word]] = {
        "ldr": memory.load,
        "ldrb": memory.unsigned_byte,
        "ldrsb": memory.signed_byte,
        "ldrh": lambda a: memory.half(a, signed=False),
        "ldrsh": lambda a: memory.half(a, signed=True),
    }
    read, table = reads[i.name], indexed(m, i.operands[1:])

    def step() -> None:
        entry = table()
        if entry is None:
            r[d] = read(at())
            return
        m.varies("an address")
        r[d] = memory.table(*entry, read)

    return step


@family("str", "strb", "strh")
def store(m: Machine, i: DecodedInstruction) -> Step:
    d, at, memory, r = register(i.operands[0]), address(m, i, i.operands[1:]), m.memory, m.r
    put = {"str": memory.store, "strb": memory.store_low_byte, "strh": memory.store_half}[i.name]

    def step() -> None:
        v = r[d]  # before the base is written back
        put(at(), v)

    return step


def aligned_base(v: Word) -> int:
    """Return the address of words that every core requires to be aligned."""
    place = known_place(v)
    if place & 3:
        raise Refusal(f"{place:#x} is not aligned")
    return place


@family("ldrd", "strd")
def double(m: Machine, i: DecodedInstruction) -> Step:
    d, e, at = register(i.operands[0]), register(i.operands[1]), address(m, i, i.operands[2:])
    memory, r = m.memory, m.r

    def load_two() -> None:
        a = aligned_base(at())
        r[d], r[e] = memory.load(a), memory.load(a + 4)

    def store_two() -> None:
        v, w = r[d], r[e]
        a = aligned_base(at())
        memory.store(a, v)
        memory.store(a + 4, w)

    return load_two if i.name == "ldrd" else store_two


@family("push", "stmia", "stmdb")
def store_many(m: Machine, i: DecodedInstruction) -> Step:
    base, registers, back = _block(i)
    down, size, r = i.name != "stmia", 4 * len(registers), m.r
    change = (-size if down else size) & M32
    if back and base in registers[1:]:
        raise Refusal("a base that is stored and written")

    def step() -> None:
        at, after = aligned_base(r[base]), add(r[base], change)
        first, stored = at - size if down else at, [r[n] for n in registers]
        if back:
            m.write_back(base, after)
        for k, word in enumerate(stored):
            m.memory.store(first + 4 * k, word)

    return step


@family("pop", "ldmia", "ldmdb")
def load_many(m: Machine, i: DecodedInstruction) -> Step:
    base, registers, back = _block(i)
    down, size, r = i.name == "ldmdb", 4 * len(registers), m.r
    change = (-size if down else size) & M32

    def step() -> int | None:
        at, after = aligned_base(r[base]), add(r[base], change)
        first = at - size if down else at
        to = None
        for k, n in enumerate(registers):
            v = m.memory.load(first + 4 * k)
            if n == PC:
                to = v
            else:
                r[n] = v
        if back:
            m.write_back(base, after)
        return None if to is None else m.give_back(to)

    return step


def _block(i: DecodedInstruction) -> tuple[int, list[int], bool]:
    # Base, registers, and whether the base is written back.
    if i.name in ("push", "pop"):
        return SP, register_list(i.operands[0]), True
    base = i.operands[0]
    return register(base.strip(" !")), register_list(i.operands[1]), base.endswith("!")
