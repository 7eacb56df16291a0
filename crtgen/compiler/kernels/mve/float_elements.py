"""Element-wise operators with Helium whose input or output is float32, four elements at a time."""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.mve.elements import (
    ElementSteps,
    Operands,
    Reading,
    StoreForm,
    elementwise,
    spread,
    walk,
)
from crtgen.compiler.kernels.portable.borders import Floats, fused
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import (
    INT8,
    INT16,
    Activation,
    Add,
    AffineParams,
    Cast,
    Dequantize,
    Maximum,
    Minimum,
    Mul,
    Quantize,
    Relu,
    Sub,
)
from crtgen.network.ops.rescaling import by_float

__all__ = ["arithmetic", "cast", "clamp", "dequantize", "divides", "extreme", "quantize"]

_FLOATS = StoreForm(store="vstrw.32", step=16)
_SHORTS = StoreForm(INT16.limits, store="vstrh.32", step=8, bits=16)
_FAR = {DType.INT8: 512, DType.INT16: 131072}  # steps of the output: beyond all values
_LOADS = {DType.INT8: "vldrb.s32", DType.INT16: "vldrh.s32"}
_STEPS = 8  # float32 values on both sides


@design(Add, Sub, Mul, types=(DType.FLOAT32,), needs="mve", weights=None)
def arithmetic(op: Add | Sub | Mul, sig: Signature, target: Target) -> Kernel | None:
    way = walk(sig)
    kind = op.activation
    return elementwise("mve float", sig, target, way, lambda o: _arithmetic(o, op.name, way, kind), _FLOATS)


def _arithmetic(o: Operands, name: str, way: Reading, kind: Activation) -> ElementSteps:
    x, y = o.f.vectors("elements", 2)
    clamp = _clamp(o.f, kind)

    def combine() -> None:
        o.f(f"v{name}.f32", x, *((x, y) if way.order == (0, 1) else (y, x)))
        clamp(x)

    return _of_two(o, way, (x, y), combine)


def _of_two(
    o: Operands, way: Reading, elements: tuple[str, str], combine: Callable[[], None]
) -> ElementSteps:
    # Loads two operands, a second one that is one number once; ``combine`` puts results into the first.
    f, (first, second), (x, y) = o.f, o.inputs, elements
    value = f.core("the second operand") if way.still else ""

    def entry() -> None:
        if way.still:
            f("ldr", value, f"[{second}]")
            f("vdup.32", y, value)

    def vector() -> str:
        f("vldrw.u32", x, f"[{first}], #16")
        if not way.still:
            f("vldrw.u32", y, f"[{second}], #16")
        combine()
        return x

    return ElementSteps(vector, entry)


@design(Relu, types=(DType.FLOAT32,), needs="mve")
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    def steps(o: Operands) -> ElementSteps:
        f, (first,) = o.f, o.inputs
        x = f.vector("elements")
        clamp = _clamp(f, op.kind)

        def vector() -> str:
            f("vldrw.u32", x, f"[{first}], #16")
            clamp(x)
            return x

        return ElementSteps(vector)

    return elementwise("mve float", sig, target, walk(sig), steps, _FLOATS)


@design(Maximum, Minimum, types=(DType.FLOAT32,), needs="mve", weights=None)
def extreme(op: Maximum | Minimum, sig: Signature, target: Target) -> Kernel | None:
    """Select the first operand if it is larger (or smaller) than the second, otherwise the second."""
    way = walk(sig)

    def steps(o: Operands) -> ElementSteps:
        x, y = o.f.vectors("elements", 2)
        a, b = (x, y) if way.order == (0, 1) else (y, x)

        def combine() -> None:
            o.f("vcmp.f32", "gt" if op.sign == ">" else "lt", a, b)
            o.f("vpsel", x, a, b)

        return _of_two(o, way, (x, y), combine)

    return elementwise(f"mve float {op.name}", sig, target, way, steps, _FLOATS)


@design(Cast, types=(DType.FLOAT32,), needs="mve", to=DType.INT8)
def cast(op: Cast, sig: Signature, target: Target) -> Kernel | None:
    """Truncate towards zero; integers wrap, since only their low bits are stored."""

    def steps(o: Operands) -> ElementSteps:
        x = o.f.vector("elements")

        def vector() -> str:
            o.f("vldrw.u32", x, f"[{o.inputs[0]}], #16")
            o.f("vcvt.s32.f32", x, x)
            return x

        return ElementSteps(vector)

    return elementwise("mve cast", sig, target, walk(sig), steps)


@design(Dequantize, types=(DType.INT8, DType.INT16), needs="mve", to=DType.FLOAT32)
def dequantize(op: Dequantize, sig: Signature, target: Target) -> Kernel | None:
    params = op.parameters(sig)

    def steps(o: Operands) -> ElementSteps:
        f, (first,) = o.f, o.inputs
        x, load = f.vector("elements"), _LOADS[sig.x.dtype]
        offset = f.constant("minus the zero point", -params.zero_point) if params.zero_point else ""
        scale = f.constant("scale", bits_of(params.scale))

        def vector() -> str:
            f(load, x, f"[{first}], #{4 * sig.x.dtype.itemsize}")
            if offset:
                f("vadd.i32", x, x, offset)
            f("vcvt.f32.s32", x, x)
            f("vmul.f32", x, x, scale)
            return x

        return ElementSteps(vector)

    return elementwise("mve dequantize", sig, target, walk(sig), steps, _FLOATS)


@design(Quantize, types=(DType.FLOAT32,), needs="mve", to=DType.INT8)
@design(Quantize, types=(DType.FLOAT32,), needs="mve", to=DType.INT16)
def quantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """Quantise float32 without a division; None for other types and if that is not exact."""
    params, even, to = op.parameters(sig), by_float(sig.y), sig.y.dtype
    if not isinstance(params, AffineParams) or not divides(params, even, to):
        return None
    form = StoreForm() if to is DType.INT8 else _SHORTS
    return elementwise("mve quantize", sig, target, walk(sig), lambda o: _quantize(o, params, even, to), form)


def _quantize(o: Operands, params: AffineParams, even: bool, to: DType) -> ElementSteps:
    f, (first,) = o.f, o.inputs
    x, quotient = f.vector("elements"), f.vector("quotients")
    low, high = (_limit(f, sign * _FAR[to] * params.scale) for sign in (-1, 1))
    reciprocal = f.constant("1 / scale", bits_of(1 / params.scale))
    scale = f.constant("-scale", bits_of(-params.scale))
    zero = f.constant("zero point", params.zero_point) if params.zero_point or to is DType.INT8 else ""

    def vector() -> str:
        f("vldrw.u32", x, f"[{first}], #16")
        f("vmaxnm.f32", x, x, low)
        f("vminnm.f32", x, x, high)
        f("vmul.f32", quotient, x, reciprocal)
        f("vfma.f32", x, quotient, scale, note="what the product is short of")
        f("vfma.f32", quotient, x, reciprocal)
        f(f"vcvt{'n' if even else 'a'}.s32.f32", x, quotient)
        if zero:
            f("vadd.i32", x, x, zero)
        f("vqmovnb.s16" if to is DType.INT8 else "vqmovnb.s32", x, x)
        return x

    return ElementSteps(vector)


@cache
def divides(params: AffineParams, even: bool = False, to: DType = DType.INT8) -> bool:
    """Return True if a product with the reciprocal, corrected once, rounds to the same integer as ``x /
    scale``.

    Ties are rounded away from zero, or to ``even``.

    The product is off by at most one float32 step. So it suffices to compare both for floats within a few
    steps of one that rounds to a different integer than its predecessor.
    """
    low, high = (INT8 if to is DType.INT8 else INT16).limits
    scale, reciprocal = np.float32(params.scale), np.float32(1 / params.scale)
    rounded = np.rint if even else _away
    levels = np.arange(low + 1 - params.zero_point, high + 1 - params.zero_point)
    nearest = ((levels - 0.5) * float(scale)).astype(np.float32)
    for direction in (-np.inf, np.inf):
        x = nearest
        for _ in range(_STEPS):
            product = x * reciprocal
            corrected = fused(fused(product, -scale, x), reciprocal, product)
            if (rounded(corrected) != rounded(x / scale)).any():
                return False
            x = np.nextafter(x, np.float32(direction))
    return True


def _away(x: Floats) -> npt.NDArray[np.float64]:
    wide = x.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide)


def _clamp(f: Function, kind: Activation) -> Callable[[str], None]:
    # Clamps a vector; the limits are loaded at once.
    limits = [
        (operation, _limit(f, limit))
        for limit, operation in zip(kind.float_range(), ("vmaxnm.f32", "vminnm.f32"), strict=True)
        if np.isfinite(limit)
    ]

    def each(x: str) -> None:
        for operation, limit in limits:
            f(operation, x, x, limit)

    return each


def _limit(f: Function, value: float) -> str:
    vector = f.vector("a limit")
    spread(f, vector, bits_of(value))
    return vector
