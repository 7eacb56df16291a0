"""Transforms of float32 with Helium: a vector holds two complex values, real and imaginary parts alternating.

Two VCMUL and an addition are two complex products, rounded as in C; VCADD rotates by a quarter turn as it
adds. The first stage reads adjacent inputs and writes each of their transforms to its final position, so no
reordering is needed; the second one iterates over groups with its twiddle factors in registers, all others
over values.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.mve.fft_asm import QUARTER, THREE, ComplexLanes, stage
from crtgen.compiler.kernels.shared.transform import (
    Stages,
    StageWalk,
    TransformView,
    apart_function,
    first_function,
    inputs_there,
    transform_kernel,
)
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.fft import EIGHTH, Rfft, half_turns, turns

__all__ = ["transform"]

_NUMBER, _LANES = 8, 2  # bytes of a complex number; numbers of a vector
_PAIR = _NUMBER * _LANES


@design(Rfft, types=(DType.FLOAT32,), needs="mve")
def transform(op: Rfft, sig: Signature, target: Target) -> Kernel | None:
    """FFT of float32 whose length is a power of two.

    None for other lengths, and if the zero padding begins within two pairs that are loaded together.
    """
    plan, inputs = Stages.of(op.length // 2, eight=True), sig.x.shape[-1]
    if plan is None or plan.first not in (4, 8) or inputs % 4 or plan.count // plan.first % 2:
        return None
    count, first = plan.count, plan.first
    view = TransformView.of(sig, count, plan.calls(_NUMBER)[1:])
    once = [_first(first, count, inputs // 2), _apart(count)]
    consts = [
        plan.order(_NUMBER, "bytes to every second transform", _LANES),
        Const.of("halves", half_turns(count, DType.FLOAT32).ravel(), 4, "real, imaginary"),
    ]
    if plan.sizes:
        once.append(_second(first, count))
        table = turns(count, DType.FLOAT32)[plan.turns(_LANES)].ravel().astype(np.float32)
        consts.append(Const.of("turns", table, 4, "three for each two numbers of a stage"))
    walk = StageWalk(_stage(), "pairs", _PAIR)
    return transform_kernel("mve radix 4", "mve/fft_float.c.j2", view, consts, once, walk, _NUMBER)


class _Floats(ComplexLanes):
    sums, fetch, store = "f32", "vldrw.u32", "vstrw.32"

    def load(self, to: str, address: str) -> None:
        self.f(self.fetch, to, address)

    def turned(self, q: Sequence[str], number: int, address: str, by: str) -> None:
        free = {1: (q[2], q[3]), 2: (q[3], q[4]), 3: (q[4], q[0])}
        self.load(q[number], address)
        _turned(self.f, q[number], by, free[number])


@cache
def _first(radix: int, count: int, inputs: int) -> Routine:
    # ``first(to, x, order)``: transforms of ``radix`` numbers that are ``count / radix`` apart. From the
    # number ``inputs`` on there are zeros.
    f = first_function(radix, count, ", two at a time", local=4 if radix == 8 else 0)
    apart = count // radix
    to, x, order = f.arguments
    parts = (x, *f.cores("numbers", radix - 1))
    near, far = f.cores("places", 2)
    f.number(near, 8 * apart)
    for before, part in pairwise(parts):
        f("add", part, before, near)
    eighth = f.constant("cosine of an eighth", bits_of(float(EIGHTH))) if radix == 8 else ""
    for pairs, there in inputs_there(radix, count, inputs, _LANES):
        with f.low_overhead_loop("pairs", pairs):
            f("ldrh", near, f"[{order}], #2")
            f("add", near, near, to)
            f.add(far, near, 2 * count)
            columns = _Columns(f, parts[:there], (near, far))
            columns.transform8(eighth) if radix == 8 else columns.transform4()
    return f.done()


class _Columns(_Floats):
    """Appends the transforms of two adjacent inputs and of those that follow them, to two ``places``."""

    def __init__(self, f: Function, parts: Sequence[str], places: tuple[str, str]) -> None:
        super().__init__(f)
        self.parts, self.places = parts, places
        self.registers = f.vectors("numbers", 8)

    def read(self, register: str, number: int) -> None:
        # Zeros where the input has ended.
        if number < len(self.parts):
            self.load(register, f"[{self.parts[number]}], #{_PAIR}")
        else:
            self.f("vmov.i32", register, "#0")

    def write(self, register: str, number: int) -> None:
        for half, place in enumerate(self.places):
            self.f("vstr", f"d{2 * int(register[1:]) + half}", f"[{place}, #{8 * number}]")

    def transform4(self) -> None:
        q = self.registers
        for number in range(4):
            self.read(q[number], number)
        for number, made in enumerate(self.four(q[:4], q[4])):
            self.write(made, number)
        self.f.free(*q)

    def transform8(self, eighth: str) -> None:
        f, q = self.f, self.registers
        for number in range(4):
            self.read(q[number], 2 * number)
        *even, last = self.four(q[:4], q[4])
        f("vstrw.32", last, "[sp]")
        a, b, c, d, e = q[0], q[1], q[5], q[6], q[7]
        for number, register in enumerate((a, b, c, d)):
            self.read(register, 2 * number + 1)
        odd = self.four((a, b, c, d), e)
        spare = b
        for number, turn in ((1, THREE), (3, QUARTER)):
            f("vmul.f32", spare, odd[number], eighth)
            f("vcadd.f32", odd[number], spare, spare, turn)
        for number in (0, 1):
            f("vadd.f32", spare, even[number], odd[number])
            self.write(spare, number)
            f("vsub.f32", even[number], even[number], odd[number])
            self.write(even[number], number + 4)
            spare = odd[number]
        f("vcadd.f32", spare, even[2], odd[2], THREE)
        self.write(spare, 2)
        f("vcadd.f32", even[2], even[2], odd[2], QUARTER)
        self.write(even[2], 6)
        f("vldrw.u32", odd[2], "[sp]")
        f("vsub.f32", even[0], odd[2], odd[3])
        self.write(even[0], 3)
        f("vadd.f32", odd[2], odd[2], odd[3])
        self.write(odd[2], 7)
        f.free(*q)


def _turned(f: Function, x: str, by: str, spare: tuple[str, str]) -> None:
    # Times turns; each product and each sum is rounded.
    f("vcmul.f32", spare[0], x, by, "#0")
    f("vcmul.f32", spare[1], x, by, QUARTER)
    f("vadd.f32", x, *spare)


@cache
def _second(size: int, count: int) -> Routine:
    # ``second(x, turns)``: the stage behind the first one, two numbers of all groups at a time.
    f = Function(
        "second", "void *x", "const float *turns", purpose=f"Four transforms of {size} numbers become one."
    )
    x, turn = f.arguments
    at = f.core("numbers")
    numbers, by, q = _Floats(f), f.vectors("turns", 3), f.vectors("numbers", 5)
    places = [f"[{at}, #{8 * size * part}]" for part in range(4)]
    left = f.core("pairs left")
    with f.counted_loop("pairs", left, size // 2):
        for vector in by:
            f("vldrw.u32", vector, f"[{turn}], #{_PAIR}")
        f("mov", at, x)
        with f.low_overhead_loop("groups", count // (4 * size)):
            made = numbers.combined(q, places, lambda number: by[number - 1])
            for register, place in zip(made[1:], places[1:], strict=True):
                f("vstrw.32", register, place)
            f("vstrw.32", made[0], f"[{at}], #{32 * size}")
        f("add", x, x, f"#{_PAIR}")
    return f.done()


@cache
def _stage() -> Routine:
    return stage("float", "pairs", "pairs", _Floats)


@cache
def _apart(count: int) -> Routine:
    # ``apart(x, y, halves)``: all but the ends of a transform of real numbers, by twos from both ends.
    f = apart_function("float")
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
