"""Helium's registers: predication, moves between them and the core's, lanes as bytes, halves or words.

An instruction writes only those of a register's 16 bytes that two masks let through:

- **The tail.** In a loop that LETP ends, LR counts the elements that are left, and ``m.tail`` is the bytes of
  one. If they do not fill the last vector, the bytes beyond them take no part. LR is a number here: how often
  a loop runs never depends on an input.
- **The predicate**, in blocks of VPST and VPT: a bit per byte. It is the number ``m.predicate``, or, after a
  comparison of values that depend on inputs, ``m.conditions``: a word per lane that says if it takes part.

Bytes that take no part keep what they held, which may be another symbol. With two elements of 32 bits left,
``1, 2, 3, 4`` over ``a, b, c, d`` gives ``1, 2, c, d``. Under conditions both contents stay in the result,
lane by lane: ``select(condition, new, old)``.
"""

import re
from collections.abc import Callable, Sequence

from crtgen.proof.checker.algebra.meaning import apply
from crtgen.proof.checker.algebra.value import M32, Byte, Halves, Word, WordOp, signed8
from crtgen.proof.checker.algebra.words import (
    add,
    byte_word,
    bytes_of,
    halves_of,
    logic,
    pair,
    raw_halves,
    select,
    word_of,
)
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.instructions.transfers import aligned_base
from crtgen.proof.checker.core.machine import LR, PREDICATED, SP, Machine, Step
from crtgen.proof.checker.core.operands import number, register
from crtgen.proof.checker.refusal import Refusal

__all__ = ["lane_bytes", "mask", "put", "put_predicated", "replicated", "split_lanes", "vector"]


def vector(name: str) -> int:
    match = re.fullmatch(r"q([0-7])", name)
    if not match:
        raise Refusal(f"{name} is no vector register")
    return int(match[1])


def lane_bytes(kind: str) -> int:
    """Return the bytes of a lane of ``s8``, ``u16``, ``i32`` or ``32``."""
    match = re.fullmatch(r"[suif]?(8|16|32)", kind)
    if not match or kind[0] == "f":
        raise Refusal(f"lanes of {kind}")
    return int(match[1]) // 8


def mask(m: Machine, predicated: bool) -> int:
    # Return the mask of the 16 bytes that the instruction may write.
    all_of = 0xFFFF
    if m.tail:
        left = m.r[LR]
        assert isinstance(left, int)  # dlstp has seen to that
        all_of = (
            1 << min(16, left * m.tail)
        ) - 1  # one bit per byte: the lowest ones are of the first elements
    return all_of & known_predicate(m) if predicated else all_of


def known_predicate(m: Machine) -> int:
    """Return the predicate of all 16 bytes as an integer. Raises ``Refusal`` if it depends on inputs."""
    if m.conditions is not None:
        raise Refusal("a predicate depends on an input")
    if m.predicate is None:
        raise Refusal("a predicate that nothing set, or that two ways set otherwise")
    return m.predicate


def put_predicated(m: Machine, d: int, words: Sequence[Word], others: Sequence[Word] | None = None) -> None:
    """Write ``words`` to the lanes of a vector register whose predicate holds, and ``others`` to the rest.

    By default the others keep their contents.
    """
    if m.conditions is None:
        which = mask(m, predicated=True)
        holds: Sequence[Word] = [which >> 4 * k & 1 for k in range(4)]
        if any(which >> 4 * k & 15 not in (0, 15) for k in range(4)):
            _put_bytes(m, d, words, m.q[d] if others is None else others, which)
            return
        whole = True
    else:
        holds, size = m.conditions
        whole = size == 4 and not m.tail
    if not whole:
        raise Refusal("a predicated operation on parts of words")
    both = zip(holds, words, m.q[d] if others is None else others, strict=True)
    m.q[d] = [select(h, new, old) if isinstance(h, WordOp) else new if h else old for h, new, old in both]


def put(m: Machine, d: int, words: Sequence[Word]) -> None:
    """Write a vector register; bytes beyond the tail of a loop keep their contents."""
    which = mask(m, predicated=False)
    if which == 0xFFFF:
        m.q[d] = list(words)
        return
    _put_bytes(m, d, words, m.q[d], which)


def _put_bytes(m: Machine, d: int, words: Sequence[Word], others: Sequence[Word], which: int) -> None:
    # Bytes of ``words`` where ``which`` has a bit, of ``others`` elsewhere. Halves stay halves.
    m.q[d] = [_mixed(which >> 4 * k & 15, u, v) for k, (u, v) in enumerate(zip(words, others, strict=True))]


def _mixed(which: int, new: Word, old: Word) -> Word:
    if which in (0, 15):
        return new if which else old
    if which in (3, 12) and isinstance(new, Halves):
        (a, b), (c, d) = raw_halves(new), raw_halves(old)
        return pair(a, d) if which == 3 else pair(c, b)
    both = zip(bytes_of(new), bytes_of(old), strict=True)
    return word_of(tuple(b if which >> i & 1 else c for i, (b, c) in enumerate(both)))


def _words(b: Sequence[Byte]) -> list[Word]:
    return [word_of(tuple(b[4 * i : 4 * i + 4])) for i in range(4)]


@family("vctp")
def tail_predicate(m: Machine, i: DecodedInstruction) -> Step:
    n, size = register(i.operands[0]), lane_bytes(i.kind)

    def step() -> None:
        left = m.r[n]
        if not isinstance(left, int):
            raise Refusal("a predicate depends on an input")
        m.predicate = (1 << min(16, left * size)) - 1 & mask(m, predicated=False)
        m.conditions = None

    return step


@family(*(f"v{kind}{'t' * n}" for kind in ("ps", "p") for n in (1, 2, 3, 4)), "vcmp")
def predicate_block(m: Machine, i: DecodedInstruction) -> Step:
    """Begin a block of VPST, VPT or VCMP: the next one to four instructions must be loads and stores that use
    the predicate.

    No other code may enter the block: each of them checks that it is the next one.
    """
    at, compares = i.following, not i.name.startswith("vps")
    for _ in range(i.name.count("t")):
        after = m.image.instructions.get(at)
        if after is None or not PREDICATED.fullmatch(after.name):
            raise Refusal("a predicated operation that is not followed")
        at = after.following
    after = m.image.instructions.get(at)
    if after is not None and PREDICATED.fullmatch(after.name) and i.name != "vcmp":
        raise Refusal("a block of predicated operations that is longer than it says")
    block = i.following if i.name != "vcmp" else None

    def begin() -> None:
        m.block = block

    if not compares:
        return begin
    condition, x, size = i.operands[0], vector(i.operands[1]), lane_bytes(i.kind)
    others = _compared_with(m, i.operands[2], size)

    def step() -> None:
        lanes = zip((a for w in m.q[x] for a in split_lanes(w, size)), others(), strict=True)
        holds = [apply(condition, _word(a), _word(b)) for a, b in lanes]
        known = [h for h in holds if isinstance(h, int)]
        m.conditions, m.block = None, block
        if len(known) < len(holds):
            if m.tail:
                raise Refusal("a predicate that depends on an input, in a loop with tail predication")
            m.conditions = (holds, size)
            return
        bits = sum(((1 << size) - 1) << k * size for k, h in enumerate(known) if h)
        m.predicate = bits & mask(m, predicated=False)

    return step


def _compared_with(m: Machine, name: str, size: int) -> Callable[[], list[Word]]:
    # The lanes of a vector, or a register in each of them.
    if name[0] == "q":
        q = vector(name)
        return lambda: [lane for w in m.q[q] for lane in split_lanes(w, size)]
    y = None if name == "zr" else register(name)
    return lambda: [*split_lanes(replicated(0 if y is None else m.r[y], size), size)] * 4


def _word(v: Word) -> Word:
    return v & M32 if isinstance(v, int) else v


def split_lanes(w: Word, size: int) -> tuple[Word, ...]:
    if size == 4:
        return (w,)
    if size == 2:
        return halves_of(w)
    return tuple(signed8(b) if isinstance(b, int) else byte_word(b) for b in bytes_of(w))


@family("vmrs", "vmsr")
def predicate_register(m: Machine, i: DecodedInstruction) -> Step:
    to_core = i.name == "vmrs"
    n, special = register(i.operands[0 if to_core else 1]), i.operands[1 if to_core else 0]
    if special != "p0":
        raise Refusal(f"the register {special}")

    def step() -> None:
        if to_core:
            m.r[n] = known_predicate(m)
            return
        v = m.r[n]
        if not isinstance(v, int):
            raise Refusal("a predicate depends on an input")
        m.predicate, m.conditions = v & 0xFFFF, None

    return step


@family("vpsel")
def pick_lanes(m: Machine, i: DecodedInstruction) -> Step:
    d, x, y = (vector(q) for q in i.operands)

    def step() -> None:
        if m.conditions is not None:
            put_predicated(m, d, m.q[x], m.q[y])
            return
        u, v = ([b for w in m.q[n] for b in bytes_of(w)] for n in (x, y))
        which = known_predicate(m)
        put(m, d, _words([u[k] if which >> k & 1 else v[k] for k in range(16)]))

    return step


@family("vpush", "vpop", "vstmia", "vldmia")
def move_block(m: Machine, i: DecodedInstruction) -> Step:
    on_stack = i.name in ("vpush", "vpop")
    base = SP if on_stack else register(i.operands[0].strip("!"))
    back = on_stack or i.operands[0].endswith("!")
    match = re.fullmatch(r"\{d(\d+)(?:-d(\d+))?\}", i.operands[-1])
    if not match:
        raise Refusal("registers that are not followed")
    first, last = int(match[1]), int(match[2] or match[1])
    size, down = 8 * (last - first + 1), i.name == "vpush"

    def step() -> None:
        at, after = aligned_base(m.r[base]), add(m.r[base], (-size if down else size) & M32)
        start = at - size if down else at
        if back and down:
            m.write_back(base, after)
        for k in range(2 * first, 2 * last + 2):
            a = start + 4 * (k - 2 * first)
            if i.name in ("vpush", "vstmia"):
                m.memory.store(a, m.q[k >> 2][k & 3])
            else:
                m.q[k >> 2] = [m.memory.load(a) if n == k & 3 else w for n, w in enumerate(m.q[k >> 2])]
        if back and not down:
            m.write_back(base, after)

    return step


# A word of a vector register, as objdump names it: q0 is d0 and d1.
_WORD = re.compile(r"d(\d+)\[([01])\]")

_LANE = re.compile(r"q([0-7])\[([0-3])\]")


@family("vmov")
def move(m: Machine, i: DecodedInstruction) -> Step:
    q = i.operands
    if len(q) == 4:
        return _move_two(m, q)
    lane = _WORD.fullmatch(q[0])
    if lane and i.kind == "32":
        n, k, x = int(lane[1]) >> 1, 2 * (int(lane[1]) & 1) + int(lane[2]), register(q[1])

        def one() -> None:
            m.q[n] = [m.r[x] if j == k else w for j, w in enumerate(m.q[n])]

        return one
    d = vector(q[0])
    if q[1][0] == "#":
        word = replicated(number(q[1]), lane_bytes(i.kind))
        return lambda: put(m, d, [word] * 4)
    x = vector(q[1])
    return lambda: put(m, d, m.q[x])


def _move_two(m: Machine, q: Sequence[str]) -> Step:
    # VMOV q0[2], q0[0], r1, r2: the first register is the lane with the lower number. Or the other way.
    to_core = not q[0].startswith("q")
    lanes = [_LANE.fullmatch(name) for name in (q[2:] if to_core else q[:2])]
    if lanes[0] is None or lanes[1] is None:
        raise Refusal("lanes that are not followed")
    n = int(lanes[0][1])
    high, low = int(lanes[0][2]), int(lanes[1][2])
    x, y = (register(name) for name in (q[:2] if to_core else q[2:]))

    def step() -> None:
        if to_core:
            m.r[x], m.r[y] = m.q[n][low], m.q[n][high]
            return
        w = list(m.q[n])
        w[low], w[high] = m.r[x], m.r[y]
        m.q[n] = w

    return step


@family("vorr", "vand", "veor")
def logical(m: Machine, i: DecodedInstruction) -> Step:
    d, x, y = (vector(q) for q in i.operands)
    if x == y and i.name == "vorr":
        return lambda: put(m, d, m.q[x])
    return lambda: put(m, d, [logic(i.name[1:], u, v) for u, v in zip(m.q[x], m.q[y], strict=True)])


def replicated(v: Word, size: int) -> Word:
    if size == 4:
        return v & M32 if isinstance(v, int) else v
    if isinstance(v, int):
        return (v & 0xFFFF) * 0x10001 if size == 2 else (v & 0xFF) * 0x1010101
    if size == 2:
        half = raw_halves(v)[0]
        return pair(half, half)
    return word_of((bytes_of(v)[0],) * 4)


@family("vdup")
def duplicate(m: Machine, i: DecodedInstruction) -> Step:
    d, x, size = vector(i.operands[0]), register(i.operands[1]), lane_bytes(i.kind)
    return lambda: put(m, d, [replicated(m.r[x], size)] * 4)


@family("vidup", "vddup", "viwdup", "vdwdup")
def count_lanes(m: Machine, i: DecodedInstruction) -> Step:
    """Fill lanes with an arithmetic sequence: upwards, downwards, or wrapping at a limit. The base register
    advances.
    """
    d, base, size = vector(i.operands[0]), register(i.operands[1]), lane_bytes(i.kind)
    limit = register(i.operands[2]) if "w" in i.name else None
    step_by = number(i.operands[-1]) * (-1 if i.name[1] == "d" else 1)

    def step() -> None:
        at, around = m.r[base], 0 if limit is None else m.r[limit]
        if not isinstance(at, int) or not isinstance(around, int):
            raise Refusal("numbers of lanes that depend on an input")
        if limit is not None and (at % step_by or around % step_by or at >= around):
            raise Refusal("numbers of lanes beyond their limit")
        lanes = []
        for _ in range(16 // size):
            lanes.append(at)
            if around and step_by < 0 and at == 0:
                at = around
            at = (at + step_by) & M32
            if around and at == around:
                at = 0
        m.r[base] = at
        numbers = b"".join((n & (1 << 8 * size) - 1).to_bytes(size, "little") for n in lanes)
        put(m, d, [int.from_bytes(numbers[k : k + 4], "little") for k in range(0, 16, 4)])

    return step


@family("vshlc")
def shift_all(m: Machine, i: DecodedInstruction) -> Step:
    """Shift all 128 bits left by up to 4 bytes; the bytes that enter come from a core register, those that
    leave go to it.
    """
    d, n = vector(i.operands[0]), register(i.operands[1])
    count = number(i.operands[2]) // 8
    if number(i.operands[2]) % 8 or m.tail:
        raise Refusal("a shift of a vector that is not by bytes")

    def step() -> None:
        if count == 4:
            m.q[d], m.r[n] = [m.r[n], *m.q[d][:3]], m.q[d][3]
            return
        moved = [*bytes_of(m.r[n])[:count], *(b for w in m.q[d] for b in bytes_of(w))]
        m.q[d], m.r[n] = _words(moved[:16]), word_of((*moved[16:], *(0,) * (4 - count)))

    return step
