"""Sums, differences, squared differences and products with Helium; operands may be broadcast or constant."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from crtgen.compiler.kernels.arithmetic.sums import SumForm, every_sum, quants_of
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import (
    ElementSteps,
    Operands,
    StoreForm,
    elementwise,
    narrow,
    requantised,
    rescaled,
    spread,
    walk,
)
from crtgen.network.ir import DType, Quant, Signature
from crtgen.network.ops import INT8, Add, AddParams, Mul, Sub
from crtgen.network.ops.arithmetic import SquaredDifference
from crtgen.network.ops.binary import FusedAddParams
from crtgen.network.ops.scheme import is_plain

__all__ = ["exact_sums", "product", "solve_sum", "squared_difference", "sums"]

_NARROWEST, _WIDEST = 1, 23  # shifts of one or two narrowing instructions
_TRIES = 4  # shifts tried from the largest one down
_HALF = (1 << 30, 0)  # multiplier and shift of a factor of 1/2


@design(Add, Sub, types=(DType.INT8,), needs="mve", weights=None)
def sums(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """Sums and differences of int8 with factors found by a search; None if no factors are exact."""
    form = solve_sum(op, quants_of(sig))
    if form is None:
        return None
    params, way = op.parameters(sig), walk(sig)
    clamp = StoreForm((params.act_min, params.act_max))
    factors = (form.factors[way.order[0]], form.factors[way.order[1]])
    return elementwise("mve sum", sig, target, way, lambda o: _sum(o, form, factors, way.still), clamp)


def _sum(o: Operands, form: SumForm, factors: tuple[int, int], still: bool) -> ElementSteps:
    f, (first, second) = o.f, o.inputs
    # both narrowing instructions round: what they add is taken off before
    shift = min(form.shift, 16)
    constant = form.constant - (1 << (form.shift - 1))
    constant -= (1 << (shift - 1)) if form.shift > shift else 0
    x, factor = f.vector("elements"), f.vector("factor of the first operand")
    spread(f, factor, factors[0])
    other = f.constant("factor of the second operand", factors[1])
    start = f.constant("constant", constant)
    more = f.core("the second operand") if still else f.vector("the second operand")

    def entry() -> None:
        if still:
            f("ldrsb", more, f"[{second}]")
            f("mla", more, more, other, start)

    def vector() -> str:
        f("vldrb.s32", x, f"[{first}], #4")
        if still:
            f("vmlas.s32", x, factor, more)
        else:
            f("vldrb.s32", more, f"[{second}], #4")
            f("vmlas.s32", x, factor, start)
            f("vmla.s32", x, more, other)
        f("vqrshrnb.s32", x, x, f"#{shift}")
        if form.shift > shift:
            f("vqrshrnb.s16", x, x, f"#{form.shift - shift}")
        else:
            f("vqmovnb.s16", x, x)
        return x

    return ElementSteps(vector, entry)


@design(Add, Sub, types=(DType.INT8,), needs="mve", weights=None)
def exact_sums(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """Sums and differences of int8 with all of TFLite's roundings; None as in ``elementwise``."""
    p, way = op.parameters(sig), walk(sig)
    form = StoreForm((p.act_min, p.act_max))
    if isinstance(p, FusedAddParams):
        fused = p
        return elementwise(
            "mve fused sum", sig, target, way, lambda o: _fused_sum(o, fused, way.order, way.still), form
        )
    return elementwise(
        "mve exact sum", sig, target, way, lambda o: _exact_sum(o, op.name, p, way.order, way.still), form
    )


def _fused_sum(o: Operands, p: FusedAddParams, order: tuple[int, ...], still: bool) -> ElementSteps:
    # In float32; the second operand of the operator is multiplied first.
    f, (first, second) = o.f, o.inputs
    x, y, total = f.vector("elements"), f.vector("the second operand"), f.vector("sums")
    terms = dict(zip(order, (x, y), strict=True))
    factors = [f.constant("factor", int(np.float32(n).view(np.int32))) for n in p.factors]
    start = f.constant("start", int(np.float32(p.start).view(np.int32)))
    more, less = f.constant("128", 128), f.constant("-128", -128)
    value = f.core("the second operand") if still else ""

    def entry() -> None:
        if still:
            f("ldrsb", value, f"[{second}]")

    def vector() -> str:
        f("vldrb.s32", x, f"[{first}], #4")
        if still:
            f("vdup.32", y, value)
        else:
            f("vldrb.s32", y, f"[{second}], #4")
        f("vdup.32", total, start)
        for number in (1, 0):
            f("vadd.i32", terms[number], terms[number], more)
            f("vcvt.f32.s32", terms[number], terms[number])
            f("vfma.f32", total, terms[number], factors[number])
        f("vcvtn.s32.f32", total, total)
        f("vadd.i32", total, total, less)
        narrow(f, total)
        return total

    return ElementSteps(vector, entry)


def _exact_sum(o: Operands, name: str, p: AddParams, order: tuple[int, ...], still: bool) -> ElementSteps:
    f, (first, second) = o.f, o.inputs
    scales = (
        (p.input1_offset, p.input1_multiplier, p.input1_shift),
        (p.input2_offset, p.input2_multiplier, p.input2_shift),
    )
    vectors = f.vectors("elements of both operands", 2)
    spare = f.vector("signs")
    terms = [
        (q, f.constant("offset", scales[i][0]), f.constant("multiplier", scales[i][1]), scales[i][2])
        for q, i in zip(vectors, order, strict=True)
    ]
    multiplier, zero = (
        f.constant("multiplier", p.output_multiplier),
        f.constant("zero point", p.output_offset),
    )
    value = f.core("the second operand") if still else ""
    x, y = vectors

    def entry() -> None:
        if still:
            f("ldrsb", value, f"[{second}]")

    def vector() -> str:
        f("vldrb.s32", x, f"[{first}], #4")
        if still:
            f("vdup.32", y, value)
        else:
            f("vldrb.s32", y, f"[{second}], #4")
        for q, offset, _, _ in terms:
            f("vadd.i32", q, q, offset)
        for q, _, _, _ in terms:
            f("vshl.i32", q, q, f"#{p.left_shift}")
        for q, _, factor, shift in terms:
            rescaled(f, q, spare, factor, shift)
        f(f"v{name}.i32", x, *((x, y) if order == (0, 1) else (y, x)))
        rescaled(f, x, spare, multiplier, p.output_shift)
        f("vadd.i32", x, x, zero)
        narrow(f, x)
        return x

    return ElementSteps(vector, entry)


@design(Mul, types=(DType.INT8,), needs="mve", weights=None)
def product(op: Mul, sig: Signature, target: Target) -> Kernel | None:
    params, way = op.parameters(sig), walk(sig)
    offsets = (params.input1_offset, params.input2_offset)
    corners = np.multiply.outer(*(np.array([-128, 127], np.int64) + offset for offset in offsets))
    scale = (params.output_multiplier, params.output_shift)
    clamp = (params.act_min, params.act_max)
    span = (int(corners.min()), int(corners.max()))
    pair = (offsets[way.order[0]], offsets[way.order[1]])

    def steps(o: Operands) -> ElementSteps:
        x = o.f.vector("elements")
        start, finish = requantised(o.f, scale, params.output_offset, clamp, span, 0, params.factor)
        return _product(o, x, pair, way.still, start, finish)

    return elementwise("mve product", sig, target, way, steps, StoreForm(clamp))


def _product(
    o: Operands, x: str, offsets: tuple[int, int], still: bool, start: int, finish: Callable[[str], None]
) -> ElementSteps:
    f, (first, second) = o.f, o.inputs
    a = f.constant("offset of the first operand", offsets[0])
    b = f.constant("offset of the second operand", offsets[1])
    constant = f.constant("start", start)
    y = f.core("the second operand") if still else f.vector("the second operand")
    begin = f.core("its part of the offsets' products") if still else ""

    def entry() -> None:
        if still:
            f("ldrsb", y, f"[{second}]")
            f("add", y, y, b)
            f("mla", begin, a, y, constant)

    def vector() -> str:
        f("vldrb.s32", x, f"[{first}], #4")
        if still:
            f("vmul.i32", x, x, y)
            f("vadd.i32", x, x, begin)
        else:
            f("vldrb.s32", y, f"[{second}], #4")
            f("vadd.i32", x, x, a)
            f("vadd.i32", y, y, b)
            f("vmlas.s32", x, y, constant)
        finish(x)
        return x

    return ElementSteps(vector, entry)


@design(SquaredDifference, types=(DType.INT8,), needs="mve", weights=None)
def squared_difference(op: SquaredDifference, sig: Signature, target: Target) -> Kernel | None:
    """Bring both operands to one scale, with TFLite's roundings unless it is the scale of both; square their
    difference.
    """
    if is_plain(sig.x):
        return None
    p, way = op.parameters(sig), walk(sig)
    low, high = INT8.limits
    # an operand with the larger scale is halved, which is exact after the shift to the left
    most = sum(max(abs(low + n[0]), abs(high + n[0])) << (p.left_shift - 1) for n in (p.first, p.second))
    if most**2 >= 1 << 31:
        return None
    form = StoreForm((low, high))

    def steps(o: Operands) -> ElementSteps:
        scale = (p.multiplier, p.shift)
        start, finish = requantised(o.f, scale, p.output_offset, (low, high), (0, most**2), 0)
        parts = [(p.first, p.second)[i] for i in way.order]
        if all(part[1:] == _HALF for part in parts):
            return _square_of_alike(o, (parts[0][0], parts[1][0]), p.left_shift - 1, way.still, start, finish)
        return _square(o, parts, p.left_shift, way.still, start, finish)

    return elementwise("mve squared difference", sig, target, way, steps, form)


def _square_of_alike(
    o: Operands, offsets: tuple[int, int], left: int, still: bool, start: int, finish: Callable[[str], None]
) -> ElementSteps:
    f, (first, second) = o.f, o.inputs
    x, begin = o.f.vector("elements"), f.constant("start", start)
    y = f.core("the second operand") if still else f.vector("the second operand")
    offset = f.constant("difference of the offsets", offsets[0] - offsets[1])

    def entry() -> None:
        if still:
            f("ldrsb", y, f"[{second}]")
            f("sub", y, offset, y)

    def vector() -> str:
        f("vldrb.s32", x, f"[{first}], #4")
        if still:
            f("vadd.i32", x, x, y)
        else:
            f("vldrb.s32", y, f"[{second}], #4")
            f("vsub.i32", x, x, y)
            f("vadd.i32", x, x, offset)
        f("vshl.i32", x, x, f"#{left}")
        f("vmlas.s32", x, x, begin)
        finish(x)
        return x

    return ElementSteps(vector, entry)


def _square(
    o: Operands,
    parts: Sequence[tuple[int, int, int]],
    left: int,
    still: bool,
    start: int,
    finish: Callable[[str], None],
) -> ElementSteps:
    f, (first, second) = o.f, o.inputs
    x, y, spare = f.vector("elements"), f.vector("the second operand"), f.vector("signs")
    begin = f.constant("start", start)
    offsets = [f.constant("offset", part[0]) for part in parts]
    factors = ["" if part[1:] == _HALF else f.constant("multiplier", part[1]) for part in parts]
    value = f.core("the second operand") if still else ""

    def scaled(q: str, number: int) -> None:
        f("vadd.i32", q, q, offsets[number])
        if factors[number]:
            f("vshl.i32", q, q, f"#{left}")
            rescaled(f, q, spare, factors[number], parts[number][2])
        else:
            f("vshl.i32", q, q, f"#{left - 1}")

    def entry() -> None:
        if still:
            f("ldrsb", value, f"[{second}]")
            f("vdup.32", y, value)
            scaled(y, 1)

    def vector() -> str:
        f("vldrb.s32", x, f"[{first}], #4")
        scaled(x, 0)
        if not still:
            f("vldrb.s32", y, f"[{second}], #4")
            scaled(y, 1)
        f("vsub.i32", x, x, y)
        f("vmlas.s32", x, x, begin)
        finish(x)
        return x

    return ElementSteps(vector, entry)


@lru_cache(maxsize=256)
def solve_sum(op: Add | Sub, quants: tuple[Quant, Quant, Quant]) -> SumForm | None:
    """Return factors with which ``sat8((x0 * factors[0] + x1 * factors[1] + constant) >> shift)`` equals the
    reference for every pair.

    None if the search finds none.
    """
    table = every_sum(op, quants)
    largest = min(_WIDEST, int(np.floor(23 - np.log2(sum(map(abs, table.factors))))))  # 128 times that fits
    for shift in range(largest, max(largest - _TRIES, _NARROWEST - 1), -1):
        for a, b in table.near(shift):
            total = table.x[0] * a + table.x[1] * b
            constants = table.constants(total, shift)
            constant = (constants.start + constants.stop) // 2
            fits = abs(constant) + int(np.abs(total).max()) + (1 << shift) < 1 << 31
            if constants and fits:
                return SumForm((a, b), constant, shift)
    return None
