"""Element-wise operators with Helium: sums, differences, products, requantisation, clamps.

Four elements at a time in 32 bits (16 for a mere clamp), each loop unrolled four times and what is left under
a mask.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.mve.finish import requantisation
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale
from crtgen.kernels.sums import EverySum, every_sum
from crtgen.ops import Add, Mul, Quantize, Relu, ReluParams, RequantizeParams, Sub
from crtgen.ops.fixedpoint import Int64

__all__ = ["ElementsView", "SumForm", "clamp", "product", "requantize", "solve_sum", "sums"]

_WORDS, _BYTES = 4, 16  # elements in a vector
_UNROLL = 4
_DELTAS = (0, 1, -1, 2, -2, 3, -3)
_NARROWEST, _WIDEST = 1, 23  # shifts of one or two narrowing instructions
_TRIES = 4  # shifts tried from the largest one down
_LOW, _HIGH = "q3", "q4"


@dataclass(frozen=True, slots=True)
class ElementsView:
    """``setup`` once, then ``body`` for ``lanes`` elements at a time; operands at r0 (and r1), output at r2.

    ``vectors``: there are vectors to keep for the caller.
    """

    elements: int
    operands: int
    setup: tuple[str, ...]
    body: tuple[str, ...]
    vectors: bool
    lanes: int = _WORDS

    @property
    def rounds(self) -> int:
        return self.elements // (self.lanes * _UNROLL)

    @property
    def rest(self) -> int:
        return self.elements % (self.lanes * _UNROLL)

    @property
    def bits(self) -> int:
        """Of a lane."""
        return 128 // self.lanes

    @property
    def unrolled(self) -> tuple[str, ...]:
        return self.body * _UNROLL

    @property
    def cost(self) -> float:
        fixed = len(self.setup) + 6 + 2 * self.vectors
        return (
            fixed
            + self.rounds * (len(self.unrolled) + 1)
            + -(-self.rest // self.lanes) * (len(self.body) + 1)
        )


@dataclass(frozen=True, slots=True)
class SumForm:
    """Factors of ``sat8((x0 * a + x1 * b + c) >> shift)``."""

    a: int
    b: int
    c: int
    shift: int

    def apply(self, x0: Int64, x1: Int64) -> Int64:
        """The saturated sum, before any narrower clamp."""
        result: Int64 = np.clip((x0 * self.a + x1 * self.b + self.c) >> self.shift, -128, 127)
        return result


@design(Add, Sub)
def sums(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """For int8 operands of one shape; None for others or if no factors are exact."""
    if not _alike(sig, target):
        return None
    form = solve_sum(op, sig)
    if form is None:
        return None
    params = op.parameters(sig)
    # both narrowing instructions round: what they add is taken off before
    first = min(form.shift, 16)
    constant = form.c - (1 << (form.shift - 1)) - ((1 << (first - 1)) if form.shift > first else 0)
    setup = (*_word("r3", form.a), "vdup.32 q2, r3", *_word("r3", form.b), *_word("r12", constant))
    narrow = f"vqrshrnb.s16 q0, q0, #{form.shift - first}" if form.shift > first else "vqmovnb.s16 q0, q0"
    body = (
        "vldrb.s32 q0, [r0], #4",
        "vldrb.s32 q1, [r1], #4",
        "vmlas.s32 q0, q2, r12",
        "vmla.s32 q0, q1, r3",
        f"vqrshrnb.s32 q0, q0, #{first}",
        narrow,
    )
    return _kernel("mve sum", sig, setup, body, (params.act_min, params.act_max))


@design(Mul)
def product(op: Mul, sig: Signature, target: Target) -> Kernel | None:
    """For int8 operands of one shape; None for others."""
    if not _alike(sig, target):
        return None
    params = op.parameters(sig)
    ends = np.array([-128, 127], np.int64)
    corners = np.outer(ends + params.input1_offset, ends + params.input2_offset)
    scale = (params.output_multiplier, params.output_shift)
    clamp = (params.act_min, params.act_max)
    span = (int(corners.min()), int(corners.max()))
    start, setup, finish = _requantised(scale, params.output_offset, clamp, span, 0)
    setup = (*setup, *_word("r4", params.input1_offset), *_word("r5", params.input2_offset))
    setup = (*setup, *_word("r12", start))
    body = (
        "vldrb.s32 q0, [r0], #4",
        "vldrb.s32 q1, [r1], #4",
        "vadd.i32 q0, q0, r4",
        "vadd.i32 q1, q1, r5",
        "vmlas.s32 q0, q1, r12",
        *finish,
    )
    return _kernel("mve product", sig, setup, body, clamp)


@design(Quantize)
def requantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """int8 to int8; None for others."""
    params = op.parameters(sig)
    if not target.core.mve or not isinstance(params, RequantizeParams):
        return None
    return _rescaled("mve requantise", sig, params, (-128, 127))


@design(Relu)
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    """For int8; None for others."""
    if not target.core.mve or sig.x.dtype is not DType.INT8:
        return None
    params = op.parameters(sig)
    limits = (params.act_min, params.act_max)
    if sig.x.quant == sig.y.quant:
        return _kernel("mve clamp", sig, (), ("vldrb.8 q0, [r0], #16",), limits, _BYTES)
    return _rescaled("mve clamp", sig, params, limits)


def _rescaled(
    name: str, sig: Signature, params: RequantizeParams | ReluParams, clamp: tuple[int, int]
) -> Kernel:
    offset = params.input_offset
    scale, span = (params.multiplier, params.shift), (-128 + offset, 127 + offset)
    start, setup, finish = _requantised(scale, params.output_offset, clamp, span, offset)
    body = ("vldrb.s32 q0, [r0], #4", "vadd.i32 q0, q0, r12", *finish)
    return _kernel(name, sig, (*setup, *_word("r12", start)), body, clamp)


def _requantised(
    scale: tuple[int, int], zero_point: int, clamp: tuple[int, int], span: tuple[int, int], start: int
) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """What to add first, instructions that load the constants, and those that requantise q0."""
    numbers = [np.array([n], np.int64) for n in (*scale, *span, start)]
    rescale = Rescale(numbers[0], numbers[1], zero_point, *clamp, numbers[2], numbers[3])
    requant = requantisation(rescale, numbers[4])
    if requant.finish.shift is None:
        return start, (*_word("r3", scale[0]), f"mov r7, #{zero_point}"), _roundings(scale[1])
    begin, multiplier, constant = (int(c[0]) for c in requant.constants)
    setup = (*_word("r3", multiplier), "vdup.32 q2, r3", *_word("r3", constant))
    shift = f"vqrshrnb.s32 q0, q0, #{requant.finish.shift}"
    return begin, setup, ("vmulh.s32 q0, q0, q2", "vadd.i32 q0, q0, r3", shift, "vqmovnb.s16 q0, q0")


def _roundings(shift: int) -> tuple[str, ...]:
    """TFLite's rescaling by r3 and a shift, halves away from zero."""
    left = (f"vshl.i32 q0, q0, #{shift}",) if shift > 0 else ()
    away = ("vshr.s32 q1, q0, #31", "vadd.i32 q0, q0, q1", f"vrshr.s32 q0, q0, #{-shift}")
    right = away if shift < 0 else ()
    narrow = ("vadd.i32 q0, q0, r7", "vqmovnb.s32 q0, q0", "vqmovnb.s16 q0, q0")
    return (*left, "vqrdmulh.s32 q0, q0, r3", *right, *narrow)


def _alike(sig: Signature, target: Target) -> bool:
    same = all(v.dtype is DType.INT8 and v.shape == sig.y.shape for v in sig.inputs)
    return target.core.mve and same


def _word(register: str, number: int) -> Iterator[str]:
    """A number in a register."""
    bits = number & 0xFFFFFFFF
    yield f"movw {register}, #{bits & 0xFFFF}"
    if bits >> 16:
        yield f"movt {register}, #{bits >> 16}"


def _kernel(
    name: str,
    sig: Signature,
    setup: Sequence[str],
    body: Sequence[str],
    clamp: tuple[int, int],
    lanes: int = _WORDS,
) -> Kernel:
    """With the clamp, if saturation is not enough, and the store."""
    limits = [
        (limit, operation, register)
        for limit, operation, register, end in zip(
            clamp, ("vmax.s8", "vmin.s8"), (_LOW, _HIGH), (-128, 127), strict=True
        )
        if limit != end
    ]
    loads = [text for n, _, q in limits for text in (f"mov lr, #{n}", f"vdup.8 {q}, lr")]
    clamps = [f"{operation} q0, q0, {q}" for _, operation, q in limits]
    view = ElementsView(
        elements=sig.y.elements,
        operands=len(sig.inputs),
        setup=(*setup, *loads),
        body=(*body, *clamps, "vstrb.32 q0, [r2], #4" if lanes == _WORDS else "vstrb.8 q0, [r2], #16"),
        vectors=any(q == _HIGH for _, _, q in limits),
        lanes=lanes,
    )
    return Kernel(
        design=name,
        template="mve/elements.c.j2",
        view=view,
        inplace=tuple(InPlace(i) for i in range(len(sig.inputs))),
        cost=view.cost,
    )


def solve_sum(op: Add | Sub, sig: Signature) -> SumForm | None:
    """Factors that agree with the reference for every pair of int8 values; None if the search finds none."""
    table = every_sum(op, sig)
    largest = min(_WIDEST, int(np.floor(23 - np.log2(sum(map(abs, table.factors))))))  # 128 times that fits
    for shift in range(largest, max(largest - _TRIES, _NARROWEST - 1), -1):
        form = _solve_with(table, shift)
        if form is not None:
            return form
    return None


def _solve_with(table: EverySum, shift: int) -> SumForm | None:
    x, result, limits = table.x, table.result, table.limits
    ideal = [round(r * (1 << shift)) for r in table.factors]
    floor, ceiling = result > limits[0], result < limits[1]
    for da in _DELTAS:
        for db in _DELTAS:
            total = x[0] * (ideal[0] + da) + x[1] * (ideal[1] + db)
            least = ((result << shift) - total)[floor].max(initial=-(1 << 31))
            beyond = (((result + 1) << shift) - total)[ceiling].min(initial=1 << 31)
            c = int(least + beyond) // 2
            if least < beyond and abs(c) + int(np.abs(total).max()) + (1 << shift) < 1 << 31:
                return SumForm(ideal[0] + da, ideal[1] + db, c, shift)
    return None
