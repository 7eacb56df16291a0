"""The operators: attributes, shape rule, numpy reference with the exact arithmetic, test cases."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

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
from crtgen.ops.scheme import FLOAT32, INT8, INT16, UINT8, Scheme, scheme_of
from crtgen.ops.shape import Concat, Identity, Pad, Reshape, StridedSlice, Transpose
from crtgen.ops.traits import Clamping, Weighted, Windowed, channels

__all__ = [
    "FLOAT32",
    "INT8",
    "INT16",
    "UINT8",
    "Activation",
    "Add",
    "AddParams",
    "AffineParams",
    "AveragePool2d",
    "Case",
    "Clamping",
    "Concat",
    "Conv2d",
    "ConvParams",
    "DepthwiseConv2d",
    "Dequantize",
    "FullyConnected",
    "Identity",
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
    "Scheme",
    "SigmoidParams",
    "Softmax",
    "SoftmaxParams",
    "StridedSlice",
    "Sub",
    "Tanh",
    "Transpose",
    "Weighted",
    "Windowed",
    "all_cases",
    "channels",
    "scheme_of",
]


def all_cases() -> Iterator[Case]:
    """The test cases of every operator: each module of this package that has ``cases``."""
    for found in iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        yield from getattr(module, "cases", tuple)()
