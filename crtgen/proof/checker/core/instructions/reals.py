"""Float32 instructions, on the FPU's registers s0 to s31 (the words of q0 to q7) and on Helium's lanes."""

import re
from collections.abc import Callable

import numpy as np

from crtgen.proof.checker.algebra.meaning import apply
from crtgen.proof.checker.algebra.real import word_of_real
from crtgen.proof.checker.algebra.value import M32, Word, WordOp
from crtgen.proof.checker.algebra.words import add, select
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.lanes import put, vector
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.instructions.transfers import aligned_base
from crtgen.proof.checker.core.invalid import flag_word, noted, with_flag
from crtgen.proof.checker.core.machine import PC, SP, Machine, Step
from crtgen.proof.checker.core.operands import address, number, register
from crtgen.proof.checker.refusal import Refusal

__all__: list[str] = []

_SINGLE = re.compile(r"s(\d+)")


def _single(name: str) -> int:
    match = _SINGLE.fullmatch(name)
    if match is None:
        raise Refusal(f"{name} is no register of float32")
    return int(match[1])


def _get(m: Machine, n: int) -> Word:
    return m.q[n >> 2][n & 3]


def _set(m: Machine, n: int, word: Word) -> None:
    m.q[n >> 2] = [word if k == n & 3 else w for k, w in enumerate(m.q[n >> 2])]


def _made(m: Machine, n: int, word: Word) -> None:
    # The result of an operation that may be invalid.
    _set(m, n, word)
    m.made = noted(m.made, word)


def _place(m: Machine, name: str) -> tuple[Callable[[], Word], Callable[[Word], None]]:
    # Read and write access to a register of the core or of the FPU.
    if name[0] == "s" and name[1:].isdigit():
        n = _single(name)
        return lambda: _get(m, n), lambda word: _set(m, n, word)
    r, x = m.r, register(name)
    if x in (SP, PC):
        raise Refusal("a register that is not followed")

    def write(word: Word) -> None:
        r[x] = word

    return lambda: r[x], write


def _expanded(code: int) -> int:
    # The bits of the number that 8 bits of an instruction are (VFPExpandImm).
    top = 0x3E000000 if code & 0x40 else 0x40000000
    return (code & 0x80) << 24 | top | (code & 0x3F) << 19


@family("vmov:s")
def move(m: Machine, i: DecodedInstruction) -> Step:
    q = i.operands
    if q[1][0] == "#":
        n, word = _single(q[0]), _expanded(number(q[1]))
        return lambda: _set(m, n, word)
    half = len(q) // 2
    reads, writes = [_place(m, x)[0] for x in q[half:]], [_place(m, x)[1] for x in q[:half]]

    def step() -> None:
        for write, word in zip(writes, [read() for read in reads], strict=True):
            write(word)

    return step


@family("vldr:s", "vstr:s")
def transfer(m: Machine, i: DecodedInstruction) -> Step:
    n, at = _single(i.operands[0]), address(m, i, i.operands[1:])
    if i.name == "vldr":
        return lambda: _set(m, n, m.memory.load(aligned_base(at())))
    return lambda: m.memory.store(aligned_base(at()), _get(m, n))


@family("vldr", "vstr")
def transfer_pair(m: Machine, i: DecodedInstruction) -> Step:
    # Step of a transfer between two core registers and d0 to d15.
    if i.operands[0][0] != "d":
        raise Refusal("a register that is not followed")
    n, at = 2 * int(i.operands[0][1:]), address(m, i, i.operands[1:])

    def load() -> None:
        a = aligned_base(at())
        _set(m, n, m.memory.load(a))
        _set(m, n + 1, m.memory.load(a + 4))

    def store() -> None:
        a = aligned_base(at())
        m.memory.store(a, _get(m, n))
        m.memory.store(a + 4, _get(m, n + 1))

    return load if i.name == "vldr" else store


@family("vldmia:s", "vstmia:s", "vldmdb:s", "vstmdb:s", "vpush:s", "vpop:s")
def transfer_many(m: Machine, i: DecodedInstruction) -> Step:
    on_stack = i.name in ("vpush", "vpop")
    base = SP if on_stack else register(i.operands[0].strip("!"))
    back, down = on_stack or i.operands[0].endswith("!"), i.name in ("vpush", "vldmdb", "vstmdb")
    match = re.fullmatch(r"\{s(\d+)(?:-s(\d+))?\}", i.operands[-1])
    if not match:
        raise Refusal("registers that are not followed")
    first, last = int(match[1]), int(match[2] or match[1])
    size, loads = 4 * (last - first + 1), i.name in ("vldmia", "vldmdb", "vpop")

    def step() -> None:
        at, after = aligned_base(m.r[base]), add(m.r[base], (-size if down else size) & M32)
        start = at - size if down else at
        if back and down:
            m.write_back(base, after)
        for k in range(first, last + 1):
            a = start + 4 * (k - first)
            if loads:
                _set(m, k, m.memory.load(a))
            else:
                m.memory.store(a, _get(m, k))
        if back and not down:
            m.write_back(base, after)

    return step


_TWO = {
    "vadd": "f_add",
    "vsub": "f_sub",
    "vmul": "f_mul",
    "vdiv": "f_div",
    "vmaxnm": "f_max",
    "vminnm": "f_min",
}
_ONE = {"vneg": "f_neg", "vabs": "f_abs", "vsqrt": "f_sqrt"}


@family(*(f"{name}:s" for name in (*_TWO, *_ONE)))
def arithmetic(m: Machine, i: DecodedInstruction) -> Step:
    if i.name in ("vmaxnm", "vminnm"):
        _known_to_all(m)
    if i.kind != "f32":
        raise Refusal(f"numbers of {i.kind}")
    name = {**_TWO, **_ONE}[i.name]
    d, *rest = (_single(x) for x in i.operands)
    return lambda: _made(m, d, apply(name, *(_get(m, x) for x in rest)))


@family("vfma:s", "vfms:s")
def fused(m: Machine, i: DecodedInstruction) -> Step:
    # Add a product to the register, or subtract it, rounding once.
    if i.kind != "f32":
        raise Refusal(f"numbers of {i.kind}")
    d, x, y = (_single(name) for name in i.operands)

    def step() -> None:
        a = _get(m, x)
        _made(m, d, apply("f_fma", _get(m, d), apply("f_neg", a) if i.name == "vfms" else a, _get(m, y)))

    return step


@family("vnmul:s")
def negative_product(m: Machine, i: DecodedInstruction) -> Step:
    if i.kind != "f32":
        raise Refusal(f"numbers of {i.kind}")
    d, x, y = (_single(name) for name in i.operands)
    return lambda: _made(m, d, apply("f_neg", apply("f_mul", _get(m, x), _get(m, y))))


@family("vmla:s", "vmls:s", "vnmla:s", "vnmls:s")
def chained(m: Machine, i: DecodedInstruction) -> Step:
    """Add a rounded product to the register; the instruction decides both signs."""
    if i.kind != "f32":
        raise Refusal(f"numbers of {i.kind}")
    d, x, y = (_single(name) for name in i.operands)
    less, negative = i.name in ("vmls", "vnmla"), i.name[:3] == "vnm"

    def step() -> None:
        product = apply("f_mul", _get(m, x), _get(m, y))
        own = apply("f_neg", _get(m, d)) if negative else _get(m, d)
        _made(m, d, apply("f_add", own, apply("f_neg", product) if less else product))

    return step


def _known_to_all(m: Machine) -> None:
    # An M7 has these instructions of Armv7E-M, an M4 has not.
    if m.image.architecture == "armv7e-m":
        raise Refusal("an instruction that not every core of the architecture has")


_CONVERSIONS = {
    ("vcvt", "f32.s32"): "f_of",
    ("vcvt", "s32.f32"): "f_int",
    ("vcvtr", "s32.f32"): "f_int_even",
    ("vcvtn", "s32.f32"): "f_int_even",
    ("vcvta", "s32.f32"): "f_int_away",
}


@family("vcvt:s", "vcvtr:s", "vcvtn:s", "vcvta:s")
def convert(m: Machine, i: DecodedInstruction) -> Step:
    if len(i.operands) == 3:
        return _fixed(m, i)
    name = _CONVERSIONS[i.name, i.kind]
    if i.name in ("vcvtn", "vcvta"):
        _known_to_all(m)
    d, x = (_single(operand) for operand in i.operands)
    return lambda: _made(m, d, apply(name, _get(m, x)))


_FIXED = {"s16.f32": ("f_int_16", 16), "s32.f32": ("f_int", 32), "f32.s32": ("f_of", 32)}


def _fixed(m: Machine, i: DecodedInstruction) -> Step:
    # VCVT with bits of a fraction: the multiple of a power of two is exact, or beyond the integers anyway.
    d, x, bits = _single(i.operands[0]), _single(i.operands[1]), number(i.operands[2])
    name, most = _FIXED.get(i.kind, ("", 0))
    if i.name != "vcvt" or d != x or not 0 < bits <= most:
        raise Refusal("a conversion that is not followed")
    if name == "f_of":
        part = word_of_real(np.float32(2.0**-bits))
        return lambda: _made(m, d, apply("f_mul", apply(name, _get(m, x)), part))
    factor = word_of_real(np.float32(2.0**bits))
    return lambda: _made(m, d, apply(name, apply("f_mul", _get(m, x), factor)))


@family("vcmp:s", "vcmpe:s")
def compare(m: Machine, i: DecodedInstruction) -> Step:
    x = _single(i.operands[0])
    y = None if i.operands[1] in ("#0.0", "#0") else _single(i.operands[1])
    if i.kind != "f32":
        raise Refusal(f"numbers of {i.kind}")

    def step() -> None:
        m.compared = _get(m, x), 0 if y is None else _get(m, y)
        if i.name == "vcmpe":  # which is invalid for NaN
            m.made = None

    return step


@family("vmrs:s")
def read_status(m: Machine, i: DecodedInstruction) -> Step:
    """VMRS APSR_nzcv, fpscr: copy the flags of the last comparison. VMRS of a core register: FPSCR, of which
    only the flag of invalid operations is known.
    """
    if i.operands[0] == "APSR_nzcv":
        return lambda: _copy_flags(m)
    n = register(i.operands[0])
    if n in (SP, PC):
        raise Refusal("a register that is not followed")

    def step() -> None:
        flag = flag_word(m.made)
        m.made = () if flag == 0 else m.made
        m.read_flag = (flag, m.made) if isinstance(flag, WordOp) else None
        m.r[n] = with_flag(flag)

    return step


def _copy_flags(m: Machine) -> None:
    if m.compared is None:
        raise Refusal("flags of no comparison")
    m.flags = ("real", *m.compared, 0)


@family("vmsr:s")
def write_status(m: Machine, i: DecodedInstruction) -> Step:
    """VMSR of what was read from FPSCR, with the flag cleared or as it was: the modes stay as they are."""
    n = register(i.operands[1])

    def step() -> None:
        word = m.r[n]
        if not isinstance(word, WordOp) or word.name != "fpscr":
            raise Refusal("FPSCR with another content than it had")
        m.made = () if word.args[0] == 0 else None

    return step


@family("vseleq:s", "vselge:s", "vselgt:s")
def chosen(m: Machine, i: DecodedInstruction) -> Step:
    d, one, other = (_single(name) for name in i.operands)
    _known_to_all(m)

    def step() -> None:
        a, b, holds = _get(m, one), _get(m, other), m.holds(i.name[4:])
        _set(m, d, select(holds, a, b) if isinstance(holds, WordOp) else a if holds else b)

    return step


# ---- Helium: a number in each word of a vector


def _operand(m: Machine, name: str) -> Callable[[], list[Word]]:
    if name[0] == "q":
        q = vector(name)
        return lambda: m.q[q]
    n = register(name)
    return lambda: [m.r[n]] * 4


def _lanes(m: Machine, d: int, words: Callable[[], list[Word]]) -> Step:
    # An operation on lanes may be invalid, too, which is not followed.
    def step() -> None:
        put(m, d, words())
        m.made = None

    return step


@family(*(f"{name}:q" for name in ("vadd", "vsub", "vmul", "vmaxnm", "vminnm")))
def lanes(m: Machine, i: DecodedInstruction) -> Step:
    if i.kind != "f32":
        raise Refusal(f"numbers of {i.kind}")
    name, d = f"{_TWO[i.name]}_fz", vector(i.operands[0])
    x, y = (_operand(m, operand) for operand in i.operands[1:])
    return _lanes(m, d, lambda: [apply(name, u, v) for u, v in zip(x(), y(), strict=True)])


@family("vfma:q")
def fused_lanes(m: Machine, i: DecodedInstruction) -> Step:
    if i.kind != "f32":
        raise Refusal(f"numbers of {i.kind}")
    d = vector(i.operands[0])
    x, y = (_operand(m, operand) for operand in i.operands[1:])
    return _lanes(
        m, d, lambda: [apply("f_fma_fz", c, u, v) for c, u, v in zip(m.q[d], x(), y(), strict=True)]
    )


@family("vcvt:q", "vcvtn:q", "vcvta:q")
def convert_lanes(m: Machine, i: DecodedInstruction) -> Step:
    """Convert lanes between floats and integers; conversions to integers flush subnormals to 0, as Helium
    does.
    """
    name = _CONVERSIONS[i.name, i.kind]
    d, x = (vector(operand) for operand in i.operands)
    return _lanes(m, d, lambda: [apply(name, w) for w in m.q[x]])
