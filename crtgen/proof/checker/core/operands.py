"""Operands of instructions, as functions that return their value when the instruction runs."""

import re
from collections.abc import Callable, Sequence

from crtgen.proof.checker.algebra.value import M32, Word, place_of
from crtgen.proof.checker.algebra.words import add, logic, shifted
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.machine import PC, Machine
from crtgen.proof.checker.refusal import Refusal

__all__ = ["REGISTERS", "address", "indexed", "known_place", "number", "register", "register_list", "second"]

REGISTERS = {f"r{i}": i for i in range(16)} | {
    "sb": 9, "sl": 10, "fp": 11, "ip": 12, "sp": 13, "lr": 14, "pc": 15,
}  # fmt: skip

_SHIFT = re.compile(r"(lsl|lsr|asr|ror) #(\d+)")
_MEMORY = re.compile(r"\[(\w+)(?:,\s*(#-?\w+|\w+)(?:,\s*lsl #(\d))?)?\](!)?(?:,\s*#(-?\d+))?")


def register(name: str) -> int:
    if name not in REGISTERS:
        raise Refusal(f"{name} is no register that is followed")
    return REGISTERS[name]


def number(text: str) -> int:
    if text[0] != "#":
        raise Refusal(f"{text} is no number")
    return int(text[1:], 0)


def second(m: Machine, tokens: Sequence[str]) -> Callable[[], Word]:
    """Return the last operand of a data-processing instruction: a constant, a register, or a register shifted
    by a constant.
    """
    r = m.r
    if tokens[0][0] == "#":
        n = number(tokens[0]) & M32
        return lambda: n
    i = register(tokens[0])
    if i == PC or len(tokens) > 2:
        raise Refusal("an operand that is not followed")
    if len(tokens) == 1:
        return lambda: r[i]
    if tokens[1] == "rrx":
        return lambda: logic("orr", shifted("lsl", m.carry(), 31), shifted("lsr", r[i], 1))
    match = _SHIFT.fullmatch(tokens[1])
    if not match:
        raise Refusal(f"the operand {tokens[1]}")
    kind, amount = match[1], int(match[2])
    if amount == 32 and kind != "ror":
        return (lambda: shifted("asr", r[i], 31)) if kind == "asr" else (lambda: 0)
    return lambda: shifted(kind, r[i], amount)


def address(m: Machine, i: DecodedInstruction, tokens: Sequence[str]) -> Callable[[], int]:
    """Return a function that computes a memory operand's address, and updates the base register if the
    instruction does.
    """
    match = _MEMORY.fullmatch(", ".join(tokens))
    if not match:
        raise Refusal(f"the address {', '.join(tokens)}")
    base, offset, scale, back, after = match.groups()
    b = register(base)
    if b == PC:
        if (offset and offset[0] != "#") or back or after:
            raise Refusal("an address that is not followed")
        fixed = ((i.address + 4) & ~3) + (number(offset) if offset else 0)
        return lambda: fixed
    if after:
        return _after(m, b, int(after))
    if offset and offset[0] != "#":
        return _indexed(m, b, register(offset), int(scale or 0))
    return _offset(m, b, number(offset) if offset else 0, bool(back))


def known_place(v: Word) -> int:
    place = place_of(v)
    if place is None:
        raise Refusal("an address depends on an input")
    return place


def _after(m: Machine, b: int, step: int) -> Callable[[], int]:
    r, change = m.r, step & M32

    def at() -> int:
        a = known_place(r[b])
        m.write_back(b, add(r[b], change))
        return a

    return at


def _indexed(m: Machine, b: int, x: int, scale: int) -> Callable[[], int]:
    r = m.r

    def at() -> int:
        base, index = r[b], r[x]
        if isinstance(base, int) and isinstance(index, int):
            return (base + (index << scale)) & M32
        return known_place(add(base, shifted("lsl", index, scale)))

    return at


def indexed(m: Machine, tokens: Sequence[str]) -> Callable[[], tuple[int, Word, int] | None]:
    """Return base, index and scale of an address that depends on an input through a single register;
    otherwise None.
    """
    match = _MEMORY.fullmatch(", ".join(tokens))
    if not match or match[4] or match[5] or register(match[1]) == PC:
        return lambda: None
    r, b, scale = m.r, register(match[1]), int(match[3] or 0)
    if not match[2] or match[2][0] == "#":
        offset = number(match[2]) if match[2] else 0
        return lambda: None if place_of(r[b]) is not None else (offset, r[b], 0)
    x = register(match[2])

    def operand() -> tuple[int, Word, int] | None:
        base, index = r[b], r[x]
        if isinstance(index, int) and scale == 0:
            base, index = index, base
        return (base, index, scale) if isinstance(base, int) and place_of(index) is None else None

    return operand


def _offset(m: Machine, b: int, offset: int, back: bool) -> Callable[[], int]:
    r, change = m.r, offset & M32

    def at() -> int:
        base = r[b]
        if isinstance(base, int):
            a = base + offset & M32
            if back:
                m.write_back(b, a)
            return a
        moved = add(base, change)
        if back:
            m.write_back(b, moved)
        return known_place(moved)

    return at


def register_list(text: str) -> list[int]:
    found: list[int] = []
    for part in text.strip(" {}").split(","):
        first, _, last = part.strip().partition("-")
        found += range(register(first), register(last or first) + 1)
    return found
