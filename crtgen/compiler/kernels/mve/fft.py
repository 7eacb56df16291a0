"""Transforms of int16 with Helium: a vector holds four complex values, real and imaginary parts alternating.

VQRDMULH divides, and VQRDMLSDH with VQRDMLADHX computes the two parts of a product, all with the rounding of
the definition; values that were divided by four cannot saturate there. In the final separation they could, so
its products have 32 bits. The order of stages is that of float32.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from crtgen.compiler.kernels.asm import EVEN, Function, Routine
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.fft_asm import ComplexLanes, stage
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
from crtgen.network.ops.fft import Rfft, half_turns, turns

__all__ = ["transform"]

_VECTOR, _NUMBER, _LANES = 16, 4, 4  # bytes of a vector and of a complex number; numbers of a vector
_SHARES = {radix: ((1 << 15) - 1) // radix for radix in (2, 4)}


@design(Rfft, types=(DType.INT16,), needs="mve")
def transform(op: Rfft, sig: Signature, target: Target) -> Kernel | None:
    """FFT of int16 whose length is twice a power of four; None for other lengths.

    Also None if the number of inputs before the zero padding is not a multiple of eight.
    """
    plan, inputs = Stages.of(op.length // 2), sig.x.shape[-1]
    if plan is None or plan.first != 4 or not plan.sizes or inputs % (2 * _LANES):
        return None
    count = plan.count
    view = TransformView.of(sig, count, plan.calls(_NUMBER)[1:])
    table = turns(count, DType.INT16)[plan.turns(_LANES)].ravel()
    consts = (
        plan.order(_NUMBER, "bytes to every fourth transform", _LANES),
        Const.of("halves", half_turns(count, DType.INT16).ravel(), 4, "real, imaginary"),
        Const.of("turns", table, 4, "three for each four numbers"),
    )
    once = _first(count, inputs // 2), _apart(count), _second(count)
    walk = StageWalk(_stage(), "numbers", _VECTOR)
    return transform_kernel("mve radix 4", "mve/fft.c.j2", view, consts, once, walk, _NUMBER)


class _Shorts(ComplexLanes):
    """Products of 16 bits, doubled and rounded; each instruction computes one part of them."""

    sums, fetch, store = "i16", "vldrh.u16", "vstrh.16"

    def __init__(self, f: Function) -> None:
        super().__init__(f)
        self.share = f.constant("share", _SHARES[4])

    def load(self, to: str, address: str) -> None:
        _load(self.f, to, address, self.share)

    def turned(self, q: Sequence[str], number: int, address: str, by: str) -> None:
        self.load(q[0], address)
        self.f("vqrdmlsdh.s16", q[number], q[0], by)
        self.f("vqrdmladhx.s16", q[number], q[0], by)


def _load(f: Function, to: str, address: str, share: str) -> None:
    f("vldrh.u16", to, address)
    f("vqrdmulh.s16", to, to, share)


@cache
def _first(count: int, inputs: int) -> Routine:
    # ``first(to, x, order)``: transforms of four numbers that are ``count / 4`` apart. From the number
    # ``inputs`` on there are zeros.
    f = first_function(4, count, ", four at a time")
    apart = count // 4
    to, x, order = f.arguments
    parts = (x, *f.cores("numbers", 3))
    place, at = f.core("place", EVEN), _Shorts(f)
    for before, part in pairwise(parts):
        f.add(part, before, 4 * apart)
    q, places, steps = f.vectors("numbers", 5), f.vector("places"), f.vector("places of four")
    f.number(place, 0)
    f("vidup.u32", steps, place, "#1")
    f.number(place, 4 * count // 4)
    f("vmul.i32", steps, steps, place)
    for rounds, there in inputs_there(4, count, inputs, _LANES):
        with f.low_overhead_loop("numbers", rounds):
            f("ldrh", place, f"[{order}], #2")
            f("add", place, place, to)
            f("vadd.i32", places, steps, place)
            for number, part in enumerate(parts):
                if number < there:
                    at.load(q[number], f"[{part}], #{_VECTOR}")
                else:
                    f("vmov.i32", q[number], "#0")
            for number, made in enumerate(at.four(q[:4], q[4])):
                f("vstrw.32", made, f"[{places}, #{4 * number}]")
    return f.done()


@cache
def _second(count: int) -> Routine:
    # ``second(x, turns)``: the stage behind the first one, whose transforms are a vector each.
    f = Function(
        "second", "void *x", "const int16_t *turns", purpose="Four transforms of 4 numbers become one."
    )
    x, turn = f.arguments
    at = _Shorts(f)
    by, q = f.vectors("turns", 3), f.vectors("numbers", 5)
    for vector in by:
        f("vldrh.u16", vector, f"[{turn}], #{_VECTOR}")
    places = [f"[{x}]", *(f"[{x}, #{_VECTOR * number}]" for number in (1, 2, 3))]
    with f.low_overhead_loop("groups", count // 16):
        made = at.combined(q, places, lambda number: by[number - 1])
        for register, place in zip(made[1:], places[1:], strict=True):
            f("vstrh.16", register, place)
        f("vstrh.16", made[0], f"[{x}], #{4 * _VECTOR}")
    return f.done()


@cache
def _stage() -> Routine:
    return stage("int16_t", "numbers", "vectors", _Shorts)


def _product(f: Function, to: str, x: str, by: str, spare: tuple[str, str]) -> None:
    # ``x`` times turns, with sums of 32 bits; real and imaginary parts of ``by`` change places.
    one, two = spare
    f("vmullb.s16", one, x, by)
    f("vmullt.s16", two, x, by)
    f("vsub.i32", one, one, two)
    f("vrev32.16", by, by)
    f("vrshrnb.i32", to, one, "#15")
    f("vmullb.s16", one, x, by)
    f("vmullt.s16", two, x, by)
    f("vadd.i32", one, one, two)
    f("vrshrnt.i32", to, one, "#15")


@cache
def _apart(count: int) -> Routine:
    # ``apart(x, y, halves)``: all but the ends of a transform of real numbers, by fours from both ends.
    f = apart_function("int16_t", by="fours")
    x, y, halves = f.arguments
    number = f.core("a number", EVEN)
    x_far, y_far = f.cores("numbers from the end", 2)
    near, far, by, total, one, two = f.vectors("numbers", 6)
    back, signs = f.vectors("the other order; signs", 2)
    share = f.constant("share", _SHARES[2])
    f.add(x_far, x, 4 * count - _VECTOR)
    f.add(y_far, y, 4 * count - _VECTOR)
    f("add", x, x, "#4")
    f("add", y, y, "#4")
    f.number(number, 12)
    f("vddup.u32", back, number, "#4")
    f.number(number, 0xFFFF0001)
    f("vdup.32", signs, number)
    with f.low_overhead_loop("numbers", count // 8):
        _load(f, near, f"[{x}], #{_VECTOR}", share)
        f("vldrw.u32", far, f"[{x_far}, {back}]")
        f("sub", x_far, x_far, f"#{_VECTOR}")
        f("vmul.i16", far, far, signs)
        f("vqrdmulh.s16", far, far, share)
        f("vadd.i16", total, near, far)
        f("vsub.i16", near, near, far)
        f("vldrh.u16", by, f"[{halves}], #{_VECTOR}")
        _product(f, far, near, by, (one, two))
        f("vhadd.s16", one, total, far)
        f("vstrh.16", one, f"[{y}], #{_VECTOR}")
        f("vhsub.s16", two, total, far)
        f("vpt.s16", "lt", signs, "zr")
        f("vhsubt.s16", two, far, total)
        f("vstrw.32", two, f"[{y_far}, {back}]")
        f("sub", y_far, y_far, f"#{_VECTOR}")
    return f.done()
