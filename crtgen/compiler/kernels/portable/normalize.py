"""Running sums, norms, and indices of extremes."""

from dataclasses import dataclass
from math import prod

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue, two_roundings
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import clamped, measured_as
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import scheme_of
from crtgen.network.ops.attrs import tensor_quant
from crtgen.network.ops.normalize import CumSum, L2Normalization, L2Pool2d
from crtgen.network.ops.pool import MaxPool2d
from crtgen.network.ops.reduce import ArgReduction

__all__ = ["ArgView", "CumSumView", "L2PoolView", "NormView"]


@dataclass(frozen=True, slots=True)
class ArgView:
    """``outer`` times ``inner`` positions along an axis of ``length``; ``sign`` is the C comparison."""

    type: str
    outer: int
    length: int
    inner: int
    sign: str


@dataclass(frozen=True, slots=True)
class CumSumView:
    """``outer`` times ``inner`` sums over ``length`` elements, the first one at index ``start``.

    The sum begins with ``first``; ``result`` is its C expression, ``term`` is the value added for each
    element. ``total`` is the sum with one more term.
    """

    outer: int
    length: int
    inner: int
    start: int
    step: int
    type: str
    first: str
    term: str
    exclusive: bool
    result: str
    total: str = "sum + term"


@dataclass(frozen=True, slots=True)
class NormView:
    """``rows`` vectors of ``depth`` elements; ``offset`` is C code that adds the zero point."""

    rows: int
    depth: int
    real: bool
    offset: str
    epsilon: str


@dataclass(frozen=True, slots=True)
class L2PoolView:
    """A window over images; ``low`` and ``high`` are the limits of outputs, or empty."""

    window: WindowShape
    low: str
    high: str


@design(ArgReduction)
def arg_extreme(op: ArgReduction, sig: Signature, target: Target) -> Kernel:
    shape = sig.x.shape
    sizes = (prod(shape[: op.axis]), shape[op.axis], prod(shape[op.axis + 1 :]))
    view = ArgView(sig.x.dtype.c_name, *sizes, op.sign)
    return Kernel(
        op.name,
        "arg.c.j2",
        view,
        work=Work().block(f"{measured_as(sig.x)} element", sig.x.elements).block("output", sig.y.elements),
    )


@design(CumSum, types=tuple(d for d in DType if d.is_integer and d is not DType.INT4))
def whole_cumsum(op: CumSum, sig: Signature, target: Target) -> Kernel | None:
    if sig.x.quant is not None:
        return None
    bits, kind = max(32, 8 * sig.x.dtype.itemsize), sig.x.dtype
    sign, wide = "*" if op.product else "+", f"uint{bits}_t"
    number = wide if kind.numpy.kind == "u" else f"int{bits}_t"
    total = f"({number})(({wide})sum {sign} ({wide})term)"
    return _cumulated(op, sig, number, "1" if op.product else "0", f"({kind.c_name})sum", total=total)


@design(CumSum, types=(DType.INT8, DType.FLOAT32))
def cumsum(op: CumSum, sig: Signature, target: Target) -> Kernel | None:
    if op.product or (sig.x.quant is None and not scheme_of(sig.x).is_real):
        real = scheme_of(sig.x).is_real
        return _cumulated(op, sig, "float", "1.0f", "sum", total="sum * term") if real else None
    first, term, number, result = "0.0f", "", "float", "sum"
    if not scheme_of(sig.x).is_real:
        p = op.parameters(sig)
        first, term, number = str(p.input_offset), plus(p.input_offset), "int32_t"
        scaled = two_roundings("crt_shift_left(sum, 19)", p.multiplier, p.shift, 1 << 31)
        result = clamped(sig.y, f"{scaled} {plus(p.output_offset)}", *scheme_of(sig.y).limits)
    return _cumulated(op, sig, number, first, result, term)


def _cumulated(
    op: CumSum,
    sig: Signature,
    number: str,
    first: str,
    result: str,
    term: str = "",
    total: str = "sum + term",
) -> Kernel:
    outer, length, inner = op.sizes(sig)
    start, apart = ((length - 1) * inner, -inner) if op.reverse else (0, inner)
    view = CumSumView(outer, length, inner, start, apart, number, first, term, op.exclusive, result, total)
    kind = measured_as(sig.x)
    work = Work().words(f"{kind} element", sig.x.elements, result)
    sums = length - 2 if op.exclusive else length - 1  # to nothing, less is to be added
    work.words(f"{kind} sum", outer * inner * max(sums, 0), total)
    in_order = inner == 1 and not op.reverse
    return Kernel("cumsum", "cumsum.c.j2", view, inplace=(InPlace(exact=not in_order),), work=work)


@design(L2Normalization, types=(DType.INT8, DType.FLOAT32))
def l2_normalization(op: L2Normalization, sig: Signature, target: Target) -> Kernel:
    """Compute the root in float32, or in TFLite's fixed point."""
    depth = sig.x.shape[-1]
    real = scheme_of(sig.x).is_real
    offset = "" if real else plus(-tensor_quant(sig.x).zero_point)
    view = NormView(sig.x.elements // depth, depth, real, offset, c_float(op.epsilon))
    kind = sig.x.dtype.value
    work = Work().block(f"{kind} element", sig.x.elements).block(f"{kind} row", sig.x.elements // depth)
    return Kernel("l2 norm", "l2_normalization.c.j2", view, inplace=(InPlace(),), work=work)


@design(L2Pool2d, types=(DType.FLOAT32,))
def l2_pool(op: L2Pool2d, sig: Signature, target: Target) -> Kernel:
    window = WindowShape.of(MaxPool2d(op.window, op.stride, op.padding), sig)
    epilogue = float_epilogue(op.activation)
    view = L2PoolView(window, epilogue.low, epilogue.high)
    rows, columns = (n.sum() for n in window.taps_inside())
    images = window.batch * window.channels
    work = Work().block("tap", images * float(rows * columns))
    work.block("line", images * float(rows) * window.out_width)
    clamps = bool(view.low) + bool(view.high)
    work.block(f"output clamp {clamps}", sig.y.elements).block("pixel", window.pixels)
    return Kernel("l2 pool", "l2_pool.c.j2", view, work=work)
