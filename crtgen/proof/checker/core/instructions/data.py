"""Data processing: moves, additions, logic, shifts, comparisons, bit fields."""

import re
from collections.abc import Callable, Sequence

from crtgen.proof.checker.algebra.long_sums import field, field_across, long_add, long_shift
from crtgen.proof.checker.algebra.meaning import NEGATED, apply
from crtgen.proof.checker.algebra.value import M32, Halves, LinearSum, Word, WordOp, unknown
from crtgen.proof.checker.algebra.words import (
    add,
    byte_word,
    bytes_of,
    complement,
    halves_of,
    logic,
    pair,
    raw_halves,
    select,
    shifted,
    subtract,
    unsigned_byte,
    word_of,
)
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.machine import PC, SP, Machine, Step
from crtgen.proof.checker.core.operands import REGISTERS, number, register, second
from crtgen.proof.checker.refusal import Refusal

__all__ = ["EXTENSIONS", "put_above"]


def _with_flags(*names: str) -> list[str]:
    return [n + s for n in names for s in ("", "s")]


def _three(i: DecodedInstruction) -> Sequence[str]:
    # Destination, first and second operand, where two are written that mean three.
    q = i.operands
    two = len(q) == 2 or (len(q) == 3 and re.match(r"(lsl|lsr|asr|ror) ", q[2]))
    return (q[0], *q) if two else q


def _is_plain(tokens: Sequence[str]) -> bool:
    # True if an operand leaves the carry alone: no shift, and no rotated constant.
    return len(tokens) == 1 and (tokens[0][0] != "#" or 0 <= number(tokens[0]) < 256)


def _sign(m: Machine, v: Word, carry: Word | None) -> None:
    # The flags of a result; an operand without a shift leaves the carry alone.
    if carry is None:
        m.set_sign(v)
    else:
        m.set_result(v, carry)


def _carry(m: Machine, tokens: Sequence[str]) -> Callable[[], Word | None]:
    # The carry that an operand leaves: the last bit that it shifts out; None for one that leaves it alone.
    if _is_plain(tokens):
        return lambda: None
    match = re.fullmatch(r"(lsl|lsr|asr|ror) #(\d+)|rrx", tokens[-1])
    if len(tokens) != 2 or match is None:
        return unknown
    n, kind, count = register(tokens[0]), match[1] or "lsr", int(match[2] or 1)
    return lambda: _last_out(kind, m.r[n], count)


def _jump(m: Machine, n: int) -> Step:
    def step() -> int:
        to = m.r[n]
        if not isinstance(to, int):
            raise Refusal("a jump that depends on an input")
        return to & ~1

    return step


def _destination(name: str) -> int:
    d = register(name)
    if d == PC:
        raise Refusal("a jump that is computed")
    return d


@family(*_with_flags("mov", "mvn"), "movw")
def move(m: Machine, i: DecodedInstruction) -> Step:
    if i.operands[0] == "pc" and i.name == "mov" and m.computes_jumps:
        return _jump(m, register(i.operands[1]))
    d, r, flags = _destination(i.operands[0]), m.r, i.name.endswith("s")
    if i.name == "movs" and len(i.operands) == 3 and i.operands[2] != "rrx":
        kind, n = i.operands[2].split(" #")
        return _shift_by_number(m, kind, flags, (d, register(i.operands[1]), int(n)))
    value = second(m, i.operands[1:])
    if i.name.startswith("mvn"):
        source = value
        value = lambda: complement(source())  # noqa: E731
    carry = _carry(m, i.operands[1:])
    if not flags:

        def step() -> None:
            r[d] = value()

        return step

    def with_flags() -> None:
        c = carry()
        r[d] = value()
        _sign(m, r[d], c)

    return with_flags


@family("movt")
def move_top(m: Machine, i: DecodedInstruction) -> Step:
    d, top, r = _destination(i.operands[0]), number(i.operands[1]) << 16, m.r

    def step() -> None:
        low = r[d]
        r[d] = low & 0xFFFF | top if isinstance(low, int) else pair(raw_halves(low)[0], top >> 16)

    return step


@family(*_with_flags("add", "sub", "rsb", "adc", "sbc", "neg"), "addw", "subw")
def addition(m: Machine, i: DecodedInstruction) -> Step:
    flags = i.name.endswith("s")
    name = i.name.removesuffix("s").removesuffix("w")
    if name == "neg":
        q: Sequence[str] = (i.operands[0], i.operands[-1], "#0")
        name = "rsb"
    else:
        q = _three(i)
    d, x, value = _destination(q[0]), register(q[1]), second(m, q[2:])
    if x == PC:
        return _address(m, i, d, number(q[2]) if name == "add" else -number(q[2]))
    sums = {"add": _add, "sub": _sub, "rsb": _rsb, "adc": _adc, "sbc": _sbc}
    return sums[name](m, d, x, value, flags)


def _address(m: Machine, i: DecodedInstruction, d: int, offset: int) -> Step:
    # ADR: an address by the program counter.
    value = ((i.address + 4) & ~3) + offset

    def step() -> None:
        m.r[d] = value

    return step


def _add(m: Machine, d: int, x: int, value: Callable[[], Word], flags: bool) -> Step:
    r = m.r

    def step() -> None:
        a, b = r[x], value()
        if flags:
            m.flags = ("add", a, b, 0)
        r[d] = (a + b) & M32 if isinstance(a, int) and isinstance(b, int) else add(a, b)

    return step


def _sub(m: Machine, d: int, x: int, value: Callable[[], Word], flags: bool) -> Step:
    r = m.r

    def step() -> None:
        a, b = r[x], value()
        if flags:
            m.flags = ("sub", a, b, 0)
        r[d] = (a - b) & M32 if isinstance(a, int) and isinstance(b, int) else subtract(a, b)

    return step


def _rsb(m: Machine, d: int, x: int, value: Callable[[], Word], flags: bool) -> Step:
    def step() -> None:
        a, b = m.r[x], value()
        if flags:
            m.flags = ("sub", b, a, 0)
        m.r[d] = subtract(b, a)

    return step


def _adc(m: Machine, d: int, x: int, value: Callable[[], Word], flags: bool) -> Step:
    def step() -> None:
        a, b = m.r[x], value()
        together = _long_flags(m, "add", a, b)
        if together is not None:
            m.r[d] = together
            m.forget_flags()
            return
        carry = m.carry()
        if flags:
            m.flags = ("add", a, b, carry)
        rounded = add(a, carry)
        whole = isinstance(rounded, WordOp) and rounded.name == "vrmulh"
        m.r[d] = add(rounded, b) if whole else add(add(a, b), carry)

    return step


def _long_flags(m: Machine, kind: str, a: Word, b: Word) -> Word | None:
    # The upper word of a sum or difference of 64 bits, of which the flags are that of the lower words.
    was, low, other, carry = m.flags
    if was != kind or carry != 0:
        return None
    short = m.products is not None and bool(m.products.tensors)
    words = long_add((low, a), (other, b), 1 if kind == "add" else -1, short)
    return None if words is None else words[1]


def _sbc(m: Machine, d: int, x: int, value: Callable[[], Word], flags: bool) -> Step:
    def step() -> None:
        a, b = m.r[x], value()
        together = _long_flags(m, "sub", a, b)
        if together is not None:
            m.r[d] = together
            m.forget_flags()
            return
        b, carry = complement(b), m.carry()
        if flags:
            m.flags = ("add", a, b, carry)
        m.r[d] = add(add(a, b), carry)

    return step


@family("cmp", "cmn", "tst", "teq")
def comparison(m: Machine, i: DecodedInstruction) -> Step:
    x, value, r = register(i.operands[0]), second(m, i.operands[1:]), m.r
    carry = _carry(m, i.operands[1:])

    def cmp() -> None:
        m.flags = ("sub", r[x], value(), 0)

    def cmn() -> None:
        m.flags = ("add", r[x], value(), 0)

    def tst() -> None:
        _sign(m, logic("and", r[x], value()), carry())

    def teq() -> None:
        _sign(m, logic("eor", r[x], value()), carry())

    return {"cmp": cmp, "cmn": cmn, "tst": tst, "teq": teq}[i.name]


@family(*_with_flags("and", "orr", "eor", "bic", "orn"))
def logical(m: Machine, i: DecodedInstruction) -> Step:
    flags, name, q = i.name.endswith("s"), i.name.removesuffix("s"), _three(i)
    d, x, value = _destination(q[0]), register(q[1]), second(m, q[2:])
    kind = {"bic": "and", "orn": "orr"}.get(name, name)
    inverted, carry = kind != name, _carry(m, q[2:])

    def step() -> None:
        y, c = value(), carry()
        m.r[d] = logic(kind, m.r[x], complement(y) if inverted else y)
        if flags:
            _sign(m, m.r[d], c)

    return step


@family(*_with_flags("lsl", "lsr", "asr", "ror"))
def shift(m: Machine, i: DecodedInstruction) -> Step:
    flags, kind, q = i.name.endswith("s"), i.name.removesuffix("s"), _three(i)
    d, x = _destination(q[0]), register(q[1])
    if q[2][0] != "#":
        return _shift_by_register(m, kind, flags, (d, x, register(q[2])))
    return _shift_by_number(m, kind, flags, (d, x, number(q[2])))


def _shift_by_number(m: Machine, kind: str, flags: bool, which: tuple[int, int, int]) -> Step:
    d, x, n = which

    def step() -> None:
        v = m.r[x]
        if n == 32:
            m.r[d] = shifted("asr", v, 31) if kind == "asr" else 0
        else:
            m.r[d] = shifted(kind, v, n)
        if flags:
            m.set_result(m.r[d], _last_out(kind, v, n))

    return step


def _last_out(kind: str, v: Word, n: int) -> Word:
    # The bit that a shift by 1 to 32 moves out.
    if n == 0:
        return unknown()
    place = 32 - n if kind == "lsl" else n - 1
    return v >> place & 1 if isinstance(v, int) else WordOp("and", WordOp("lsr", v, place), 1)


def _shift_by_register(m: Machine, kind: str, flags: bool, which: tuple[int, int, int]) -> Step:
    d, x, y = which

    def step() -> None:
        v, n = m.r[x], m.r[y]
        if isinstance(n, int):
            n &= 255
            if kind == "asr":
                n = min(n, 31)
            m.r[d] = 0 if n > 31 and kind != "ror" else shifted(kind, v, n & 31)
        else:
            m.r[d] = apply(kind, v, n)
        if flags:
            m.set_result(m.r[d], unknown())

    return step


# What the second operand becomes if the condition does not hold: CSEL, CSINC, CSINV, CSNEG of Armv8.1-M.
_OTHERWISE: dict[str, Callable[[Word], Word]] = {
    "csel": lambda v: v,
    "csinc": lambda v: add(v, 1),
    "csinv": complement,
    "csneg": lambda v: subtract(0, v),
}
# Names of CSINC, CSINV and CSNEG with one register, or zero, in both places, for the negated condition.
_ONE_PLACE = {"cset": "csinc", "cinc": "csinc", "csetm": "csinv", "cinv": "csinv", "cneg": "csneg"}


@family(*_OTHERWISE, *_ONE_PLACE)
def choose(m: Machine, i: DecodedInstruction) -> Step:
    name, (d, *sources, condition) = i.name, i.operands
    if name in _ONE_PLACE:
        name, condition = _ONE_PLACE[name], NEGATED[condition]
        sources = (sources or ["zr"]) * 2
    target, (first, second) = _register(d), (_or_zero(m, source) for source in sources)
    otherwise = _OTHERWISE[name]

    def step() -> None:
        holds, a, b = m.holds(condition), first(), otherwise(second())
        if isinstance(holds, WordOp):
            m.r[target] = select(holds, a, b)
        else:
            m.r[target] = a if holds else b

    return step


def _or_zero(m: Machine, name: str) -> Callable[[], Word]:
    if name == "zr":
        return lambda: 0
    n, r = _register(name), m.r
    return lambda: r[n]


def _register(name: str) -> int:
    n = register(name)
    if n in (SP, PC):
        raise Refusal("a form of the instruction that the architecture leaves open")
    return n


@family("bfi")
def insert(m: Machine, i: DecodedInstruction) -> Step:
    d, x = _destination(i.operands[0]), register(i.operands[1])
    lsb, width = number(i.operands[2]), number(i.operands[3])
    mask = ((1 << width) - 1) << lsb

    def step() -> None:
        u, v = m.r[d], m.r[x]
        if isinstance(u, int) and isinstance(v, int):
            m.r[d] = u & ~mask & M32 | v << lsb & mask
        elif width % 8 == 0 and lsb % 8 == 0:
            b = list(bytes_of(u))
            b[lsb // 8 : (lsb + width) // 8] = bytes_of(v)[: width // 8]
            m.r[d] = word_of(tuple(b))
        elif (across := field_across(u, v, lsb, width)) is not None:
            m.r[d] = across
        elif (above := put_above(u, v, lsb, width)) is not None:
            m.r[d] = above
        else:
            kept = logic("and", u, ~mask & M32)
            m.r[d] = logic("orr", kept, logic("and", shifted("lsl", v, lsb), mask))

    return step


def put_above(u: Word, v: Word, place: int, width: int) -> Word | None:
    """Return the lowest ``width`` bits of ``v`` placed above a sum that stays below bit ``place``; None if
    the sum may exceed it.
    """
    if not isinstance(u, LinearSum):
        return None
    least, most = u.bounds()
    upper = field(v, 0, width) if least >= 0 and most < 1 << place else None
    return None if upper is None else add(u, shifted("lsl", upper, place))


@family("ubfx", "sbfx")
def extract(m: Machine, i: DecodedInstruction) -> Step:
    d, x = _destination(i.operands[0]), register(i.operands[1])
    lsb, width = number(i.operands[2]), number(i.operands[3])
    kind = "lsr" if i.name == "ubfx" else "asr"

    def step() -> None:
        v = m.r[x]
        found = field(v, lsb, width) if i.name == "ubfx" else None
        m.r[d] = shifted(kind, shifted("lsl", v, 32 - lsb - width), 32 - width) if found is None else found

    return step


@family("clz", "rev")
def unary(m: Machine, i: DecodedInstruction) -> Step:
    d, x, name = _destination(i.operands[0]), register(i.operands[1]), i.name

    def step() -> None:
        m.r[d] = apply(name, m.r[x])

    return step


@family("asrl", "lsll", "lsrl")
def shift_two(m: Machine, i: DecodedInstruction) -> Step:
    if i.operands[2] in REGISTERS and i.name == "lsll":
        return _shift_two_left(m, *(register(name) for name in i.operands))
    low, high, n = register(i.operands[0]), register(i.operands[1]), number(i.operands[2])
    if not 0 < n < 32:
        raise Refusal("a long shift by that much")

    def step() -> None:
        a, b = m.r[low], m.r[high]
        if i.name == "lsll":
            together = logic("orr", shifted("lsl", b, n), shifted("lsr", a, 32 - n))
            m.r[low], m.r[high] = shifted("lsl", a, n), together
            return
        m.r[low] = long_shift(b, a, n) if i.name == "asrl" else apply("high", b, a, n)
        m.r[high] = shifted("asr" if i.name == "asrl" else "lsr", b, n)

    return step


def _shift_two_left(m: Machine, low: int, high: int, by: int) -> Step:
    # Of integers, by the lowest byte of a register: 64 and above leave nothing.
    def step() -> None:
        a, b, n = m.r[low], m.r[high], m.r[by]
        if not isinstance(a, int) or not isinstance(b, int) or not isinstance(n, int) or n & 0x80:
            raise Refusal("a long shift of what depends on an input, or to the right")
        long = (b << 32 | a) << (n & 0x7F)
        m.r[low], m.r[high] = long & M32, long >> 32 & M32

    return step


@family("sxtb", "uxtb", "sxth", "uxth")
def extend(m: Machine, i: DecodedInstruction) -> Step:
    d, x = _destination(i.operands[0]), register(i.operands[1])
    if len(i.operands) > 2:
        raise Refusal("a rotated extension")
    m_r, of = m.r, EXTENSIONS[i.name]

    def step() -> None:
        m_r[d] = of(m_r[x])

    return step


def _sxtb(v: Word) -> Word:
    return byte_word(bytes_of(v)[0])


def _uxtb(v: Word) -> Word:
    return unsigned_byte(bytes_of(v)[0])


def _sxth(v: Word) -> Word:
    h = halves_of(v)[0]
    return h & M32 if isinstance(h, int) else h


def _uxth(v: Word) -> Word:
    return v & 0xFFFF if isinstance(v, int) else Halves(raw_halves(v)[0], 0)


EXTENSIONS = {"sxtb": _sxtb, "uxtb": _uxtb, "sxth": _sxth, "uxth": _uxth}
