"""Element-wise operators other than sums, products and activations: each is a few lines of C."""

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import clamped, elements, stored
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.move import MoveView
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Activation
from crtgen.network.ops.affine import DequantizeBy, QuantizeBy
from crtgen.network.ops.arithmetic import AddN, Div, FloorDiv, FloorMod, Pow, Prelu, SquaredDifference
from crtgen.network.ops.bits import BitCast, BitNot, Bitwise, Shift
from crtgen.network.ops.compare import Comparison, Logical, Maximum, Minimum, Select
from crtgen.network.ops.function import Abs, Cast, LogicalNot, RealFunction, Rsqrt
from crtgen.network.ops.interpolation import Interpolation
from crtgen.network.ops.narrow import RoundTo
from crtgen.network.ops.scheme import is_plain

__all__ = ["real_function"]

_REAL = (DType.FLOAT32,)
_FUNCTIONS = {
    "abs": "__builtin_fabsf(a)",
    "atan": "crt_atanf(a)",
    "ceil": "crt_ceilf(a)",
    "cos": "crt_cosf(a)",
    "elu": "(a < 0.0f) ? crt_expm1f(a) : a",
    "erf": "crt_erff(a)",
    "exp": "crt_expf(a)",
    "floor": "crt_floorf(a)",
    "gelu": "crt_geluf(a)",
    "gelu_tanh": "a * crt_logisticf(1.59576912f * (a + (((0.044715f * a) * a) * a)))",
    "hard_swish": "a * crt_minf(crt_maxf(a + 3.0f, 0.0f), 6.0f) * 0.166666667f",
    "log": "crt_logf(a)",
    "neg": "-a",
    "round": "crt_rintf(a)",
    "rsqrt": "1.0f / crt_sqrtf(a)",
    "sin": "crt_sinf(a)",
    "sqrt": "crt_sqrtf(a)",
    "square": "a * a",
}


@design(RealFunction, types=_REAL)
def real_function(op: RealFunction, sig: Signature, target: Target) -> Kernel:
    return elements(sig, op.name, [_FUNCTIONS[op.name]])


@design(Abs, types=(DType.INT16,))
def abs16(op: Abs, sig: Signature, target: Target) -> Kernel | None:
    return elements(sig, "abs", [stored(sig.y, "(a < 0) ? -a : a")]) if is_plain(sig.x) else None


@design(Rsqrt, types=(DType.INT16,))
def rsqrt16(op: Rsqrt, sig: Signature, target: Target) -> Kernel:
    """Compute Newton steps in 32 bits for each element, as TFLite Micro does; int8 has a table of all its
    values.
    """
    p = op.parameters(sig)
    lines = [
        "int32_t shift;",
        "const int32_t inverse = crt_inverse_sqrt(a, &shift);",
        "const int32_t root = crt_scale(1, inverse, shift + 20);",
        f"const int32_t scaled = crt_scale(root, {p.multiplier}, {p.shift - 20});",
        stored(sig.y, "(a <= 0) ? 32767 : crt_int16(scaled, -32768, 32767)"),
    ]
    return elements(sig, "rsqrt", lines)


@design(Interpolation)
def interpolation(op: Interpolation, sig: Signature, target: Target) -> Kernel:
    table = Const.of("table", np.array(op.table, np.int16))
    return elements(sig, "interpolation", ["crt_lookup16(table, a)"], [table])


@design(LogicalNot, weights=None)
def logical_not(op: LogicalNot, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "not", ["!a"])


@design(Logical, weights=None)
def logical(op: Logical, sig: Signature, target: Target) -> Kernel:
    return elements(sig, op.name, [f"a {op.sign} b"])


@design(Bitwise, weights=None)
def bitwise(op: Bitwise, sig: Signature, target: Target) -> Kernel:
    return elements(sig, op.name, [stored(sig.y, f"a {op.sign} b")])


@design(BitNot, weights=None)
def bit_not(op: BitNot, sig: Signature, target: Target) -> Kernel:
    return elements(sig, op.name, [stored(sig.y, "~a")])


@design(Shift, weights=None)
def shift(op: Shift, sig: Signature, target: Target) -> Kernel:
    """Shift by fewer bits than the type has; otherwise the result is zero."""
    bits, sign = 8 * sig.x.dtype.itemsize, "<<" if op.left else ">>"
    if sig.x.dtype.numpy.kind == "i":
        wide, inside = "uint64_t" if bits == 64 else "uint32_t", f"((b >= 0) && (b < {bits}))"
        left = f"({sig.y.dtype.c_name})({inside} ? (({wide})a << b) : 0u)"
        return elements(
            sig, "shift", [left if op.left else stored(sig.y, f"a >> ({inside} ? b : {bits - 1})")]
        )
    number = (
        f"((b < {bits}) ? ((uint32_t)a {sign} b) : 0u)" if bits < 32 else f"(b < {bits}u) ? (a {sign} b) : 0u"
    )
    return elements(sig, "shift", [stored(sig.y, number)])


@design(BitCast)
def bit_cast(op: BitCast, sig: Signature, target: Target) -> Kernel:
    lines = (f"crt_copy(y0, x0, {sig.y.nbytes});",)
    work = Work().copy(sig.y.nbytes, 1)
    return Kernel("bit cast", "move.c.j2", MoveView((), lines=lines), work=work)


_CUT = {DType.UINT32: "crt_uint32f", DType.INT64: "crt_int64f", DType.UINT64: "crt_int64f"}


@design(Cast)
def cast(op: Cast, sig: Signature, target: Target) -> Kernel:
    """Convert as C does, saturating if floats become integers."""
    if op.to is DType.BOOL:
        result = "a != 0"
    elif op.to is DType.FLOAT32:
        result = "(float)a"
    else:
        number = f"{_CUT.get(op.to, 'crt_int32f')}(a)" if sig.x.dtype is DType.FLOAT32 else "a"
        result = f"({op.to.c_name}){number}"
    return elements(sig, "cast", [result])


@design(RoundTo, types=_REAL)
def round_to(op: RoundTo, sig: Signature, target: Target) -> Kernel:
    """Drop low bits, or convert twice with an FPU; then handle values beyond the largest one."""
    kind = op.format
    if op.to == "float16" and not op.saturate:
        return elements(sig, "round to", ["crt_halff(a)"])
    most, beyond = c_float(kind.most), c_float(kind.beyond(op.saturate))
    lines = [f"const float y = crt_narrowf(a, {kind.dropped}, {kind.first:#x}u);"]
    result = f"(y > {most}) ? {beyond} : ((y < -{most}) ? -{beyond} : y)"
    if not kind.has_nan:
        result = f"(y != y) ? 0.0f : ({result})"
    return elements(sig, "round to", [*lines, result if kind.has_signed_zero else f"({result}) + 0.0f"])


@design(QuantizeBy, weights=None, narrow_weights=True)
def quantize_by(op: QuantizeBy, sig: Signature, target: Target) -> Kernel:
    """Clamp before rounding, to limits well outside of 16 bits."""
    limits = np.iinfo(sig.y.dtype.value)
    lines = [
        "const int32_t steps = crt_evenf(crt_minf(crt_maxf(a / b, -131072.0f), 131072.0f)) + (int32_t)c;",
        stored(sig.y, f"crt_min(crt_max(steps, {limits.min}), {limits.max})"),
    ]
    return elements(sig, "quantise by", lines)


@design(DequantizeBy, weights=None)
def dequantize_by(op: DequantizeBy, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "dequantise by", ["(float)crt_sub32((int32_t)a, (int32_t)c) * b"])


@design(Comparison, weights=None)
def comparison(op: Comparison, sig: Signature, target: Target) -> Kernel | None:
    plain = sig.x.quant is None
    return elements(sig, op.name.replace("_", " "), [f"a {op.sign} b"]) if plain else None


@design(Maximum, Minimum, weights=None)
def extreme(op: Maximum | Minimum, sig: Signature, target: Target) -> Kernel:
    return elements(sig, op.name, [stored(sig.y, f"(a {op.sign} b) ? a : b")])


@design(Select, weights=None)
def select(op: Select, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "select", [stored(sig.y, "a ? b : c")])


def _clamp(activation: Activation, number: str) -> str:
    # C for a float within the limits of an activation.
    epilogue = float_epilogue(activation)
    number = f"crt_maxf({number}, {epilogue.low})" if epilogue.low else number
    return f"crt_minf({number}, {epilogue.high})" if epilogue.high else number


@design(Div, types=(*(d for d in DType if d.is_integer), DType.FLOAT32), weights=None)
def div(op: Div, sig: Signature, target: Target) -> Kernel | None:
    """Compute quotients of float32, plain integers, or int8 with TFLite's reciprocal."""
    if sig.x.dtype is DType.FLOAT32:
        return elements(sig, "div", [_clamp(op.activation, "a / b")])
    if sig.x.quant is None and sig.x.dtype is not DType.INT32:
        return elements(sig, "div", [_quotient(sig)]) if op.activation is Activation.NONE else None
    if sig.x.quant is None:
        low, high = op.activation.whole_range(sig.y)
        clamp = "crt_div32(a, b)"
        if op.activation is not Activation.NONE:
            clamp = f"crt_min(crt_max({clamp}, {low}), {high})"
        return elements(sig, "div", [clamp])
    p = op.parameters(sig)
    operands = f"a {plus(p.input1_offset)}, b {plus(p.input2_offset)}"
    quotient = f"crt_quotient({operands}, {p.output_multiplier}, {p.output_shift}) {plus(p.output_offset)}"
    return elements(sig, "div", [clamped(sig.y, quotient, p.act_min, p.act_max)])


def _quotient(sig: Signature) -> str:
    # C for a quotient of integers: by zero it is zero, and the least one by -1 wraps.
    if sig.x.dtype in (DType.UINT16, DType.UINT32, DType.UINT64):
        return stored(sig.y, "(b == 0u) ? 0u : (a / b)")
    if sig.x.dtype is DType.INT64:
        return "(b == 0) ? 0 : ((b == -1) ? (int64_t)(0u - (uint64_t)a) : (a / b))"
    return stored(sig.y, "crt_div32(a, b)")


@design(FloorDiv, types=_REAL, weights=None)
def floor_div(op: FloorDiv, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "floor div", ["crt_floorf(a / b)"])


@design(FloorMod, types=_REAL, weights=None)
def floor_mod(op: FloorMod, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "floor mod", ["crt_floor_modf(a, b)"])


@design(Pow, types=_REAL, weights=None)
def power(op: Pow, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "pow", ["crt_powf(a, b)"])


@design(SquaredDifference, types=(DType.FLOAT32, DType.INT32), weights=None)
def squared_difference(op: SquaredDifference, sig: Signature, target: Target) -> Kernel:
    if sig.x.dtype is DType.FLOAT32:
        return elements(sig, "squared difference", ["(a - b) * (a - b)"])
    return elements(sig, "squared difference", ["a = crt_sub32(a, b);", "crt_mul32(a, a)"])


@design(AddN, types=_REAL, weights=None)
def add_n(op: AddN, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "add n", [" + ".join(chr(ord("a") + i) for i in range(len(sig.inputs)))])


@design(Prelu, types=_REAL, weights=None)
def prelu(op: Prelu, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "prelu", ["(a >= 0.0f) ? a : (a * b)"])
