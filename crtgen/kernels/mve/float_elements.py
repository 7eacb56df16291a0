"""Element-wise operators with Helium that take or give float32, four at a time."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.mve.elements import Body, elementwise, walk, word
from crtgen.kernels.registry import design
from crtgen.ops import Activation, Add, AffineParams, Dequantize, Mul, Quantize, Relu, Sub

__all__ = ["arithmetic", "clamp", "dequantize", "divides", "quantize"]

_LOAD, _STORE = "vldrw.u32 q0, [r0], #16", "vstrw.32 q0, [r2], #16"
_FAR = 512  # steps of the output: beyond all int8 values
_STEPS = 8  # float32 values on both sides

Floats = npt.NDArray[np.float32]


@design(Add, Sub, Mul, types=(DType.FLOAT32,), needs="mve", weights=None)
def arithmetic(op: Add | Sub | Mul, sig: Signature, target: Target) -> Kernel | None:
    """float32 operands that may be repeated or constant; None for others."""
    way = walk(sig)
    operands = "q0, q1" if way.order == (0, 1) else "q1, q0"
    compute = f"v{op.name}.f32 q0, {operands}"
    setup, clamps = _clamps(op.activation)
    if way.still:
        body = Body(setup, (_LOAD, compute, *clamps), ("ldr r4, [r1]", "vdup.32 q1, r4"), store=_STORE)
    else:
        body = Body(setup, (_LOAD, "vldrw.u32 q1, [r1], #16", compute, *clamps), store=_STORE)
    return elementwise("mve float", sig, target, way, body)


@design(Relu, types=(DType.FLOAT32,), needs="mve")
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    """float32; None for others."""
    setup, clamps = _clamps(op.kind)
    return elementwise("mve float", sig, target, walk(sig), Body(setup, (_LOAD, *clamps), store=_STORE))


@design(Dequantize, types=(DType.INT8,), needs="mve")
def dequantize(op: Dequantize, sig: Signature, target: Target) -> Kernel | None:
    """int8 to float32."""
    params = op.parameters(sig)
    setup = (*word("r3", -params.zero_point), *_float("r4", params.scale))
    convert = ("vldrb.s32 q0, [r0], #4", "vadd.i32 q0, q0, r3", "vcvt.f32.s32 q0, q0", "vmul.f32 q0, q0, r4")
    return elementwise("mve dequantize", sig, target, walk(sig), Body(setup, convert, store=_STORE))


@design(Quantize, types=(DType.FLOAT32,), needs="mve")
def quantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """float32 to int8, without a division; None for int8 and where that is not exact."""
    params = op.parameters(sig)
    if not isinstance(params, AffineParams) or not divides(params):
        return None
    far = _FAR * params.scale
    setup = [*word("r3", params.zero_point), *_float("r4", 1 / params.scale), *_float("r5", -params.scale)]
    for register, limit in (("q2", -far), ("q3", far)):
        setup += [*_float("lr", limit), f"vdup.32 {register}, lr"]
    convert = (
        "vmaxnm.f32 q0, q0, q2",
        "vminnm.f32 q0, q0, q3",
        "vmul.f32 q1, q0, r4",
        "vfma.f32 q0, q1, r5",  # what the product is short of
        "vfma.f32 q1, q0, r4",
        "vcvta.s32.f32 q0, q1",
        "vadd.i32 q0, q0, r3",
        "vqmovnb.s16 q0, q0",
    )
    return elementwise("mve quantize", sig, target, walk(sig), Body(tuple(setup), (_LOAD, *convert)))


def divides(params: AffineParams) -> bool:
    """Whether a product with the reciprocal, corrected once, rounds to the same int8 as ``x / scale``.

    It is wrong by one float32 step at most. So it is enough that it agrees where the quotient is within a few
    steps of a number that rounds to another int8 than the float32 before it.
    """
    scale, reciprocal = np.float32(params.scale), np.float32(1 / params.scale)
    levels = np.arange(-127 - params.zero_point, 128 - params.zero_point)
    nearest = ((levels - 0.5) * float(scale)).astype(np.float32)
    for direction in (-np.inf, np.inf):
        x = nearest
        for _ in range(_STEPS):
            product = x * reciprocal
            corrected = _fma(_fma(product, -scale, x), reciprocal, product)
            if (_rounded(corrected) != _rounded(x / scale)).any():
                return False
            x = np.nextafter(x, np.float32(direction))
    return True


def _rounded(x: Floats) -> npt.NDArray[np.float64]:
    """Halves away from zero."""
    wide = x.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide)


def _fma(x: Floats, factor: np.float32, to: Floats) -> Floats:
    """``x * factor + to``, rounded once.

    The product is exact in double; the sum is rounded to odd there, after which rounding to float32 is right.
    """
    product, addend = x.astype(np.float64) * float(factor), to.astype(np.float64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where((lost != 0) & even, np.nextafter(total, np.copysign(np.inf, lost)), total)
    return odd.astype(np.float32)


def _clamps(kind: Activation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Instructions that load the limits, and those that clamp q0."""
    setup, clamps = list[str](), list[str]()
    limits = zip(kind.float_range(), ("vmaxnm.f32", "vminnm.f32"), ("q2", "q3"), strict=True)
    for limit, operation, register in limits:
        if np.isfinite(limit):
            setup += [*_float("lr", limit), f"vdup.32 {register}, lr"]
            clamps.append(f"{operation} q0, q0, {register}")
    return tuple(setup), tuple(clamps)


def _float(register: str, value: float) -> Iterator[str]:
    """A float32 in a core register."""
    yield from word(register, int(np.float32(value).view(np.uint32)))
