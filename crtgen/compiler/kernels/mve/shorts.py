"""Element-wise operators with Helium on int16 operands or results, also with int8 slopes.

Four elements at a time in 32 bits, with TFLite's roundings.
"""

from collections.abc import Callable

from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import (
    ElementSteps,
    Operands,
    Reading,
    StoreForm,
    elementwise,
    rescaled,
    walk,
)
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT16, Add, AddParams, Mul, Quantize, Relu, RequantizeParams, Sub
from crtgen.network.ops.activation import LeakyRelu
from crtgen.network.ops.arithmetic import Prelu, PreluParams, SquaredDifference
from crtgen.network.ops.binary import FusedAddParams
from crtgen.network.ops.compare import Maximum, Minimum
from crtgen.network.ops.scheme import is_plain

__all__ = [
    "extreme",
    "leaky_relu",
    "prelu",
    "product",
    "relu",
    "requantize",
    "squared_difference_of_shorts",
    "sums",
]

_HALF = 1 << 30
_LOADS = {DType.INT8: ("vldrb.s32", "ldrsb", 4), DType.INT16: ("vldrh.s32", "ldrsh", 8)}

Scale = Callable[[str], None]


def _form(dtype: DType, clamp: tuple[int, int] | None = None) -> StoreForm:
    if dtype is DType.INT8:
        return StoreForm(clamp or (-128, 127))
    return StoreForm(clamp or INT16.limits, store="vstrh.32", step=8, bits=16)


def _scale(f: Function, spare: str, multiplier: int, shift: int, left: int = 0) -> Scale:
    # Shifts a vector to the left and rescales it; the multiplier is loaded at once.
    if multiplier == _HALF and left + shift > 0:

        def exactly(q: str) -> None:
            if left + shift > 1:
                f("vshl.i32", q, q, f"#{left + shift - 1}")

        return exactly
    factor = f.constant("multiplier", multiplier)

    def each(q: str) -> None:
        if left:
            f("vshl.i32", q, q, f"#{left}")
        rescaled(f, q, spare, factor, shift)

    return each


def _pair(o: Operands, way: Reading, dtypes: tuple[DType, DType]) -> tuple[str, str, ElementSteps]:
    # Vectors of both operands in the walk's order; the second may be one number in a run.
    f, (first, second) = o.f, o.inputs
    x, y = f.vectors("elements of both operands", 2)
    value = f.core("the second operand") if way.still else ""
    (load, _, step), (other, single, stride) = (_LOADS[dtypes[i]] for i in way.order)

    def entry() -> None:
        if way.still:
            f(single, value, f"[{second}]")

    def vector() -> str:
        f(load, x, f"[{first}], #{step}")
        if way.still:
            f("vdup.32", y, value)
        else:
            f(other, y, f"[{second}], #{stride}")
        return x

    return x, y, ElementSteps(vector, entry)


@design(Add, Sub, types=(DType.INT16,), needs="mve", weights=None)
def sums(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    p, way = op.parameters(sig), walk(sig)
    if isinstance(p, FusedAddParams):
        return None
    form = _form(DType.INT16, (p.act_min, p.act_max))
    return elementwise("mve sum", sig, target, way, lambda o: _sum(o, op.name, p, way), form)


def _sum(o: Operands, name: str, p: AddParams, way: Reading) -> ElementSteps:
    f = o.f
    x, y, read = _pair(o, way, (DType.INT16, DType.INT16))
    spare = f.vector("signs")
    both = ((p.input1_multiplier, p.input1_shift), (p.input2_multiplier, p.input2_shift))
    scales = [_scale(f, spare, *both[i], p.left_shift) for i in way.order]
    last = _scale(f, spare, p.output_multiplier, p.output_shift)

    def vector() -> str:
        read.vector()
        scales[0](x)
        scales[1](y)
        f(f"v{name}.i32", x, *((x, y) if way.order == (0, 1) else (y, x)))
        last(x)
        f("vqmovnb.s32", x, x)
        return x

    return ElementSteps(vector, read.entry)


@design(Mul, types=(DType.INT16,), needs="mve", weights=None)
def product(op: Mul, sig: Signature, target: Target) -> Kernel | None:
    p, way = op.parameters(sig), walk(sig)

    def steps(o: Operands) -> ElementSteps:
        f = o.f
        x, y, read = _pair(o, way, (DType.INT16, DType.INT16))
        last = _scale(f, f.vector("signs"), p.output_multiplier, p.output_shift)

        def vector() -> str:
            read.vector()
            f("vmul.i32", x, x, y)
            last(x)
            f("vqmovnb.s32", x, x)
            return x

        return ElementSteps(vector, read.entry)

    return elementwise("mve product", sig, target, way, steps, _form(DType.INT16, (p.act_min, p.act_max)))


@design(SquaredDifference, types=(DType.INT16,), needs="mve", weights=None)
def squared_difference_of_shorts(op: SquaredDifference, sig: Signature, target: Target) -> Kernel | None:
    # Both operands are rescaled, as in TFLite, then the square of their difference, which is at most 2^30.
    if is_plain(sig.x):
        return None
    p, way = op.parameters(sig), walk(sig)
    if p.left_shift or p.output_offset or p.first[0] or p.second[0]:
        return None
    both = (p.first[1:], p.second[1:])

    def steps(o: Operands) -> ElementSteps:
        f = o.f
        x, y, read = _pair(o, way, (DType.INT16, DType.INT16))
        spare = f.vector("signs")
        scales = [_scale(f, spare, *both[i]) for i in way.order]
        last = _scale(f, spare, p.multiplier, p.shift)

        def vector() -> str:
            read.vector()
            scales[0](x)
            scales[1](y)
            f("vsub.i32", x, x, y)
            f("vmul.i32", x, x, x)
            last(x)
            f("vqmovnb.s32", x, x)
            return x

        return ElementSteps(vector, read.entry)

    return elementwise("mve squared difference", sig, target, way, steps, _form(DType.INT16))


@design(Relu, types=(DType.INT16,), needs="mve")
def relu(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    p = op.parameters(sig)
    return _rescaled("mve clamp", sig, target, (p.multiplier, p.shift), (0, 0), (p.act_min, p.act_max))


@design(Quantize, types=(DType.INT16,), needs="mve")
@design(Quantize, types=(DType.INT16,), needs="mve", to=DType.INT8)
@design(Quantize, types=(DType.INT8,), needs="mve", to=DType.INT16)
def requantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    p = op.parameters(sig)
    assert isinstance(p, RequantizeParams)
    offsets = (p.input_offset, p.output_offset)
    return _rescaled("mve requantise", sig, target, (p.multiplier, p.shift), offsets)


def _rescaled(
    name: str,
    sig: Signature,
    target: Target,
    factor: tuple[int, int],
    offsets: tuple[int, int],
    clamp: tuple[int, int] | None = None,
) -> Kernel | None:
    load, _, step = _LOADS[sig.x.dtype]

    def steps(o: Operands) -> ElementSteps:
        f, (first,) = o.f, o.inputs
        x = f.vector("elements")
        scale = _scale(f, f.vector("signs"), *factor)
        added = [f.constant("offset", n) if n else "" for n in offsets]

        def vector() -> str:
            f(load, x, f"[{first}], #{step}")
            if added[0]:
                f("vadd.i32", x, x, added[0])
            scale(x)
            if added[1]:
                f("vadd.i32", x, x, added[1])
            f("vqmovnb.s32", x, x)
            if sig.y.dtype is DType.INT8:
                f("vqmovnb.s16", x, x)
            return x

        return ElementSteps(vector)

    return elementwise(name, sig, target, walk(sig), steps, _form(sig.y.dtype, clamp))


@design(LeakyRelu, types=(DType.INT16,), needs="mve")
def leaky_relu(op: LeakyRelu, sig: Signature, target: Target) -> Kernel | None:
    p = op.parameters(sig)

    def steps(o: Operands) -> ElementSteps:
        f, (first,) = o.f, o.inputs
        x, above = f.vectors("elements, and those above zero", 2)
        join = _two_sides(f, (x, above), p.above, p.below)

        def vector() -> str:
            f("vldrh.s32", x, f"[{first}], #8")
            join(None)
            f("vqmovnb.s32", x, x)
            return x

        return ElementSteps(vector)

    return elementwise("mve leaky relu", sig, target, walk(sig), steps, _form(DType.INT16))


def _two_sides(
    f: Function, vectors: tuple[str, str], above: tuple[int, int], below: tuple[int, int]
) -> Callable[[str | None], None]:
    # Scales the first vector: above zero by one factor, below by another and the slope. Spoils the other.
    x, upper = vectors
    zero, spare = f.vector("zeros"), f.vector("signs")
    f("vmov.i32", zero, "#0")
    scales = [_scale(f, spare, *factor) for factor in (above, below)]

    def join(slope: str | None) -> None:
        f("vmax.s32", upper, x, zero)
        f("vmin.s32", x, x, zero)
        if slope is not None:
            f("vmul.i32", x, x, slope)
        scales[0](upper)
        scales[1](x)
        f("vadd.i32", x, x, upper)

    return join


@design(Prelu, types=(DType.INT8, DType.INT16), needs="mve", weights=None)
def prelu(op: Prelu, sig: Signature, target: Target) -> Kernel | None:
    """PRELU of int8 and int16; None if the input is broadcast and the slope is not."""
    p, way = op.parameters(sig), walk(sig)
    if way.order != (0, 1):
        return None
    return elementwise("mve prelu", sig, target, way, lambda o: _prelu(o, p, way, sig), _form(sig.y.dtype))


def _prelu(o: Operands, p: PreluParams, way: Reading, sig: Signature) -> ElementSteps:
    f = o.f
    x, slope, read = _pair(o, way, (sig.x.dtype, DType.INT8))
    join = _two_sides(f, (x, f.vector("elements above zero")), p.above, p.below)
    offsets = (p.input_offset, p.alpha_offset, p.output_offset)
    added = [f.constant("offset", n) if n else "" for n in offsets]

    def vector() -> str:
        read.vector()
        for q, offset in ((x, added[0]), (slope, added[1])):
            if offset:
                f("vadd.i32", q, q, offset)
        join(slope)
        if added[2]:
            f("vadd.i32", x, x, added[2])
        f("vqmovnb.s32", x, x)
        if sig.y.dtype is DType.INT8:
            f("vqmovnb.s16", x, x)
        return x

    return ElementSteps(vector, read.entry)


_WHOLE = {DType.INT8: (16, 8, "ldrsb"), DType.INT16: (8, 16, "ldrsh"), DType.INT32: (4, 32, "ldr")}


@design(Maximum, Minimum, types=(DType.INT8, DType.INT16, DType.INT32), needs="mve", weights=None)
def extreme(op: Maximum | Minimum, sig: Signature, target: Target) -> Kernel | None:
    way = walk(sig)
    lanes, bits, single = _WHOLE[sig.x.dtype]
    size = {8: "b.8", 16: "h.16", 32: "w.32"}[bits]
    ends = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)

    def steps(o: Operands) -> ElementSteps:
        f, (first, second) = o.f, o.inputs
        x, y = f.vectors("elements", 2)
        value = f.core("the second operand") if way.still else ""

        def entry() -> None:
            if way.still:
                f(single, value, f"[{second}]")
                f(f"vdup.{bits}", y, value)

        def vector() -> str:
            f(f"vldr{size}", x, f"[{first}], #16")
            if not way.still:
                f(f"vldr{size}", y, f"[{second}], #16")
            f(f"v{op.name[:3]}.s{bits}", x, x, y)
            return x

        return ElementSteps(vector, entry)

    return elementwise(
        f"mve {op.name}", sig, target, way, steps, StoreForm(ends, lanes, f"vstr{size}", 16, bits)
    )
