"""Addition, subtraction and multiplication with broadcasting."""

from functools import lru_cache

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.arithmetic.sums import SumForm, Ties, every_sum, quants_of
from crtgen.compiler.kernels.engine.elements import clamped, elements, stored
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Quant, Signature
from crtgen.network.ops import INT8, Activation, Add, Mul, MulParams, Sub, scheme_of
from crtgen.network.ops.binary import FusedAddParams
from crtgen.network.ops.scheme import is_plain

__all__ = ["product_scale"]

_Binary = Add | Sub | Mul
_EXTENT = INT8.high - INT8.low
_DELTAS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))


@design(Add, Sub, Mul, types=(*(d for d in DType if d.is_integer), DType.FLOAT32), weights=None)
def exact(op: _Binary, sig: Signature, target: Target) -> Kernel | None:
    """Compute floats or plain integers; None for other types, except for sums in float32."""
    if is_plain(sig.x):
        lines = _whole_lines(op, sig)
        return elements(sig, "element by element", lines) if lines else None
    if scheme_of(sig.x).is_real:
        return elements(sig, "element by element", _float_lines(op))
    p = op.parameters(sig)
    return (
        elements(sig, "element by element", _fused_lines(sig, p)) if isinstance(p, FusedAddParams) else None
    )


@design(Add, Sub, types=(DType.INT8,), weights=None)
def linear(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """Compute ``(a * A + b * B + C) >> s``, with ties as they must be; None if no A, B, C and s are exact for
    all 65,536 pairs.
    """
    form = None if is_plain(sig.x) else _find_linear(op, quants_of(sig))
    if form is None:
        return None
    p = op.parameters(sig)
    total = f"a * {form.factors[0]} + b * {form.factors[1]} {plus(form.constant)}"
    result = f"crt_int8(v, {p.act_min}, {p.act_max})"
    if form.ties is Ties.UP:
        return elements(sig, "linear", (f"int32_t v = ({total}) >> {form.shift};", result))
    tie = f"((v >> {form.shift}) & 1)" if form.ties is Ties.EVEN else f"((v >> 31) * {1 << form.step})"
    lines = (f"int32_t v = {total};", f"v = (v + {tie} {plus(form.last)}) >> {form.shift};", result)
    return elements(sig, "linear", lines)


def _float_lines(op: _Binary) -> tuple[str, ...]:
    epilogue = float_epilogue(op.activation)
    lines = [f"float v = a {_sign(op)} b;"]
    lines += [f"v = crt_maxf(v, {epilogue.low});"] if epilogue.low else []
    lines += [f"v = crt_minf(v, {epilogue.high});"] if epilogue.high else []
    return (*lines, "v")


def _whole_lines(op: _Binary, sig: Signature) -> tuple[str, ...]:
    # Integers, which wrap; no lines for a clamp of another type than int32.
    if sig.x.dtype is not DType.INT32:
        return (_wrapping(op, sig),) if op.activation is Activation.NONE else ()
    result = f"crt_{op.name}32(a, b)"
    if op.activation is Activation.NONE:
        return (result,)
    low, high = op.activation.whole_range(sig.y)
    return (f"crt_min(crt_max({result}, {low}), {high})",)


def _wrapping(op: _Binary, sig: Signature) -> str:
    # Without a sign, where C would not wrap.
    if sig.x.dtype is DType.INT64:
        return f"(int64_t)((uint64_t)a {_sign(op)} (uint64_t)b)"
    return stored(sig.y, f"a {_sign(op)} b")


def _sign(op: _Binary) -> str:
    return {"add": "+", "sub": "-", "mul": "*"}[op.name]


def product_scale(params: MulParams) -> Rescale:
    """Return the requantisation of a product of two int8 values minus their zero points."""
    ends = np.array(INT8.limits, np.int64)
    corners = np.outer(ends + params.input1_offset, ends + params.input2_offset)
    scale = params.output_multiplier, params.output_shift
    limits = params.output_offset, params.act_min, params.act_max
    return Rescale.one(scale, params.factor, limits, (int(corners.min()), int(corners.max())))


def _fused_lines(sig: Signature, p: FusedAddParams) -> tuple[str, ...]:
    # In float32, far enough beyond what the output holds.
    first, second = (c_float(f) for f in p.factors)
    inner = f"crt_fmaf((float)(b + 128), {second}, {c_float(p.start)})"
    return (
        f"float v = crt_fmaf((float)(a + 128), {first}, {inner});",
        clamped(sig.y, "crt_evenf(crt_minf(crt_maxf(v, -512.0f), 512.0f)) - 128", p.act_min, p.act_max),
    )


@lru_cache(maxsize=256)
def _find_linear(op: Add | Sub, quants: tuple[Quant, Quant, Quant]) -> SumForm | None:
    # The linear form, checked on every pair of inputs.
    table = every_sum(op, quants)
    for shift in range(22, 11, -1):
        if sum(map(abs, table.factors)) * 2**shift * INT8.magnitude(0) + 2.0 ** (shift + 9) >= 2**31:
            continue
        for a, b in table.near(shift, _DELTAS):
            total = table.x[0] * a + table.x[1] * b
            constants = table.constants(total, shift)
            near = (max(constants.start, -(2**30)) + min(constants.stop - 1, 2**30)) // 2
            constant = min(max(near, constants.start), constants.stop - 1)
            if constants and abs(constant) + int(np.abs(total).max()) < 2**31:
                return SumForm((a, b), constant, shift)
    for shift in range(16, 7, -1):
        ((a, b),) = table.near(shift, ((0, 0),))
        total, (first, second, _) = table.x[0] * a + table.x[1] * b, table.zero_points
        form = table.with_ties((a, b), total, first * a + second * b, shift)
        if form and int(np.abs(total).max()) + abs(form.constant) < 2**31:
            return form
    return None
