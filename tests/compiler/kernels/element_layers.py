"""Element-wise layers in every type that they have, drawn by hypothesis; see ``layers.py``."""

from collections.abc import Sequence

import numpy as np
from hypothesis import assume, reject
from hypothesis import strategies as st

from crtgen.network.ir import Array, DType, Op, Quant, Value
from crtgen.network.ops import Activation, Add, Case, Dequantize, Logistic, Mul, Quantize, Relu, Sub, Tanh
from crtgen.network.ops.activation import LeakyRelu
from crtgen.network.ops.arithmetic import AddN, Div, FloorDiv, FloorMod, Prelu, SquaredDifference
from crtgen.network.ops.case import make
from crtgen.network.ops.compare import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalOr,
    Maximum,
    Minimum,
    NotEqual,
    Select,
)
from crtgen.network.ops.function import (
    Abs,
    Cast,
    Ceil,
    Cos,
    Elu,
    Exp,
    Floor,
    Gelu,
    GeluTanh,
    HardSwish,
    Log,
    LogicalNot,
    Neg,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
)
from crtgen.network.ops.interpolation import Interpolation

__all__ = ["COMPARISONS", "FUNCTIONS", "QUOTIENTS", "comparisons", "functions", "pairs", "quotients", "units"]

FUNCTIONS: tuple[type[Op], ...] = (
    Abs, Cast, Ceil, Cos, Elu, Exp, Floor, Gelu, GeluTanh, HardSwish, Interpolation, Log, Neg, Round, Rsqrt,
    Sin, Sqrt, Square,
)  # fmt: skip
COMPARISONS: tuple[type[Op], ...] = (
    Equal, Greater, GreaterEqual, Less, LessEqual, LogicalAnd, LogicalNot, LogicalOr, Maximum, Minimum,
    NotEqual, Select,
)  # fmt: skip
QUOTIENTS: tuple[type[Op], ...] = (AddN, Div, FloorDiv, FloorMod, Prelu, SquaredDifference)
_F32, _I8, _I16, _I32, _I64 = DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32, DType.INT64
_LIMITS = {"log": (1e-6, 1e6), "sqrt": (0.0, 1e9), "rsqrt": (1e-6, 1e6), "exp": (-30.0, 30.0)}
_seeds = st.integers(0, 1 << 16)
_zeros = st.one_of(st.sampled_from([0, -128, 127]), st.integers(-128, 127))
_exponents = st.integers(-400, -1)
_scales = _exponents.map(lambda n: 2.0 ** (n / 64))


def _quant(draw: st.DrawFn, dtype: DType) -> Quant | None:
    if dtype is _I16:
        return Quant.tensor(draw(_scales) / 128)
    if dtype is DType.UINT8:
        return Quant.tensor(draw(_scales), draw(_zeros) + 128)
    return Quant.tensor(draw(_scales), draw(_zeros)) if dtype is _I8 else None


def _case(
    op: Op,
    inputs: Sequence[Value],
    quant: Quant | None = None,
    limits: dict[str, tuple[float, float]] | None = None,
) -> Case:
    """The layer, unless its quantisation is beyond what TFLite computes in 32 bits."""
    try:
        case = make("drawn", op, inputs, quant, limits or {})
        arrays = [v.array() if v.is_constant else case.inputs(1)[v.name] for v in case.sig.inputs]
        op.reference(case.sig, arrays)
    except ValueError:
        reject()
    return case


def _constant(value: Value, seed: int) -> Value:
    random = np.random.default_rng(seed)
    data: Array
    if value.dtype is _F32:
        data = random.uniform(0.5, 2, value.shape).astype(np.float32)
    elif value.dtype is DType.BOOL:
        data = random.integers(0, 2, value.shape).astype(np.bool_)
    else:
        data = random.integers(1, 100, value.shape).astype(value.dtype.numpy)
    return Value.constant(value.name, data, value.quant)


def _values(draw: st.DrawFn, dtypes: Sequence[DType]) -> list[Value]:
    """Operands of one shape, or with axes that are repeated; now and then one is constant."""
    shape = (*draw(st.lists(st.integers(1, 7), max_size=3)), draw(st.integers(1, 40)))
    shapes = [list(shape) for _ in dtypes]
    if draw(st.booleans()):
        last = len(dtypes) - 1
        for number, axis in draw(st.lists(st.tuples(st.integers(0, last), st.integers(0, 3)), max_size=4)):
            shapes[number][axis % len(shape)] = 1
        shapes[draw(st.integers(0, last))][: draw(st.integers(0, len(shape)))] = []
    triples = zip("abc", shapes, dtypes, strict=False)
    values = [Value(name, tuple(s), dtype, _quant(draw, dtype)) for name, s, dtype in triples]
    fixed = draw(st.sampled_from([None, None, *range(len(dtypes))])) if len(dtypes) > 1 else None
    if fixed is not None:
        values[fixed] = _constant(values[fixed], draw(_seeds))
    return values


@st.composite
def functions(draw: st.DrawFn) -> Case:
    """Functions of one element: float32, and int8 or int16 where there are such."""
    real: list[Op] = [Abs(), Neg(), Square(), Floor(), Ceil(), Round(), Elu(), HardSwish(), Exp(), Log()]
    real += [Sin(), Cos(), Sqrt(), Rsqrt(), Gelu(), GeluTanh()]
    dtype = draw(st.sampled_from([_F32, _F32, _F32, _I8, _I8, _I16]))
    if dtype is _I8 and draw(st.booleans()):
        return _cast(draw)
    few: list[Op] = [Abs(), Elu(), HardSwish(), Rsqrt()]
    op = draw(st.sampled_from(real if dtype is _F32 else few if dtype is _I8 else [Abs(), _by_table(draw)]))
    (x,) = _values(draw, [dtype])
    limits = {"a": _LIMITS.get(op.name, draw(st.sampled_from([(-3.0, 3.0), (-1e3, 1e3), (-1e9, 1e9)])))}
    return _case(op, [x], _quant(draw, dtype), limits if dtype is _F32 else None)


def _by_table(draw: st.DrawFn) -> Op:
    """Of any numbers, which a table of TFLite's may have, too."""
    table = np.random.default_rng(draw(_seeds)).integers(-(1 << 15), 1 << 15, 513)
    return Interpolation(tuple(table.tolist()), "drawn")


def _cast(draw: st.DrawFn) -> Case:
    kinds = (_F32, _I8, _I16, _I32, _I64, DType.UINT8, DType.BOOL)
    of_kinds = st.tuples(st.sampled_from(kinds), st.sampled_from(kinds))
    source, to = draw(st.one_of(st.just((_F32, _I8)), of_kinds))
    assume(source is not to)
    (x,) = _values(draw, [source])
    return _case(Cast(to), [Value("a", x.shape, source)], None, {"a": (0.0, 100.0)})


@st.composite
def pairs(draw: st.DrawFn) -> Case:
    """Sums and products of int16, and of whole numbers that mean themselves."""
    op = draw(st.sampled_from([Add(), Sub(), Mul()]))
    dtype = draw(st.sampled_from([_I16, _I16, _I32]))
    if dtype is _I16:
        activated = op.clamped(draw(st.sampled_from(Activation)))
        return _case(activated, _values(draw, [_I16, _I16]), _quant(draw, _I16))
    small = dict.fromkeys("ab", draw(st.sampled_from([(-9.0, 9.0), (1.0, 40000.0)])))
    return _case(op, _values(draw, [_I32, _I32]), None, small)


@st.composite
def units(draw: st.DrawFn) -> Case:
    """Activations of int16, and conversions from and to int16, int32 and uint8."""
    quantize: list[Op] = [Quantize(_I8), Quantize(_I16), Quantize(_I16), Quantize(_I32)]
    leaky: list[Op] = [LeakyRelu(0.25), LeakyRelu(-1.5)]
    groups: list[list[Op]] = [[Relu()], [Relu()], leaky, [Logistic(), Tanh()], [Dequantize()], quantize]
    op = draw(st.sampled_from(draw(st.sampled_from(groups))))
    source = draw(st.sampled_from([_I16, _I16, _I8, DType.UINT8])) if isinstance(op, Quantize) else _I16
    (x,) = _values(draw, [source])
    if isinstance(op, Quantize):
        op = Quantize(DType.UINT8) if source is _I8 else op if source is _I16 else Quantize(_I8)
        if source is not _I16 and draw(st.booleans()):
            assert x.quant is not None
            zero = x.quant.zero_point + (128 if source is _I8 else -128)
            return _case(op, [x], Quant.tensor(x.quant.scale, zero))
        return _case(op, [x], _quant(draw, _I8 if op.to is _I32 else op.to))
    return _case(op, [x], op.output_of(x) if isinstance(op, Logistic | Tanh) else _quant(draw, _I16))


@st.composite
def comparisons(draw: st.DrawFn) -> Case:
    """Comparisons, logic, the greater and the lesser, choices."""
    ordered: list[Op] = [Equal(), NotEqual(), Greater(), GreaterEqual(), Less(), LessEqual()]
    op = draw(
        st.sampled_from([*ordered, Maximum(), Minimum(), LogicalAnd(), LogicalOr(), LogicalNot(), Select()])
    )
    few = dict.fromkeys("abc", (-5.0, 5.0))
    if isinstance(op, LogicalNot):
        return _case(op, _values(draw, [DType.BOOL]))
    if isinstance(op, LogicalAnd | LogicalOr):
        return _case(op, _values(draw, [DType.BOOL] * 2))
    if isinstance(op, Select):
        dtype = draw(st.sampled_from([_F32, _I8, _I16]))
        return _case(op, _values(draw, [DType.BOOL, dtype, dtype]), _quant(draw, dtype), few)
    types = [_F32, _I8, _I32, _I64] if op in ordered else [_F32, _I8, _I16, _I32, _I64]
    dtype = draw(st.sampled_from(types))
    return _case(op, _values(draw, [dtype, dtype]), _quant(draw, dtype), few)


@st.composite
def quotients(draw: st.DrawFn) -> Case:
    """Quotients, remainders, squared differences, slopes, sums of many."""
    dtype = draw(st.sampled_from([_F32, _F32, _I8, _I8, _I16, _I32]))
    if dtype is _I16:
        short = draw(st.sampled_from([SquaredDifference(), Prelu()]))
        types = [_I16, _I8 if isinstance(short, Prelu) else _I16]
        return _case(short, _values(draw, types), _quant(draw, _I16))
    if dtype is _I32:
        whole = draw(st.sampled_from([Div(), SquaredDifference()]))
        return _case(whole, _values(draw, [_I32, _I32]), None, {"b": (1.0, 40000.0)})
    ops: list[Op] = [Div(), Div(Activation.RELU), SquaredDifference(), Prelu(), AddN()]
    op = draw(st.sampled_from([*ops, FloorDiv(), FloorMod()] if dtype is _F32 else ops))
    if isinstance(op, AddN):
        (x,) = _values(draw, [dtype])
        many = [Value(n, x.shape, dtype, x.quant) for n in "abcde"[: draw(st.integers(2, 5))]]
        return _case(op, many, _quant(draw, dtype))
    apart = {"b": (0.5, 4.0)} if dtype is _F32 else None
    return _case(op, _values(draw, [dtype, dtype]), _quant(draw, dtype), apart)
