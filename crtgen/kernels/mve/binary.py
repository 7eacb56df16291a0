"""Sums, differences and products with Helium, of operands that may be repeated or constant."""

from functools import lru_cache

import numpy as np

from crtgen.ir import DType, Quant, Signature
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.mve.elements import NARROW, Body, elementwise, requantised, rescaled, walk, word
from crtgen.kernels.registry import design
from crtgen.kernels.sums import SumForm, every_sum, quants_of
from crtgen.ops import Add, Mul, Sub

__all__ = ["exact_sums", "product", "solve_sum", "sums"]

_NARROWEST, _WIDEST = 1, 23  # shifts of one or two narrowing instructions
_TRIES = 4  # shifts tried from the largest one down


@design(Add, Sub, types=(DType.INT8,), needs="mve", weights=None)
def sums(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """int8; None for others or if no factors are exact."""
    form = solve_sum(op, quants_of(sig))
    if form is None:
        return None
    params, way = op.parameters(sig), walk(sig)
    # both narrowing instructions round: what they add is taken off before
    first = min(form.shift, 16)
    constant = form.constant - (1 << (form.shift - 1))
    constant -= (1 << (first - 1)) if form.shift > first else 0
    a, b = (form.factors[i] for i in way.order)
    setup = (*word("r3", a), "vdup.32 q2, r3", *word("r3", b), *word("r12", constant))
    narrow = f"vqrshrnb.s16 q0, q0, #{form.shift - first}" if form.shift > first else "vqmovnb.s16 q0, q0"
    load, narrows = "vldrb.s32 q0, [r0], #4", (f"vqrshrnb.s32 q0, q0, #{first}", narrow)
    clamp = (params.act_min, params.act_max)
    if way.still:
        entry = ("ldrsb r4, [r1]", "mla r4, r4, r3, r12")
        body = Body(setup, (load, "vmlas.s32 q0, q2, r4", *narrows), entry, clamp)
    else:
        add = ("vldrb.s32 q1, [r1], #4", "vmlas.s32 q0, q2, r12", "vmla.s32 q0, q1, r3")
        body = Body(setup, (load, *add, *narrows), (), clamp)
    return elementwise("mve sum", sig, target, way, body)


@design(Add, Sub, types=(DType.INT8,), needs="mve", weights=None)
def exact_sums(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """int8 with each of TFLite's roundings; None for others."""
    p, way = op.parameters(sig), walk(sig)
    operands = (
        (p.input1_offset, p.input1_multiplier, p.input1_shift),
        (p.input2_offset, p.input2_multiplier, p.input2_shift),
    )
    a, b = (operands[i] for i in way.order)
    numbers = {
        "r4": a[0],
        "r5": b[0],
        "r6": a[1],
        "r8": b[1],
        "r3": p.output_multiplier,
        "r7": p.output_offset,
    }
    setup = tuple(text for register, number in numbers.items() for text in word(register, number))
    second = "vdup.32 q1, r12" if way.still else "vldrb.s32 q1, [r1], #4"
    body = (
        "vldrb.s32 q0, [r0], #4",
        second,
        "vadd.i32 q0, q0, r4",
        "vadd.i32 q1, q1, r5",
        f"vshl.i32 q0, q0, #{p.left_shift}",
        f"vshl.i32 q1, q1, #{p.left_shift}",
        *rescaled("q0", "q2", "r6", a[2]),
        *rescaled("q1", "q2", "r8", b[2]),
        f"v{op.name}.i32 q0, {'q0, q1' if way.order == (0, 1) else 'q1, q0'}",
        *rescaled("q0", "q2", "r3", p.output_shift),
        "vadd.i32 q0, q0, r7",
        *NARROW,
    )
    entry = ("ldrsb r12, [r1]",) if way.still else ()
    return elementwise("mve exact sum", sig, target, way, Body(setup, body, entry, (p.act_min, p.act_max)))


@design(Mul, types=(DType.INT8,), needs="mve", weights=None)
def product(op: Mul, sig: Signature, target: Target) -> Kernel | None:
    """int8; None for others."""
    params, way = op.parameters(sig), walk(sig)
    offsets = (params.input1_offset, params.input2_offset)
    corners = np.multiply.outer(*(np.array([-128, 127], np.int64) + offset for offset in offsets))
    scale = (params.output_multiplier, params.output_shift)
    clamp = (params.act_min, params.act_max)
    span = (int(corners.min()), int(corners.max()))
    start, constants, finish = requantised(scale, params.output_offset, clamp, span, 0)
    a, b = (offsets[i] for i in way.order)
    setup = (*constants, *word("r4", a), *word("r5", b), *word("r12", start))
    load = "vldrb.s32 q0, [r0], #4"
    if way.still:
        entry = ("ldrsb r6, [r1]", "add r6, r6, r5", "mla r8, r4, r6, r12")
        product = (load, "vmul.i32 q0, q0, r6", "vadd.i32 q0, q0, r8")
        body = Body(setup, (*product, *finish), entry, clamp)
    else:
        both = (load, "vldrb.s32 q1, [r1], #4", "vadd.i32 q0, q0, r4", "vadd.i32 q1, q1, r5")
        body = Body(setup, (*both, "vmlas.s32 q0, q1, r12", *finish), (), clamp)
    return elementwise("mve product", sig, target, way, body)


@lru_cache(maxsize=256)
def solve_sum(op: Add | Sub, quants: tuple[Quant, Quant, Quant]) -> SumForm | None:
    """``sat8((x0 * factors[0] + x1 * factors[1] + constant) >> shift)``, as the reference for every pair.

    None if the search finds no such factors.
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
