"""Helium's arithmetic: lane by lane, across lanes, and between lanes of different sizes."""

from collections.abc import Callable, Sequence

from crtgen.proof.checker.algebra.meaning import apply
from crtgen.proof.checker.algebra.value import M32, Word, WordOp, signed8
from crtgen.proof.checker.algebra.words import (
    add,
    byte_word,
    bytes_of,
    halves_of,
    low_byte,
    mac,
    mul,
    pair,
    raw_halves,
    select,
    shifted,
    subtract,
    word_of,
)
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.lanes import (
    lane_bytes,
    mask,
    put,
    put_predicated,
    replicated,
    split_lanes,
    vector,
)
from crtgen.proof.checker.core.instructions.multiply import with_product
from crtgen.proof.checker.core.instructions.packed import as_word
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.machine import Machine, Step
from crtgen.proof.checker.core.operands import number, register
from crtgen.proof.checker.refusal import Refusal

__all__: list[str] = []


@family("vmlav", "vmlava", "vmladav", "vmladava", "vaddv", "vaddva")
def across(m: Machine, i: DecodedInstruction) -> Step:
    """Add up all lanes, or products of two vectors, in a register of the core."""
    lane, q = lane_bytes(i.kind), i.operands
    if lane == 1 and i.kind != "s8":
        raise Refusal(f"{i.name} of {i.kind}")
    if lane == 2 and i.kind != "s16":
        raise Refusal(f"{i.name} of {i.kind}")
    d, x, y = register(q[0]), vector(q[1]), vector(q[2]) if len(q) > 2 else None
    keeps = i.name.endswith(("vaddva", "lava", "dava"))

    def step() -> None:
        total = m.r[d] if keeps else 0
        which = mask(m, predicated=False)
        u = [v for w in m.q[x] for v in split_lanes(w, lane)]
        other: Sequence[Word] = (
            [1] * len(u) if y is None else [v for w in m.q[y] for v in split_lanes(w, lane)]
        )
        for k, (a, b) in enumerate(zip(u, other, strict=True)):
            if which >> k * lane & 1:
                total = mac(total, a, b)
        m.r[d] = total

    return step


@family("vmlalv", "vmlalva", "vmlaldav", "vmlaldava")
def long_across(m: Machine, i: DecodedInstruction) -> Step:
    if i.kind != "s16":
        raise Refusal(f"{i.name} of {i.kind}")
    low, high = (register(name) for name in i.operands[:2])
    x, y = (vector(name) for name in i.operands[2:])

    def step() -> None:
        words = (m.r[low], m.r[high]) if i.name.endswith("va") else (0, 0)
        which = mask(m, predicated=False)
        lanes = ([v for w in m.q[q] for v in split_lanes(w, 2)] for q in (x, y))
        for k, (a, b) in enumerate(zip(*lanes, strict=True)):
            if which >> 2 * k & 1:
                words = with_product(m, words, a, b)
        m.r[low], m.r[high] = words

    return step


@family("vmla", "vmlas")
def accumulate(m: Machine, i: DecodedInstruction) -> Step:
    if lane_bytes(i.kind) != 4:
        raise Refusal(f"{i.name} of {i.kind}")
    d, x, z = vector(i.operands[0]), vector(i.operands[1]), register(i.operands[2])

    def step() -> None:
        r = m.r[z]
        if i.name == "vmla":
            put(m, d, [add(w, mul(u, r)) for u, w in zip(m.q[x], m.q[d], strict=True)])
        else:
            put(m, d, [add(mul(u, w), r) for u, w in zip(m.q[x], m.q[d], strict=True)])

    return step


_Lane = Callable[[Word, Word], Word]


def _saturated(bits: int, factor: int) -> _Lane:
    return lambda a, b: apply("ssat", bits, add(a, b, factor))


# Operations that are the same for all lane sizes, modulo 2^bits.
_PLAIN: dict[str, _Lane] = {"vadd": add, "vsub": subtract, "vmul": mul}

_OF_WORDS = ("vmulh", "vrmulh", "vqrdmulh", "vqdmulh")
_SIGNED = {"vmax": "max", "vmin": "min"}
_UNSIGNED = {"vmax": "umax", "vmin": "umin"}


@family(*_PLAIN, *_OF_WORDS, *_SIGNED, "vqadd", "vqsub", "vrshl", "vshr", "vrshr", "vshl", "vaddt")
def lane_by_lane(m: Machine, i: DecodedInstruction) -> Step:
    q = (i.operands[0], *i.operands) if len(i.operands) == 2 else i.operands
    d, x, lane = vector(q[0]), vector(q[1]), lane_bytes(i.kind)
    name, write = (i.name, put) if i.name != "vaddt" else ("vadd", put_predicated)
    of, raw = _operation(name, i.kind, lane, q[2]), name in _PLAIN
    other = _second(m, q[2], lane)

    def step() -> None:
        write(m, d, [_each(of, u, v, lane, raw) for u, v in zip(m.q[x], other(), strict=True)])

    return step


def _second(m: Machine, name: str, lane: int) -> Callable[[], Sequence[Word]]:
    if name[0] == "#":
        return lambda: (0, 0, 0, 0)
    if name[0] == "q":
        y = vector(name)
        return lambda: m.q[y]
    z = register(name)
    return lambda: [replicated(m.r[z], lane)] * 4


def _each(of: _Lane, u: Word, v: Word, lane: int, raw: bool) -> Word:
    if lane == 4:
        return of(u, v)
    if lane == 2:
        split = raw_halves if raw else halves_of
        a, b = split(u), split(v)
        return pair(*(of(as_word(s), as_word(t)) for s, t in zip(a, b, strict=True)))
    both = zip(bytes_of(u), bytes_of(v), strict=True)
    return word_of(tuple(low_byte(of(byte_word(s), byte_word(t))) for s, t in both))


def _operation(name: str, kind: str, lane: int, last: str) -> _Lane:
    # The operation on words that hold a signed lane each.
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _OF_WORDS and lane == 4 and (kind[0] == "s" or name == "vmulh"):
        operation = name if kind[0] == "s" else "umulhi"
        return lambda a, b: apply(operation, a, b)
    if name in _SIGNED and (kind[0] == "s" or lane == 4):
        operation = _SIGNED[name] if kind[0] == "s" else _UNSIGNED[name]
        return lambda a, b: apply(operation, a, b)
    if name in ("vqadd", "vqsub") and lane < 4 and kind[0] == "s":
        return _saturated(8 * lane, 1 if name == "vqadd" else -1)
    if name in ("vqadd", "vqsub") and kind == "u32":
        return _sum_within_32_bits if name == "vqadd" else _difference_from_0
    return _shift(name, kind, last)


def _sum_within_32_bits(a: Word, b: Word) -> Word:
    total = add(a, b)
    return _if(apply("cs", total, a), total, M32)


def _difference_from_0(a: Word, b: Word) -> Word:
    return _if(apply("cs", a, b), subtract(a, b), 0)


def _if(holds: Word, a: Word, b: Word) -> Word:
    if isinstance(holds, int):
        return a if holds else b
    assert isinstance(holds, WordOp)  # conditions are operations
    return select(holds, a, b)


def _shift(name: str, kind: str, last: str) -> _Lane:
    if name == "vrshl" and kind == "s32":
        return lambda a, n: apply("vrshl" if isinstance(n, int) else "vrshl_any", a, n)
    if name == "vshl" and last[0] != "#":
        return _by_amount(kind)
    if last[0] != "#":
        raise Refusal(f"{name} of {kind} by a vector")
    n = number(last)
    if name == "vshl":
        return lambda a, _: shifted("lsl", a, n)
    if name == "vshr" and kind[0] == "s":
        return lambda a, _: shifted("asr", a, min(n, 31))
    if name == "vshr" and kind == "u32":
        return lambda a, _: shifted("lsr", a, n) if n < 32 else 0
    if name == "vrshr" and kind[0] == "s":
        return lambda a, _: apply("vrshl", a, -n & 255)
    raise Refusal(f"{name} of {kind}")


def _by_amount(kind: str) -> _Lane:
    # By a register or by lanes: to the left, or to the right if negative.
    if lane_bytes(kind) != 4:
        raise Refusal(f"a shift of {kind} by a register")

    def of(a: Word, n: Word) -> Word:
        if not isinstance(n, int):
            raise Refusal("a shift that depends on an input")
        amount = signed8(n)
        if kind[0] == "s" and amount < 0:
            return shifted("asr", a, min(-amount, 31))
        return shifted("lsl" if amount >= 0 else "lsr", a, abs(amount)) if abs(amount) < 32 else 0

    return of


@family("vsri", "vsli")
def shift_in(m: Machine, i: DecodedInstruction) -> Step:
    """Shift lanes by whole bytes and insert them into the destination, whose other bytes are kept (VSLI,
    VSRI).
    """
    d, x, n = vector(i.operands[0]), vector(i.operands[1]), number(i.operands[2]) // 8
    if i.kind not in ("32", "16") or number(i.operands[2]) % 8:
        raise Refusal(f"{i.name} of {i.kind} by {i.operands[2]}")

    def one(u: Word, old: Word) -> Word:
        if i.kind == "16":
            p, q = bytes_of(u), bytes_of(old)
            left = i.name == "vsli"
            return word_of((q[0], p[0], q[2], p[2]) if left else (p[1], q[1], p[3], q[3]))
        if n == 2:
            (low, high), (a, b) = raw_halves(u), raw_halves(old)
            return pair(high, b) if i.name == "vsri" else pair(a, low)
        p, q = bytes_of(u), bytes_of(old)
        return word_of(p[n:] + q[4 - n :] if i.name == "vsri" else q[:n] + p[: 4 - n])

    return lambda: put(m, d, [one(u, w) for u, w in zip(m.q[x], m.q[d], strict=True)])


@family("vmullb", "vmullt")
def wide_product(m: Machine, i: DecodedInstruction) -> Step:
    """Multiply the lower (or upper) halfwords of each word; products are words."""
    d, x, y = (vector(q) for q in i.operands)
    if i.kind != "s16":
        raise Refusal(f"{i.name} of {i.kind}")
    top = i.name[-1] == "t"

    def one(u: Word, v: Word) -> Word:
        return mul(as_word(halves_of(u)[top]), as_word(halves_of(v)[top]))

    return lambda: put(m, d, [one(u, v) for u, v in zip(m.q[x], m.q[y], strict=True)])


@family("vmovlb", "vmovlt")
def widen(m: Machine, i: DecodedInstruction) -> Step:
    if i.kind != "s16":
        raise Refusal(f"{i.name} of {i.kind}")
    d, x, top = vector(i.operands[0]), vector(i.operands[1]), i.name[-1] == "t"
    return lambda: put(m, d, [as_word(halves_of(w)[top]) for w in m.q[x]])


_NARROW = [f"v{q}{name}n{part}" for q in ("", "q") for name in ("mov", "shr", "rshr") for part in "bt"]


@family(*_NARROW)
def narrow(m: Machine, i: DecodedInstruction) -> Step:
    """Narrow each lane to half its width (saturated with Q) into the lower (B) or upper (T) half of the lane
    of Qd.
    """
    name, kind, lane = i.name, i.kind, lane_bytes(i.kind)
    d, x, top, saturates = vector(i.operands[0]), vector(i.operands[1]), name[-1] == "t", name[1] == "q"
    if lane == 1 or (saturates and kind[0] != "s"):
        raise Refusal(f"{name} of {kind}")
    n = number(i.operands[2]) if len(i.operands) > 2 else 0
    rounds, bits = "rshr" in name, 4 * lane

    def one(v: Word) -> Word:
        if n:
            v = apply("vrshl", v, -n & 255) if rounds else shifted("asr", v, n)
        return apply("ssat", bits, v) if saturates else v

    def step() -> None:
        put(m, d, [_inserted(one, u, old, lane, top) for u, old in zip(m.q[x], m.q[d], strict=True)])

    return step


def _inserted(one: Callable[[Word], Word], u: Word, old: Word, lane: int, top: bool) -> Word:
    if lane == 4:
        low, high = raw_halves(old)
        return pair(low, one(u)) if top else pair(one(u), high)
    b = list(bytes_of(old))
    for k, half in enumerate(halves_of(u)):
        b[2 * k + top] = low_byte(one(as_word(half)))
    return word_of(tuple(b))


@family("vmaxv", "vminv")
def extreme(m: Machine, i: DecodedInstruction) -> Step:
    """Compute the maximum or minimum of a core register and all lanes of a vector of signed bytes."""
    if i.kind != "s8":
        raise Refusal(f"{i.name} of {i.kind}")
    d, x, of = register(i.operands[0]), vector(i.operands[1]), i.name[1:4]

    def step() -> None:
        which = mask(m, predicated=False)
        v = byte_word(bytes_of(m.r[d])[0])
        for k, b in enumerate(b for w in m.q[x] for b in bytes_of(w)):
            if which >> k & 1:
                v = apply(of, v, byte_word(b))
        m.r[d] = v

    return step


@family("vabs", "vneg")
def sign(m: Machine, i: DecodedInstruction) -> Step:
    d, x, lane = vector(i.operands[0]), vector(i.operands[1]), lane_bytes(i.kind)

    def one(v: Word, _: Word) -> Word:
        return apply("max", v, subtract(0, v)) if i.name == "vabs" else subtract(0, v)

    return lambda: put(m, d, [_each(one, w, w, lane, raw=False) for w in m.q[x]])
