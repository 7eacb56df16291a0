"""Addition, subtraction and multiplication with broadcasting."""

from functools import lru_cache

import numpy as np

from crtgen.ir import DType, Quant, Signature
from crtgen.kernels.elements import clamped, elements, stored
from crtgen.kernels.epilogue import even, float_epilogue, one_rounding, two_roundings
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.literal import c_float, plus
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale
from crtgen.kernels.sums import SumForm, every_sum, quants_of
from crtgen.ops import INT8, Activation, Add, Mul, MulParams, Sub, scheme_of
from crtgen.ops.binary import FusedAddParams
from crtgen.ops.scheme import is_plain

__all__ = ["product_scale"]

_Binary = Add | Sub | Mul
_EXTENT = INT8.high - INT8.low
_DELTAS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))


@design(Add, Sub, Mul, types=(*(d for d in DType if d.is_integer), DType.FLOAT32), weights=None)
def exact(op: _Binary, sig: Signature, target: Target) -> Kernel | None:
    """The definition, with each rounding of its own."""
    if is_plain(sig.x):
        lines = _whole_lines(op, sig)
        return elements(sig, "element by element", lines) if lines else None
    if scheme_of(sig.x).is_real:
        return elements(sig, "element by element", _float_lines(op))
    if isinstance(op, Mul):
        return _product(op, sig)
    return elements(sig, "element by element", _sum_lines(op, sig))


@design(Add, Sub, types=(DType.INT8,), weights=None)
def linear(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """``(a * A + b * B + C) >> s``, if there are A, B, C and s with which all 65,536 pairs come out right."""
    form = None if is_plain(sig.x) else _find_linear(op, quants_of(sig))
    if form is None:
        return None
    p = op.parameters(sig)
    lines = (
        f"int32_t v = (a * {form.factors[0]} + b * {form.factors[1]} {plus(form.constant)}) >> {form.shift};",
        f"crt_int8(v, {p.act_min}, {p.act_max})",
    )
    return elements(sig, "linear", lines)


def _float_lines(op: _Binary) -> tuple[str, ...]:
    epilogue = float_epilogue(op.activation)
    lines = [f"float v = a {_sign(op)} b;"]
    lines += [f"v = crt_maxf(v, {epilogue.low});"] if epilogue.low else []
    lines += [f"v = crt_minf(v, {epilogue.high});"] if epilogue.high else []
    return (*lines, "v")


def _whole_lines(op: _Binary, sig: Signature) -> tuple[str, ...]:
    """Of whole numbers, which wrap; none for a clamp of another type than int32."""
    if sig.x.dtype is not DType.INT32:
        return (_wrapping(op, sig),) if op.activation is Activation.NONE else ()
    result = f"crt_{op.name}32(a, b)"
    if op.activation is Activation.NONE:
        return (result,)
    low, high = op.activation.whole_range(sig.y)
    return (f"crt_min(crt_max({result}, {low}), {high})",)


def _wrapping(op: _Binary, sig: Signature) -> str:
    """Without a sign, where C would not wrap."""
    if sig.x.dtype is DType.INT64:
        return f"(int64_t)((uint64_t)a {_sign(op)} (uint64_t)b)"
    return stored(sig.y, f"a {_sign(op)} b")


def _sign(op: _Binary) -> str:
    return {"add": "+", "sub": "-", "mul": "*"}[op.name]


def product_scale(params: MulParams) -> Rescale:
    """The requantisation of a product of two int8 values less their zero points."""
    ends = np.array(INT8.limits, np.int64)
    corners = np.outer(ends + params.input1_offset, ends + params.input2_offset)
    scale = params.output_multiplier, params.output_shift
    limits = params.output_offset, params.act_min, params.act_max
    return Rescale.one(scale, params.factor, limits, (int(corners.min()), int(corners.max())))


def _product(op: Mul, sig: Signature) -> Kernel:
    p = op.parameters(sig)
    product = f"(a {plus(p.input1_offset)}) * (b {plus(p.input2_offset)})"
    clamp = clamped(sig.y, "v", p.act_min, p.act_max)
    scheme, scaled = scheme_of(sig.y), None
    if scheme is INT8:
        scaled, name = one_rounding(product, product_scale(p)), "one rounding"
    if scaled is None and p.factor is not None:
        scaled, name = f"{even(product, p.factor)} {plus(p.output_offset)}", "element by element"
    if scaled is None:
        extent = max(scheme.magnitude(-p.input1_offset) * scheme.magnitude(-p.input2_offset), _EXTENT)
        twice = two_roundings(product, p.output_multiplier, p.output_shift, extent)
        scaled = f"{twice} {plus(p.output_offset)}"
        name = "element by element"
    return elements(sig, name, (f"int32_t v = {scaled};", clamp))


def _sum_lines(op: Add | Sub, sig: Signature) -> tuple[str, ...]:
    p = op.parameters(sig)
    if isinstance(p, FusedAddParams):
        return _fused_lines(sig, p)
    scheme = scheme_of(sig.y)
    extent = (scheme.high - scheme.low) << p.left_shift  # of each operand; their sum of halves is no more
    first = (p.input1_offset, p.input1_multiplier, p.input1_shift)
    second = (p.input2_offset, p.input2_multiplier, p.input2_shift)
    total = two_roundings(f"a {_sign(op)} b", p.output_multiplier, p.output_shift, extent)
    return (
        f"a = {_scaled('a', first, p.left_shift, extent)};",
        f"b = {_scaled('b', second, p.left_shift, extent)};",
        f"int32_t v = {total} {plus(p.output_offset)};",
        clamped(sig.y, "v", p.act_min, p.act_max),
    )


def _fused_lines(sig: Signature, p: FusedAddParams) -> tuple[str, ...]:
    """In float32, far enough beyond what the output holds."""
    first, second = (c_float(f) for f in p.factors)
    inner = f"crt_fmaf((float)(b + 128), {second}, {c_float(p.start)})"
    return (
        f"float v = crt_fmaf((float)(a + 128), {first}, {inner});",
        clamped(sig.y, "crt_evenf(crt_minf(crt_maxf(v, -512.0f), 512.0f)) - 128", p.act_min, p.act_max),
    )


def _scaled(name: str, scale: tuple[int, int, int], left: int, extent: int) -> str:
    """C for an operand less its zero point, shifted to the left and rescaled; one half is exact."""
    offset, multiplier, shift = scale
    if (multiplier, shift) == (1 << 30, 0):
        return f"crt_shift_left({name} {plus(offset)}, {left - 1})"
    return two_roundings(f"crt_shift_left({name} {plus(offset)}, {left})", multiplier, shift, extent)


@lru_cache(maxsize=256)
def _find_linear(op: Add | Sub, quants: tuple[Quant, Quant, Quant]) -> SumForm | None:
    """The linear form, checked on every pair of inputs."""
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
    return None
