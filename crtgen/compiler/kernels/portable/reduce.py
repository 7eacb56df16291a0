"""Reductions over any axes."""

from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import even, one_rounding, two_roundings
from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import clamped, measured_as
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge, strides_of
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import INT8, Mean, scheme_of
from crtgen.network.ops.reduce import All, ReduceMax, ReduceMin, Reduction, Sum, Total

__all__ = ["ReduceView", "image_of", "mean_result"]

_TILE = 4
_WHOLE = tuple(d for d in DType if d.is_integer and d is not DType.INT4)


@dataclass(frozen=True, slots=True)
class ReduceView:
    """``kept`` loops over outputs, and inside them the ``reduced`` loops from ``start``; ``result`` is C in
    terms of ``sum``.

    The sum begins with ``first``; ``step`` is C code that adds an element ``x`` to ``sum``. ``tile`` adjacent
    outputs are summed at a time; it divides the innermost kept loop.
    """

    x_type: str
    sum_type: str
    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    start: str
    index: str
    result: str
    tile: int
    first: str = "0"
    step: str = "sum + x"


@design(Total, types=(DType.INT8, DType.INT16, DType.FLOAT32))
def total(op: Total, sig: Signature, target: Target) -> Kernel | None:
    """Sum the inputs of each output; for a mean, the multiplier includes the division."""
    if sig.x.quant is None and not scheme_of(sig.x).is_real:
        return None
    sum_type = "float" if scheme_of(sig.x).is_real else "int32_t"
    return _reduction(op, sig, sum_type, mean_result(op, sig))


@design(Sum, types=_WHOLE)
def whole_total(op: Sum, sig: Signature, target: Target) -> Kernel | None:
    if sig.x.quant is not None:
        return None
    kind, bits = sig.x.dtype, max(32, 8 * sig.x.dtype.itemsize)
    wide, result = f"uint{bits}_t", "sum" if kind.itemsize >= 4 else f"({kind.c_name})sum"
    if kind.numpy.kind == "u":
        return _reduction(op, sig, wide, result)
    return _reduction(op, sig, f"int{bits}_t", result, step=f"(int{bits}_t)(({wide})sum + ({wide})x)")


@design(ReduceMax, ReduceMin, types=tuple(d for d in _WHOLE if d is not DType.INT8))
def whole_extreme(op: ReduceMax | ReduceMin, sig: Signature, target: Target) -> Kernel:
    least = isinstance(op, ReduceMin)
    first = f"{sig.x.dtype.value.upper()}_{'MAX' if least else 'MIN'}"
    first = "0" if first.startswith("U") and not least else first
    return _reduction(op, sig, sig.x.dtype.c_name, "sum", first, f"(x {op.sign} sum) ? x : sum")


@design(ReduceMax, ReduceMin, types=(DType.INT8, DType.FLOAT32))
def extreme(op: ReduceMax | ReduceMin, sig: Signature, target: Target) -> Kernel:
    real, greatest = scheme_of(sig.x).is_real, isinstance(op, ReduceMax)
    ends = ("__builtin_inff()", "-__builtin_inff()") if real else (str(INT8.high), str(INT8.low))
    step = f"(x {op.sign} sum) ? x : sum"
    number, result = ("float", "sum") if real else ("int32_t", "(int8_t)sum")
    return _reduction(op, sig, number, result, ends[greatest], step)


@design(All)
def every(op: All, sig: Signature, target: Target) -> Kernel:
    return _reduction(op, sig, "bool", "sum", "true", "sum && x")


def _reduction(
    op: Reduction, sig: Signature, sum_type: str, result: str, first: str = "0", step: str = "sum + x"
) -> Kernel:
    loops = [Loop(n, (s,)) for n, s in zip(sig.x.shape, strides_of(sig.x.shape), strict=True)]
    kept = merge([loop for i, loop in enumerate(loops) if i not in op.axes], 1)
    reduced = merge([loop for i, loop in enumerate(loops) if i in op.axes], 1)
    tile = _TILE if kept[-1].strides == (1,) and kept[-1].count % _TILE == 0 else 1
    view = ReduceView(
        x_type=sig.x.dtype.c_name,
        sum_type=sum_type,
        kept=kept,
        reduced=reduced,
        start=index_of(kept, 0),
        index=index_of(reduced, 0, "j"),
        result=result,
        tile=tile,
        first=first,
        step=step,
    )
    return Kernel(design=op.name, template="reduce.c.j2", view=view, work=_work(view, sig))


def _work(view: ReduceView, sig: Signature) -> Work:
    tile, kind, tiles = view.tile, measured_as(sig.x), sig.y.elements // view.tile
    work = Work().words(kind, sig.y.elements, view.result, copies=tile)
    inner = view.reduced[-1]
    where = f"{'in a row' if inner.strides == (1,) else 'apart'}{' twice' if inner.count <= 2 else ''}"
    work.words(f"{kind} step of {tile} {where}", sig.x.elements / tile, view.step)
    work.block(f"outputs of {tile} in {len(view.kept)}", tiles).loops("kept", view.kept)
    for depth in range(1, len(view.reduced)):
        runs = tiles * prod(loop.count for loop in view.reduced[:depth])
        work.block(f"reduced {depth} of {len(view.reduced)}", runs)
    return work


def image_of(op: Mean, x: Value) -> tuple[int, int, int] | None:
    """Return the numbers of images, pixels and channels of ``x`` if the mean is over adjacent axes of pixels;
    otherwise None.
    """
    axes = sorted(op.axes)
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    before, inside, after = x.shape[: axes[0]], x.shape[axes[0] : axes[-1] + 1], x.shape[axes[-1] + 1 :]
    return prod(before), prod(inside), prod(after)


def mean_result(op: Total, sig: Signature) -> str:
    """Return C for the mean, or the scaled sum, of elements with a known ``sum``."""
    if scheme_of(sig.x).is_real:
        return f"sum / {c_float(sig.x.elements // sig.y.elements)}" if op.divides else "sum"
    p, scheme = op.parameters(sig), scheme_of(sig.x)
    ends = p.count * (np.array(INT8.limits, np.int64) + p.input_offset)
    reach = int(ends[0]), int(ends[1])
    rescale = Rescale.one((p.multiplier, p.shift), p.factor, (p.output_offset, *INT8.limits), reach)
    total = f"(sum {plus(p.count * p.input_offset)})"
    scaled = one_rounding(total, rescale) if scheme is INT8 else None
    if scaled is None and p.factor is not None:
        scaled = f"{even(total, p.factor)} {plus(p.output_offset)}"
    if scaled is None:
        extent = (scheme.high - scheme.low) * p.count
        scaled = f"{two_roundings(total, p.multiplier, p.shift, extent)} {plus(p.output_offset)}"
    return clamped(sig.y, scaled, *scheme.limits)
