"""The DSP extension: two halves or four bytes in a word."""

from collections.abc import Iterator

from crtgen.proof.checker.algebra.meaning import apply
from crtgen.proof.checker.algebra.value import M32, Byte, Bytes, Word, WordByte, WordOp, signed8
from crtgen.proof.checker.algebra.words import (
    add,
    byte_word,
    bytes_of,
    halves_of,
    low_byte,
    mac,
    pair,
    raw_halves,
    select,
    shifted,
    unsigned_byte,
    word_of,
)
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.data import EXTENSIONS
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.machine import Machine, Step
from crtgen.proof.checker.core.operands import number, register
from crtgen.proof.checker.refusal import Refusal

__all__ = ["as_word"]

# Which halves are multiplied.
_HALVES = {
    "smlabb": ((0, 0),), "smlabt": ((0, 1),), "smlatb": ((1, 0),), "smlatt": ((1, 1),),
    "smulbb": ((0, 0),), "smulbt": ((0, 1),), "smultb": ((1, 0),), "smultt": ((1, 1),),
    "smlad": ((0, 0), (1, 1)), "smladx": ((0, 1), (1, 0)),
    "smuad": ((0, 0), (1, 1)), "smuadx": ((0, 1), (1, 0)),
}  # fmt: skip


def as_word(v: Word) -> Word:
    return v & M32 if isinstance(v, int) else v


@family(*_HALVES)
def products_of_halves(m: Machine, i: DecodedInstruction) -> Step:
    q, which, r = i.operands, _HALVES[i.name], m.r
    d, x, y, acc = register(q[0]), register(q[1]), register(q[2]), register(q[3]) if len(q) > 3 else None

    def step() -> None:
        u, v = halves_of(r[x]), halves_of(r[y])
        total = 0 if acc is None else r[acc]
        for a, b in which:
            total = mac(total, u[a], v[b])
        r[d] = total

    return step


def _rotation(i: DecodedInstruction) -> tuple[tuple[str, ...], int]:
    # Operands without the rotation, and that in bytes.
    last = i.operands[-1]
    if last.startswith("ror "):
        return i.operands[:-1], number(last[4:]) // 8
    return i.operands, 0


@family("sxtb16", "sxtab16", "uxtb16", "uxtab16")
def extend_two(m: Machine, i: DecodedInstruction) -> Step:
    # Extend bytes 0 and 2 of a word to halfwords, after the rotation.
    q, turn = _rotation(i)
    d, x, r = register(q[0]), register(q[-1]), m.r
    to = register(q[1]) if len(q) == 3 else None
    extend = unsigned_byte if i.name[0] == "u" else byte_word

    def step() -> None:
        b = bytes_of(r[x])
        low, high = extend(b[turn & 3]), extend(b[turn + 2 & 3])
        if to is not None:
            u, v = raw_halves(r[to])
            low, high = add(as_word(u), low), add(as_word(v), high)
        r[d] = pair(low, high)

    return step


@family("sxtab", "sxtah", "uxtab", "uxtah")
def extend_and_add(m: Machine, i: DecodedInstruction) -> Step:
    q, turn = _rotation(i)
    if turn:
        raise Refusal("a rotated extension")
    d, to, x, r, of = register(q[0]), register(q[1]), register(q[2]), m.r, EXTENSIONS[i.name.replace("a", "")]

    def step() -> None:
        r[d] = add(r[to], of(r[x]))

    return step


@family("pkhbt", "pkhtb")
def pack(m: Machine, i: DecodedInstruction) -> Step:
    """Combine a halfword of each of two words; the second one may be shifted."""
    q = i.operands
    kind, _, amount = q[3].partition(" #") if len(q) == 4 else ("lsl", "", "0")
    d, x, y, bottom = register(q[0]), register(q[1]), register(q[2]), i.name == "pkhbt"

    by_half = amount == "16" and kind == ("lsl" if bottom else "asr")

    def step() -> None:
        u, v = m.r[x], m.r[y] if by_half else shifted(kind, m.r[y], int(amount))
        take_high = by_half != bottom  # of the second word
        if isinstance(u, Bytes) or isinstance(v, Bytes):
            a, b = bytes_of(u), bytes_of(v)
            half = b[2:] if take_high else b[:2]
            m.r[d] = word_of((*a[:2], *half) if bottom else (*half, *a[2:]))
            return
        p, t = raw_halves(u), raw_halves(v)[take_high]
        m.r[d] = pair(p[0], t) if bottom else pair(t, p[1])

    return step


@family("sadd16", "ssub16")
def two_sums(m: Machine, i: DecodedInstruction) -> Step:
    d, x, y = (register(n) for n in i.operands)
    factor = 1 if i.name == "sadd16" else -1

    def step() -> None:
        u, v = raw_halves(m.r[x]), raw_halves(m.r[y])
        m.greater = "sums" if factor == 1 else "differences", m.r[x], m.r[y]
        m.r[d] = pair(*(add(as_word(a), as_word(b), factor) for a, b in zip(u, v, strict=True)))

    return step


@family("shadd16", "qadd16", "qsub16")
def two_sums_within(m: Machine, i: DecodedInstruction) -> Step:
    """Add or subtract two halfwords each; halve the results, rounding down, or saturate them."""
    d, x, y = (register(n) for n in i.operands)
    factor = -1 if i.name == "qsub16" else 1

    def within(total: Word) -> Word:
        return shifted("asr", total, 1) if i.name == "shadd16" else apply("ssat", 16, total)

    def step() -> None:
        halves = zip(halves_of(m.r[x]), halves_of(m.r[y]), strict=True)
        m.r[d] = pair(*(within(add(as_word(a), as_word(b), factor)) for a, b in halves))

    return step


@family("ssat16", "usat16")
def saturate_two(m: Machine, i: DecodedInstruction) -> Step:
    d, width, x = register(i.operands[0]), number(i.operands[1]), register(i.operands[2])

    def step() -> None:
        m.r[d] = pair(*(apply(i.name[:4], width, as_word(half)) for half in halves_of(m.r[x])))

    return step


@family("ssub8")
def compare_bytes(m: Machine, i: DecodedInstruction) -> Step:
    """Subtract four signed bytes; the GE flags tell which differences are not negative."""
    d, x, y = (register(n) for n in i.operands)

    def step() -> None:
        u, v = m.r[x], m.r[y]
        m.greater = "bytes", u, v
        m.r[d] = word_of(
            tuple(
                low_byte(add(byte_word(a), byte_word(b), -1))
                for a, b in zip(bytes_of(u), bytes_of(v), strict=True)
            )
        )

    return step


@family("sel")
def pick_bytes(m: Machine, i: DecodedInstruction) -> Step:
    d, x, y = (register(n) for n in i.operands)

    def step() -> None:
        if m.greater is None:
            raise Refusal("GE is not followed")
        kind, first, second = m.greater
        if kind != "bytes":
            m.r[d] = pair(*_picked_halves(kind == "sums", first, second, m.r[x], m.r[y]))
            return
        flags = zip(bytes_of(first), bytes_of(second), strict=True)
        both = zip(bytes_of(m.r[x]), bytes_of(m.r[y]), strict=True)
        m.r[d] = word_of(tuple(_picked(a, b, u, v) for (a, b), (u, v) in zip(flags, both, strict=True)))

    return step


def _picked_halves(adds: bool, a: Word, b: Word, x: Word, y: Word) -> Iterator[Word]:
    # The halves of ``x`` where the sum of a and b, or their difference, is not negative, else those of ``y``.
    for p, q, u, v in zip(*(halves_of(w) for w in (a, b, x, y)), strict=True):
        taken = apply("sum_ge", as_word(p), as_word(q), 0) if adds else apply("ge", as_word(p), as_word(q))
        u, v = as_word(u), as_word(v)
        yield select(taken, u, v) if isinstance(taken, WordOp) else u if taken else v


def _picked(a: Byte, b: Byte, u: Byte, v: Byte) -> Byte:
    # ``u`` where a >= b as signed bytes, else ``v``.
    if isinstance(a, int) and isinstance(b, int):
        return u if signed8(a) >= signed8(b) else v
    if _same(a, u) and _same(b, v):
        return WordByte(WordOp("max", byte_word(a), byte_word(b)), 0)
    if _same(a, v) and _same(b, u):
        return WordByte(WordOp("min", byte_word(a), byte_word(b)), 0)
    return low_byte(select(WordOp("ge", byte_word(a), byte_word(b)), byte_word(u), byte_word(v)))


def _same(a: Byte, b: Byte) -> bool:
    if isinstance(a, WordByte) and isinstance(b, WordByte):
        return a.word is b.word and a.index == b.index
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
