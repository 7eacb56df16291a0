"""Transforms of float32 with Helium: two complex numbers are a vector, real and imaginary parts in turn.

VCMUL twice and a sum are two complex products, rounded as in C; VCADD turns by a quarter as it adds.
The first stage reads neighbours of the input and writes each of their transforms to its place, so that no
number has to be sorted; the second one goes over groups with its turns in registers, all others over numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from crtgen.ir import Array, DType, Signature
from crtgen.kernels.asm import Function, Routine, Runs
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.fft import EIGHTH, Rfft, digit_order, half_turns, radices, turns

__all__ = ["FloatFftView", "transform"]

_PAIR = 16  # bytes of two complex numbers
_QUARTER, _THREE = "#90", "#270"


@dataclass(frozen=True, slots=True)
class FloatFftView:
    """``rows`` of ``inputs`` numbers, transformed as ``count`` complex ones.

    ``stages`` are those behind the second one: bytes of their transforms, how many groups of four of these
    there are, and where their turns begin.
    """

    rows: int
    inputs: int
    count: int
    stages: tuple[tuple[int, int, int], ...]


@design(Rfft, types=(DType.FLOAT32,), needs="mve")
def transform(op: Rfft, sig: Signature, target: Target) -> Kernel | None:
    """Powers of two; None for others, and where zeros begin within two pairs that are read at once."""
    count, inputs = op.length // 2, sig.x.shape[-1]
    first, *others = reversed(radices(count, eight=True))
    if first not in (4, 8) or any(radix != 4 for radix in others) or inputs % 4 or (count // first) % 2:
        return None
    sizes = [first * 4**n for n in range(len(others))]
    starts = np.cumsum([0, *(6 * size for size in sizes)]).tolist()
    stages = tuple((8 * s, count // (4 * s), at) for s, at in zip(sizes[1:], starts[1:], strict=False))
    view = FloatFftView(sig.x.elements // inputs, inputs, count, stages)
    once = [_first(first, count, inputs // 2), _apart(count)]
    counted = Runs.sum(routine.runs() for routine in once)
    if sizes:
        once.append(_second(first, count))
        counted += once[-1].runs()
    if stages:
        once.append(_stage())
        counted += Runs.sum(once[-1].runs(groups=groups, pairs=size // _PAIR) for size, groups, _ in stages)
    return Kernel(
        design="mve radix 4",
        template="mve/fft_float.c.j2",
        view=view,
        consts=_consts(count, first, sizes),
        scratch=8 * count,
        inplace=(InPlace(),) if view.rows == 1 else (),
        work=Work(view.rows * counted)
        .block("row", view.rows)
        .block("stage", view.rows * len(stages), len(stages)),
        routines=tuple(once),
    )


def _consts(count: int, first: int, sizes: list[int]) -> tuple[Const, ...]:
    """Places of the first stage's even transforms; turns, those of two numbers side by side."""
    places = np.empty(count // first, np.int64)
    places[digit_order(count, eight=True)[::first]] = np.arange(count // first)
    consts = [
        Const.of("order", (8 * first * places[::2]).astype(np.uint16), 2, "bytes to every second transform"),
        Const.of("halves", half_turns(count, DType.FLOAT32).ravel(), 4, "real, imaginary"),
    ]
    if sizes:
        table = np.concatenate([_turns_of(count, size) for size in sizes])
        consts.append(Const.of("turns", table.astype(np.float32), 4, "three for each two numbers of a stage"))
    return tuple(consts)


def _turns_of(count: int, size: int) -> Array:
    step = count // (4 * size)
    places = [t * n * step for pair in range(0, size, 2) for t in (1, 2, 3) for n in (pair, pair + 1)]
    return turns(count, DType.FLOAT32)[places].ravel()


def _four(f: Function, x: Sequence[str], spare: str) -> tuple[str, ...]:
    """A transform of four numbers; which registers have it. The second one of ``x`` is free afterwards."""
    a, b, c, d = x
    f("vadd.f32", spare, a, c)
    f("vsub.f32", a, a, c)
    f("vadd.f32", c, b, d)
    f("vsub.f32", b, b, d)
    f("vadd.f32", d, spare, c)
    f("vsub.f32", spare, spare, c)
    f("vcadd.f32", c, a, b, _THREE)
    f("vcadd.f32", a, a, b, _QUARTER)
    return d, c, spare, a


@cache
def _first(radix: int, count: int, inputs: int) -> Routine:
    """``first(to, x, order)``: transforms of ``radix`` numbers that lie ``count / radix`` apart.

    From the number ``inputs`` on there are zeros.
    """
    f = Function(
        "first",
        "void *to",
        "const void *x",
        "const uint16_t *order",
        purpose=f"{count // radix} transforms of {radix} numbers, two at a time.",
        local=4 if radix == 8 else 0,
    )
    apart = count // radix
    whole, rest = divmod(inputs, apart)
    to, x, order = f.arguments
    parts = (x, *f.cores("numbers", radix - 1))
    near, far = f.cores("places", 2)
    f.number(near, 8 * apart)
    for before, part in pairwise(parts):
        f("add", part, before, near)
    eighth = f.constant("cosine of an eighth", int(EIGHTH.view(np.uint32))) if radix == 8 else ""
    for pairs, there in ((rest // 2, whole + 1), ((apart - rest) // 2, whole)):
        if pairs:
            with f.low_overhead_loop("pairs", pairs):
                f("ldrh", near, f"[{order}], #2")
                f("add", near, near, to)
                f.add(far, near, 2 * count)
                columns = _Columns(f, parts[:there], (near, far))
                columns.eight(eighth) if radix == 8 else columns.four()
    return f.done()


class _Columns:
    """Appends the transforms of two neighbours and those that lie behind them, to two ``places``."""

    def __init__(self, f: Function, parts: Sequence[str], places: tuple[str, str]) -> None:
        self.f, self.parts, self.places = f, parts, places
        self.registers = f.vectors("numbers", 8)

    def load(self, register: str, number: int) -> None:
        """Zeros where the input has ended."""
        if number < len(self.parts):
            self.f("vldrw.u32", register, f"[{self.parts[number]}], #{_PAIR}")
        else:
            self.f("vmov.i32", register, "#0")

    def store(self, register: str, number: int) -> None:
        for half, place in enumerate(self.places):
            self.f("vstr", f"d{2 * int(register[1:]) + half}", f"[{place}, #{8 * number}]")

    def four(self) -> None:
        q = self.registers
        for number in range(4):
            self.load(q[number], number)
        for number, made in enumerate(_four(self.f, q[:4], q[4])):
            self.store(made, number)
        self.f.free(*q)

    def eight(self, eighth: str) -> None:
        f, q = self.f, self.registers
        for number in range(4):
            self.load(q[number], 2 * number)
        *even, last = _four(f, q[:4], q[4])
        f("vstrw.32", last, "[sp]")
        a, b, c, d, e = q[0], q[1], q[5], q[6], q[7]
        for number, register in enumerate((a, b, c, d)):
            self.load(register, 2 * number + 1)
        odd = _four(f, (a, b, c, d), e)
        spare = b
        for number, turn in ((1, _THREE), (3, _QUARTER)):
            f("vmul.f32", spare, odd[number], eighth)
            f("vcadd.f32", odd[number], spare, spare, turn)
        for number in (0, 1):
            f("vadd.f32", spare, even[number], odd[number])
            self.store(spare, number)
            f("vsub.f32", even[number], even[number], odd[number])
            self.store(even[number], number + 4)
            spare = odd[number]
        f("vcadd.f32", spare, even[2], odd[2], _THREE)
        self.store(spare, 2)
        f("vcadd.f32", even[2], even[2], odd[2], _QUARTER)
        self.store(even[2], 6)
        f("vldrw.u32", odd[2], "[sp]")
        f("vsub.f32", even[0], odd[2], odd[3])
        self.store(even[0], 3)
        f("vadd.f32", odd[2], odd[2], odd[3])
        self.store(odd[2], 7)
        f.free(*q)


def _turned(f: Function, x: str, by: str, spare: tuple[str, str]) -> None:
    """Times turns; each product and each sum is rounded."""
    f("vcmul.f32", spare[0], x, by, "#0")
    f("vcmul.f32", spare[1], x, by, _QUARTER)
    f("vadd.f32", x, *spare)


@cache
def _second(size: int, count: int) -> Routine:
    """``second(x, turns)``: the stage behind the first one, two numbers of all groups at a time."""
    f = Function(
        "second", "void *x", "const float *turns", purpose=f"Four transforms of {size} numbers become one."
    )
    x, turn = f.arguments
    at = f.core("numbers")
    by, q = f.vectors("turns", 3), f.vectors("numbers", 5)
    places = [f"[{at}, #{8 * size * part}]" for part in range(4)]
    left = f.core("pairs left")
    with f.counted_loop("pairs", left, size // 2):
        for vector in by:
            f("vldrw.u32", vector, f"[{turn}], #{_PAIR}")
        f("mov", at, x)
        with f.low_overhead_loop("groups", count // (4 * size)):
            for number in (1, 2, 3):
                f("vldrw.u32", q[number], places[number])
                _turned(f, q[number], by[number - 1], _rest(q, number))
            f("vldrw.u32", q[0], places[0])
            made = _four(f, q[:4], q[4])
            for register, place in zip(made[1:], places[1:], strict=True):
                f("vstrw.32", register, place)
            f("vstrw.32", made[0], f"[{at}], #{32 * size}")
        f("add", x, x, f"#{_PAIR}")
    return f.done()


def _rest(q: Sequence[str], number: int) -> tuple[str, str]:
    """Two vectors that are free while number 1, 2 or 3 is turned, the first ones before the last."""
    return {1: (q[2], q[3]), 2: (q[3], q[4]), 3: (q[4], q[0])}[number]


@cache
def _stage() -> Routine:
    """``stage(x, turns, bytes, groups)``: groups of four transforms of so many bytes become one each."""
    f = Function(
        "stage",
        "void *x",
        "const float *turns",
        "uint32_t bytes",
        "uint32_t groups",
        purpose="A stage: four transforms of so many bytes become one, group by group.",
    )
    x, turns_, step, left = f.arguments
    parts = (x, *f.cores("numbers", 3))
    turn, pairs = f.cores("turns; pairs", 2)
    by, q = f.vector("a turn"), f.vectors("numbers", 5)
    f("lsr", pairs, step, "#4")
    for before, part in pairwise(parts):
        f("add", part, before, step)
    f("add", step, step, step, "lsl #1")
    with f.loop("groups", "groups") as next_group:
        f("mov", turn, turns_)
        with f.low_overhead_loop("pairs", "pairs", pairs):
            for number in (1, 2, 3):
                f("vldrw.u32", by, f"[{turn}], #{_PAIR}")
                f("vldrw.u32", q[number], f"[{parts[number]}]")
                _turned(f, q[number], by, _rest(q, number))
            f("vldrw.u32", q[0], f"[{x}]")
            for register, part in zip(_four(f, q[:4], q[4]), parts, strict=True):
                f("vstrw.32", register, f"[{part}], #{_PAIR}")
        for part in parts:
            f("add", part, part, step)
        f("subs", left, left, "#1")
        f("bne", next_group)
    return f.done()


@cache
def _apart(count: int) -> Routine:
    """``apart(x, y, halves)``: all but the ends of a transform of real numbers, by twos from both ends."""
    f = Function(
        "apart",
        "const void *x",
        "void *y",
        "const float *halves",
        purpose="Numbers of a transform by twos, from both ends.",
    )
    x, y, halves = f.arguments
    x_far, y_far = f.cores("numbers from the end", 2)
    near, far, by, total, one, two = f.vectors("numbers", 6)
    turned_round, signs = f.vectors("the other order; signs", 2)
    f.add(x_far, x, 8 * count - _PAIR)
    f.add(y_far, y, 8 * count - _PAIR)
    f("add", x, x, "#8")
    f("add", y, y, "#8")
    number = f.constant("a number", 8)
    zero = f.constant("zero", 0)
    f("vdup.32", turned_round, zero)
    f("vmov.32", f"{turned_round}[0]", number)
    f("vdup.32", signs, zero)
    f("mov", number, "#0x80000000")
    f("vmov", f"{signs}[3]", f"{signs}[1]", number, number)
    half = f.constant("one half", 0x3F000000)
    with f.low_overhead_loop("pairs", count // 4):
        f("vldrw.u32", near, f"[{x}], #{_PAIR}")
        f("vldrd.u64", far, f"[{x_far}, {turned_round}]")
        f("sub", x_far, x_far, f"#{_PAIR}")
        f("veor", far, far, signs)
        f("vadd.f32", total, near, far)
        f("vsub.f32", near, near, far)
        f("vldrw.u32", by, f"[{halves}], #{_PAIR}")
        _turned(f, near, by, (one, two))
        f("vadd.f32", one, total, near)
        f("vsub.f32", two, total, near)
        f("vmul.f32", one, one, half)
        f("vmul.f32", two, two, half)
        f("vstrw.32", one, f"[{y}], #{_PAIR}")
        f("veor", two, two, signs)
        f("vstrd.64", two, f"[{y_far}, {turned_round}]")
        f("sub", y_far, y_far, f"#{_PAIR}")
    return f.done()
