"""Softmax along the last axis."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import two_roundings
from crtgen.compiler.kernels.asm import Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Softmax, SoftmaxParams, scheme_of
from crtgen.network.ops.fixedpoint import Int64, saturating_rounding_doubling_high_mul
from crtgen.network.ops.gemmlowp import exp_on_negative_values
from crtgen.network.ops.logsoftmax import LogSoftmax
from crtgen.network.ops.softmax16 import Softmax16Params, exp_table, reciprocal_table

__all__ = [
    "FloatSoftmaxView",
    "RowsView",
    "SoftmaxView",
    "TableSoftmaxView",
    "by_routines",
    "powers16_const",
    "powers_const",
    "shares_const",
]

_MOST = 255  # the greatest difference of two int8 values
_INTEGER_BITS = 5  # of an exponent
_LONG = 512  # elements of a row of which no share may come to half a step
_ELEMENTS = 64  # from so many on, a table is worth up to 1 KB


@dataclass(frozen=True, slots=True)
class SoftmaxView:
    """Softmax of ``rows`` of ``depth`` elements; ``multiplier`` and ``shift`` turn a difference of inputs
    into an exponent.

    Differences below ``least`` contribute nothing. Outputs have ``bits`` bits and begin at ``low``; ``clamp``
    is the function that saturates them.
    """

    rows: int
    depth: int
    multiplier: int
    shift: int
    least: int
    bits: int
    low: int
    high: int
    clamp: str


@dataclass(frozen=True, slots=True)
class TableSoftmaxView:
    """``rows`` of ``depth`` elements; differences beyond ``last`` count as ``last``, unless that is 255."""

    rows: int
    depth: int
    last: int


@dataclass(frozen=True, slots=True)
class FloatSoftmaxView:
    """``rows`` of ``depth`` elements; ``beta`` as a C literal."""

    rows: int
    depth: int
    beta: str


@dataclass(frozen=True, slots=True)
class Softmax16View:
    """``rows`` of ``depth`` elements; ``scaled`` is C that turns a difference into a table index."""

    rows: int
    depth: int
    scaled: str


@dataclass(frozen=True, slots=True)
class LogSoftmaxView:
    """Fields of softmax, and ``back``, which turns an exponent into a difference of inputs."""

    rows: int
    depth: int
    multiplier: int
    shift: int
    least: int
    back: tuple[int, int]


@design(Softmax, types=(DType.INT16,))
def softmax16(op: Softmax, sig: Signature, target: Target) -> Kernel:
    p, depth = op.parameters(sig), sig.x.shape[-1]
    assert isinstance(p, Softmax16Params)
    scaled = two_roundings("(x0[i] - largest)", p.multiplier, p.shift, 65535)
    view = Softmax16View(sig.x.elements // depth, depth, scaled)
    work = Work().block("row", view.rows).block("element", sig.x.elements)
    consts = powers16_const(), shares_const()
    return Kernel("softmax16", "softmax16.c.j2", view, consts, inplace=(InPlace(),), work=work)


def powers16_const() -> Const:
    return Const.of("powers", exp_table(), 2, "e^x for x from -10 to 0, times 2^15")


def shares_const() -> Const:
    """Return the factors that turn exponentials into int16 outputs."""
    return Const.of("shares", reciprocal_table(), 2, "1 / (1 + x) for x from 0 to 1, times 2^15")


@dataclass(frozen=True, slots=True)
class RowsView:
    rows: int
    depth: int


def by_routines(
    name: str, sig: Signature, consts: tuple[Const, Const], routines: tuple[Routine, Routine, Routine]
) -> Kernel:
    """Return the int16 kernel of three routines: a row's maximum, its exponentials with their sum, and the
    outputs.
    """
    depth = sig.x.shape[-1]
    rows = sig.x.elements // depth
    work = Work(rows * Runs.sum(routine.runs() for routine in routines)).block("row", rows)
    return Kernel(
        design=name,
        template="softmax16_routines.c.j2",
        view=RowsView(rows, depth),
        consts=consts,
        inplace=(InPlace(),),
        work=work,
        routines=routines,
    )


@design(LogSoftmax, types=(DType.INT8,))
def log_softmax(op: LogSoftmax, sig: Signature, target: Target) -> Kernel:
    p, depth = op.parameters(sig), sig.x.shape[-1]
    s = p.softmax
    numbers = (s.input_multiplier, s.input_left_shift, s.diff_min, p.back)
    view = LogSoftmaxView(sig.x.elements // depth, depth, *numbers)
    work = Work().block("row", view.rows).block("element", sig.x.elements)
    work.block("power", sig.x.elements * _counted(s.diff_min, depth))
    return Kernel("log softmax", "log_softmax.c.j2", view, inplace=(InPlace(),), work=work)


@design(LogSoftmax, types=(DType.FLOAT32,))
def log_softmax_float(op: LogSoftmax, sig: Signature, target: Target) -> Kernel:
    depth = sig.x.shape[-1]
    view = FloatSoftmaxView(sig.x.elements // depth, depth, "")
    work = Work().block("row", view.rows).block("element", sig.x.elements)
    return Kernel("log softmax", "log_softmax_float.c.j2", view, inplace=(InPlace(),), work=work)


@design(Softmax, types=(DType.INT8, DType.FLOAT32))
@design(Softmax, types=(DType.INT8,), to=DType.INT16)
def softmax(op: Softmax, sig: Signature, target: Target) -> Kernel:
    depth = sig.x.shape[-1]
    rows = sig.x.elements // depth
    if scheme_of(sig.x).is_real:
        view: FloatSoftmaxView | SoftmaxView = FloatSoftmaxView(rows, depth, c_float(op.beta))
        work = Work().block("row", rows).block("element", sig.x.elements)
        template = "softmax_float.c.j2"
    else:
        p = op.parameters(sig)
        assert isinstance(p, SoftmaxParams)
        scheme, bits = scheme_of(sig.y), 8 * sig.y.dtype.itemsize
        numbers = (p.input_multiplier, p.input_left_shift, p.diff_min, bits, scheme.low, scheme.high)
        view = SoftmaxView(rows, depth, *numbers, f"crt_{scheme.name if bits == 8 else 'int16'}")
        template = "softmax.c.j2"
        work = Work().block("row", rows).block("element", sig.x.elements).block("long", int(depth >= _LONG))
        work.block("power", sig.x.elements * _counted(p.diff_min, depth))
    return Kernel(
        design="softmax",
        template=template,
        view=view,
        inplace=(InPlace(),) if sig.y.nbytes == sig.x.nbytes else (),
        work=work,
    )


def _counted(least: int, depth: int) -> float:
    # The share of elements whose power is computed, where all int8 numbers are equally frequent.
    below = 256 * (1 - 1 / (depth + 1))  # the greatest of a row is so far from the least, on average
    return (1 + (depth - 1) * min(1.0, -least / below)) / depth


@design(Softmax, types=(DType.INT8,))
def softmax_table(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    """Softmax of int8 with exponentials from a table; None for few elements, and when optimising for size."""
    if target.optimize == "size" or sig.x.elements < _ELEMENTS:
        return None
    depth = sig.x.shape[-1]
    powers = powers_const(op, sig)
    view = TableSoftmaxView(sig.x.elements // depth, depth, powers.shape[0] - 1)
    return Kernel(
        design="softmax table",
        template="softmax_table.c.j2",
        view=view,
        consts=(powers,),
        inplace=(InPlace(),),
        work=Work()
        .block("row", view.rows)
        .block("element" if view.last == _MOST else "element, limited", sig.x.elements)
        .block("long", sig.x.elements if depth >= _LONG else 0),
    )


def powers_const(op: Softmax, sig: Signature) -> Const:
    """Return the exponentials for differences 0, 1, ...: 256 of them, or up to the first that is 0."""
    params = op.exponents(sig)
    difference = -np.arange(256, dtype=np.int64)
    counts = difference >= params.diff_min
    exponent = saturating_rounding_doubling_high_mul(
        np.where(counts, difference, 0) << params.input_left_shift, params.input_multiplier
    )
    powers: Int64 = np.where(counts, exp_on_negative_values(exponent, _INTEGER_BITS), 0)
    used = int(np.argmin(powers)) + 1 if powers[-1] == 0 else len(powers)
    note = "e to minus the difference from the greatest, times 2^31"
    return Const.of("powers", powers[:used].astype(np.int32), 4, note)
