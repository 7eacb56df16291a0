"""Shape rules: what each operator refuses, and why."""

import pytest

from crtgen.network.ir import DType, Op, Quant, Signature, Value
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    Dequantize,
    FullyConnected,
    Logistic,
    MaxPool2d,
    Mean,
    Pad,
    Padding,
    Quantize,
    Relu,
    Reshape,
    ResizeNearest,
    Softmax,
    StridedSlice,
    Tanh,
    Transpose,
)
from crtgen.network.ops.case import floats, int8s, int16s

_X = floats("x", (1, 4, 5, 3))
_INT32 = Value("i", (3,), DType.INT32)
_SMALL = floats("h", (1, 2, 3, 3))

_REFUSED: list[tuple[Op, list[Value], str]] = [
    (Conv2d(), [_X], "1 inputs instead of 3"),
    (Conv2d(), [_X, floats("w", (2, 1, 1, 4)), floats("b", (2,))], "weights for 4 channels on 3"),
    (Conv2d(), [_X, floats("w", (2, 1, 1, 3)), floats("b", (3,))], "a bias of 3 for 2 channels"),
    (Conv2d(), [_X, int16s("w", (2, 1, 1, 3)), floats("b", (2,))], "weights of int16 on float32"),
    (Conv2d(), [_X, floats("w", (2, 1, 1, 3)), Value("b", (2,), DType.INT32)], "a bias of int32 on float32"),
    (Conv2d(), [_X, floats("w", (2, 5, 1, 3)), floats("b", (2,))], "a window of 5 does not fit into 4"),
    (Conv2d(), [floats("x", (4, 3)), floats("w", (2, 1, 1, 3)), floats("b", (2,))], "four dimensions"),
    (DepthwiseConv2d(multiplier=2), [_X, floats("w", (1, 1, 1, 3)), floats("b", (3,))], "not 6"),
    (DepthwiseConv2d(), [_X, floats("w", (2, 1, 1, 3)), floats("b", (3,))], "is 2, not 1"),
    (FullyConnected(), [_X, floats("w", (2, 7)), floats("b", (2,))], "weights for 7 inputs on 60 elements"),
    (FullyConnected(keep_dims=True), [_X, floats("w", (2, 6)), floats("b", (2,))], "weights for 6 inputs"),
    (FullyConnected(), [_X, floats("w", (3,)), floats("b", (3,))], "two dimensions"),
    (AveragePool2d((5, 1), (1, 1)), [_X], "a window of 5 does not fit into 4"),
    (MaxPool2d((2, 2), (1, 1), Padding(2, 0, 0, 0)), [_X], "leaves windows outside"),
    (Add(), [_X, floats("y", (4,))], "broadcast"),
    (Add(), [_X, int8s("y", (3,))], "operands of float32 and int8"),
    (Add(), [_INT32, Value("q", (3,), DType.INT32, Quant.tensor(0.1))], "q is quantised, i is not"),
    (Add(), [Value("q", (3,), DType.INT32, Quant.tensor(0.1)), _INT32], "q is int32"),
    (Relu(), [_INT32], "i is int32"),
    (Softmax(), [floats("x", ())], "must have a dimension"),
    (Reshape((7,)), [_X], "60 elements do not make 7"),
    (Pad((1,), (0,)), [_X], "padding of 1 axes on 4"),
    (Pad((0, 0, 0, -1), (0, 0, 0, 0)), [_X], "must not be negative"),
    (Transpose((0, 1, 1, 2)), [_X], "not a permutation"),
    (StridedSlice((0,), (1,), (1,)), [_X], "a slice of 1 axes on 4"),
    (StridedSlice((0, 0, 0, 0), (1, 4, 5, 4), (1, 1, 1, 1)), [_X], "leaves 1x4x5x3 or is empty"),
    (StridedSlice((0, 2, 0, 0), (1, 1, 5, 3), (1, 1, 1, 1)), [_X], "leaves 1x4x5x3 or is empty"),
    (StridedSlice((0, 0, 0, 0), (1, 4, 5, 3), (1, 0, 1, 1)), [_X], "stride is zero"),
    (StridedSlice((0, 0, 0, 0), (1, 4, 5, 3), (1, 1, 1, 1), (1,)), [_X], "not of length 1"),
    (Concat(4), [_X], "there is no axis 4"),
    (Concat(0), [], "it has no inputs"),
    (Concat(3), [_X, floats("y", (1, 4, 4, 3))], "y is 1x4x4x3"),
    (Concat(3), [_X, int8s("y", (1, 4, 5, 3))], "y is int8, not float32"),
    (Mean((4,)), [_X], r"axes \(4,\) of 4 dimensions"),
    (ResizeNearest((2, 2)), [_INT32], "four dimensions"),
    (Quantize(), [Value("t", (3,), DType.BOOL)], "the input is bool"),
    (Dequantize(), [_X], "the input is float32, not quantised"),
]


@pytest.mark.parametrize(
    ("op", "inputs", "reason"), _REFUSED, ids=[f"{op.name}-{reason}" for op, _, reason in _REFUSED]
)
def test_refused(op: Op, inputs: list[Value], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        op.infer(inputs)


def _int8(op: Op, inputs: list[Value], quant: Quant | None) -> Signature:
    ((shape, dtype),) = op.infer(inputs)
    return Signature(tuple(inputs), (Value("y", shape, dtype, quant),))


_LAYER = [int8s("x", (1, 2), 0.1), int8s("w", (2, 2), 0.1, 3), Value("b", (2,), DType.INT32)]
_PER_AXIS = Value("x", (1, 2), DType.INT8, Quant((0.1, 0.2), (0, 0), 1))
_HALF = Quant.tensor(0.5)


@pytest.mark.parametrize(
    ("op", "inputs", "quant", "reason"),
    [
        (FullyConnected(), _LAYER, _HALF, "the zero point of w is not 0"),
        (Relu(), [int8s("x", (2,))], None, "y is int8 without quantisation"),
        (Relu(Activation.RELU6), [_PER_AXIS], _HALF, "x is quantised per axis"),
        (Relu(), [int8s("x", (2,), 1e9)], Quant.tensor(1e-9), "more than 32 bits hold"),
        (Add(), [int8s("a", (2,), 0.5), int8s("b", (2,))], Quant.tensor(1e-7), "too fine for its inputs"),
        (MaxPool2d((1, 1), (1, 1)), [int8s("x", (1, 2, 2, 1))], _HALF, "quantised differently"),
        (Softmax(), [int8s("x", (2,))], _HALF, "instead of scale 0.00390625 zero -128"),
        (Softmax(), [int8s("x", (2,))], Quant.tensor(1.0005 / 256, -128), "instead of scale 0.00390625"),
        (Softmax(), [int16s("x", (2,))], Quant.tensor(1.0011 / 32768), "instead of scale 3.05176e-05"),
        (Softmax(), [int16s("x", (2,), 3e4)], Quant.tensor(1 / 32768), "scale of 30000; supported: up to 5"),
        (Softmax(), [int8s("x", (2,), 1e-9)], Quant.tensor(1 / 256, -128), "too fine for softmax"),
        (Softmax(), [int8s("x", (1, 4096))], Quant.tensor(1 / 256, -128), "4,096 elements; supported: fewer"),
        (Logistic(), [int8s("x", (2,))], _HALF, "instead of scale 0.00390625 zero -128"),
        (Tanh(), [int8s("x", (2,))], _HALF, "instead of scale 0.0078125 zero 0"),
    ],
)
def test_quantisation_that_an_operator_does_not_have(
    op: Op, inputs: list[Value], quant: Quant | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        op.parameters(_int8(op, inputs, quant))  # type: ignore[attr-defined]


def test_resize_sources() -> None:
    op = ResizeNearest((6, 2))
    rows, columns = op.sources(_int8(op, [int8s("x", (1, 3, 5, 1))], _HALF))
    assert rows.tolist() == [0, 0, 1, 1, 2, 2]
    assert columns.tolist() == [0, 2]
