"""Addition, subtraction and multiplication with broadcasting."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crtgen.ir import DType, Quant, Signature
from crtgen.kernels.epilogue import float_epilogue, one_rounding, two_roundings
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.literal import plus
from crtgen.kernels.loops import Loop, index_of, merge, repeated_strides
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale
from crtgen.kernels.sums import SumForm, every_sum, quants_of
from crtgen.ops import INT8, Add, Mul, MulParams, Sub, scheme_of

__all__ = ["BinaryView", "operands", "product_scale"]

_Binary = Add | Sub | Mul
_EXTENT = INT8.high - INT8.low
_DELTAS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))


@dataclass(frozen=True, slots=True)
class BinaryView:
    """``a`` and ``b``, which are ``operands[i][indices[i]]``, through ``lines`` of C to ``result``."""

    sum_type: str
    operands: tuple[str, str]
    indices: tuple[str, str]
    loops: tuple[Loop, ...]
    lines: tuple[str, ...]
    result: str


@design(Add, Sub, Mul, types=(DType.INT8, DType.FLOAT32), weights=None)
def exact(op: _Binary, sig: Signature, target: Target) -> Kernel:
    """The definition, with each rounding of its own."""
    if scheme_of(sig.x).is_real:
        return _kernel(sig, "element by element", _float_lines(op), 6)
    if isinstance(op, Mul):
        return _product(op, sig)
    return _kernel(sig, "element by element", _sum_lines(op, sig), 50)


@design(Add, Sub, types=(DType.INT8,), weights=None)
def linear(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """``(a * A + b * B + C) >> s``, if there are A, B, C and s with which all 65,536 pairs come out right."""
    form = _find_linear(op, quants_of(sig))
    if form is None:
        return None
    p = op.parameters(sig)
    lines = (
        f"int32_t v = (a * {form.factors[0]} + b * {form.factors[1]} {plus(form.constant)}) >> {form.shift};",
        f"crt_int8(v, {p.act_min}, {p.act_max})",
    )
    return _kernel(sig, "linear", lines, 9)


def _kernel(sig: Signature, name: str, lines: tuple[str, ...], per_element: float) -> Kernel:
    names, consts = operands(sig)
    strides = [repeated_strides(v, sig.y) for v in sig.inputs]
    loops = [Loop(n, s) for n, s in zip(sig.y.shape, zip(*strides, strict=True), strict=True)]
    merged = merge(loops, 2)
    view = BinaryView(
        sum_type=scheme_of(sig.y).accumulators.c_name,
        operands=names,
        indices=(index_of(merged, 0), index_of(merged, 1)),
        loops=merged,
        lines=lines[:-1],
        result=lines[-1],
    )
    whole = [i for i, v in enumerate(sig.inputs) if not v.is_constant and v.elements == sig.y.elements]
    return Kernel(
        design=name,
        template="binary.c.j2",
        view=view,
        consts=consts,
        inplace=tuple(InPlace(input=i) for i in whole),
        cost=sig.y.elements * per_element,
    )


def operands(sig: Signature) -> tuple[tuple[str, str], tuple[Const, ...]]:
    """The C names of both operands, and the arrays of those that are constant."""
    names, consts, variables = [], [], 0
    for i, value in enumerate(sig.inputs):
        if value.is_constant:
            names.append(f"operand{i}")
            consts.append(Const.of(f"operand{i}", value.array(), 4))
        else:
            names.append(f"x{variables}")
            variables += 1
    return (names[0], names[1]), tuple(consts)


def _float_lines(op: _Binary) -> tuple[str, ...]:
    epilogue = float_epilogue(op.activation)
    lines = [f"float v = a {_sign(op)} b;"]
    lines += [f"v = crt_maxf(v, {epilogue.low});"] if epilogue.low else []
    lines += [f"v = crt_minf(v, {epilogue.high});"] if epilogue.high else []
    return (*lines, "v")


def _sign(op: _Binary) -> str:
    return {"add": "+", "sub": "-", "mul": "*"}[op.name]


def product_scale(params: MulParams) -> Rescale:
    """The requantisation of a product of two int8 values less their zero points."""
    ends = np.array(INT8.limits, np.int64)
    corners = np.outer(ends + params.input1_offset, ends + params.input2_offset)
    numbers = (params.output_multiplier, params.output_shift, corners.min(), corners.max())
    multiplier, shift, least, most = (np.array([n], np.int64) for n in numbers)
    return Rescale(multiplier, shift, params.output_offset, params.act_min, params.act_max, least, most)


def _product(op: Mul, sig: Signature) -> Kernel:
    p = op.parameters(sig)
    product = f"(a {plus(p.input1_offset)}) * (b {plus(p.input2_offset)})"
    clamp = f"crt_int8(v, {p.act_min}, {p.act_max})"
    scaled, name, per_element = one_rounding(product, product_scale(p)), "one rounding", 14
    if scaled is None:
        twice = two_roundings(product, p.output_multiplier, p.output_shift, _EXTENT * _EXTENT)
        scaled = f"{twice} {plus(p.output_offset)}"
        name, per_element = "element by element", 22
    return _kernel(sig, name, (f"int32_t v = {scaled};", clamp), per_element)


def _sum_lines(op: Add | Sub, sig: Signature) -> tuple[str, ...]:
    p = op.parameters(sig)
    extent = _EXTENT << p.left_shift  # of each operand; their sum of halves or less is no more
    a = f"crt_shift_left(a {plus(p.input1_offset)}, {p.left_shift})"
    b = f"crt_shift_left(b {plus(p.input2_offset)}, {p.left_shift})"
    total = two_roundings(f"a {_sign(op)} b", p.output_multiplier, p.output_shift, extent)
    return (
        f"a = {two_roundings(a, p.input1_multiplier, p.input1_shift, extent)};",
        f"b = {two_roundings(b, p.input2_multiplier, p.input2_shift, extent)};",
        f"int32_t v = {total} {plus(p.output_offset)};",
        f"crt_int8(v, {p.act_min}, {p.act_max})",
    )


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
