"""The operators: attributes, shape rule, numpy reference with the exact arithmetic, test cases."""

from collections.abc import Iterator

from crtgen.ops import activation, binary, conv, dense, pool, quant, reduce, resize, shape
from crtgen.ops.activation import Logistic, Relu, ReluParams, SigmoidParams, Softmax, SoftmaxParams, Tanh
from crtgen.ops.attrs import Activation, Padding
from crtgen.ops.binary import Add, AddParams, Mul, MulParams, Sub
from crtgen.ops.case import Case
from crtgen.ops.conv import Conv2d, ConvParams, DepthwiseConv2d
from crtgen.ops.dense import FullyConnected
from crtgen.ops.pool import AveragePool2d, MaxPool2d, PoolParams
from crtgen.ops.quant import AffineParams, Dequantize, Quantize, RequantizeParams
from crtgen.ops.reduce import Mean, MeanParams
from crtgen.ops.resize import ResizeNearest
from crtgen.ops.shape import Concat, Pad, Reshape, StridedSlice, Transpose

__all__ = [
    "Activation",
    "Add",
    "AddParams",
    "AffineParams",
    "AveragePool2d",
    "Case",
    "Concat",
    "Conv2d",
    "ConvParams",
    "DepthwiseConv2d",
    "Dequantize",
    "FullyConnected",
    "Logistic",
    "MaxPool2d",
    "Mean",
    "MeanParams",
    "Mul",
    "MulParams",
    "Pad",
    "Padding",
    "PoolParams",
    "Quantize",
    "Relu",
    "ReluParams",
    "RequantizeParams",
    "Reshape",
    "ResizeNearest",
    "SigmoidParams",
    "Softmax",
    "SoftmaxParams",
    "StridedSlice",
    "Sub",
    "Tanh",
    "Transpose",
    "all_cases",
]


def all_cases() -> Iterator[Case]:
    """The test cases of every operator."""
    for module in (conv, dense, pool, binary, activation, shape, reduce, resize, quant):
        yield from module.cases()
