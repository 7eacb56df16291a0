"""The operators: attributes, shape rule, numpy reference with the exact arithmetic, test cases."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from crtgen.ops.accumulate import Accumulate
from crtgen.ops.activation import (
    LeakyRelu,
    Logistic,
    Relu,
    ReluParams,
    SigmoidParams,
    Softmax,
    SoftmaxParams,
    Tanh,
)
from crtgen.ops.affine import DequantizeBy, QuantizeBy
from crtgen.ops.arithmetic import AddN, Div, FloorDiv, FloorMod, Pow, Prelu, SquaredDifference
from crtgen.ops.attrs import Activation, Padding
from crtgen.ops.binary import Add, AddParams, Mul, MulParams, Sub
from crtgen.ops.bits import BitAnd, BitCast, BitNot, BitOr, Bitwise, BitXor, Shift
from crtgen.ops.block_power import BlockPower
from crtgen.ops.camera import Demosaic, Grey, Unpack565, YuvToRgb
from crtgen.ops.case import Case
from crtgen.ops.compare import (
    Comparison,
    Equal,
    Extreme,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Logical,
    LogicalAnd,
    LogicalOr,
    Maximum,
    Minimum,
    NotEqual,
    Select,
)
from crtgen.ops.control import ControlFlow, If, While
from crtgen.ops.conv import Conv2d, ConvParams, DepthwiseConv2d
from crtgen.ops.dense import FullyConnected
from crtgen.ops.detection import DetectionPostProcess
from crtgen.ops.elementwise import Elementwise
from crtgen.ops.exponential import ScaledExp
from crtgen.ops.fft import Irfft, Rfft
from crtgen.ops.function import (
    Abs,
    Atan,
    Cast,
    Ceil,
    Cos,
    Elu,
    Erf,
    Exp,
    Floor,
    HardSwish,
    Log,
    LogicalNot,
    Neg,
    RealFunction,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
)
from crtgen.ops.gather import DynamicSlice, DynamicUpdateSlice, Gather, GatherNd
from crtgen.ops.grid import GridSample
from crtgen.ops.interpolation import Interpolation
from crtgen.ops.logsoftmax import LogSoftmax
from crtgen.ops.lookup import Lookup
from crtgen.ops.lookup_softmax import LookupSoftmax
from crtgen.ops.lstm import Lstm
from crtgen.ops.matmul import BatchMatMul
from crtgen.ops.narrow import RoundTo
from crtgen.ops.normalize import CumSum, L2Normalization, L2Pool2d
from crtgen.ops.pool import AveragePool2d, MaxPool2d, PoolParams
from crtgen.ops.quant import AffineParams, Dequantize, Quantize, RequantizeParams
from crtgen.ops.recurrent import Recurrent
from crtgen.ops.reduce import (
    All,
    ArgMax,
    ArgMin,
    ArgReduction,
    Greatest,
    Mean,
    MeanParams,
    ReduceMax,
    ReduceMin,
    Reduction,
    Sum,
    Total,
)
from crtgen.ops.resample import Blend, ByteTable, Resample
from crtgen.ops.resize import ResizeBilinear, ResizeNearest
from crtgen.ops.scatter import Scatter, ScatterElements, ScatterNd
from crtgen.ops.scheme import FLOAT32, INT8, INT16, UINT8, Scheme, scheme_of
from crtgen.ops.shape import Concat, Identity, Pad, Reshape, StridedSlice, Transpose
from crtgen.ops.signal import (
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSquareRoot,
    Pcan,
    SpectralSubtraction,
    SpectrumEnergy,
    Window,
)
from crtgen.ops.spectral import Bands, Before, Frame, LogFloor, Power, RemoveMean, RoundedRatio, ScaledLog
from crtgen.ops.spread import BroadcastTo, MirrorPad, PadWith
from crtgen.ops.statistics import Biquads, Moments
from crtgen.ops.stream import Delay, Framer, OverlapAdd, Stacker
from crtgen.ops.suppression import NonMaxSuppression
from crtgen.ops.svdf import Svdf
from crtgen.ops.topk import TopK
from crtgen.ops.traits import Channelwise, Clamping, Tabulated, Weighted, Windowed, channels

__all__ = [
    "FLOAT32",
    "INT8",
    "INT16",
    "UINT8",
    "Abs",
    "Accumulate",
    "Activation",
    "Add",
    "AddN",
    "AddParams",
    "AffineParams",
    "All",
    "ArgMax",
    "ArgMin",
    "ArgReduction",
    "Atan",
    "AveragePool2d",
    "Bands",
    "BatchMatMul",
    "Before",
    "Biquads",
    "BitAnd",
    "BitCast",
    "BitNot",
    "BitOr",
    "BitXor",
    "Bitwise",
    "Blend",
    "BlockPower",
    "BroadcastTo",
    "ByteTable",
    "Case",
    "Cast",
    "Ceil",
    "Channelwise",
    "Clamping",
    "Comparison",
    "Concat",
    "ControlFlow",
    "Conv2d",
    "ConvParams",
    "Cos",
    "CumSum",
    "Delay",
    "Demosaic",
    "DepthwiseConv2d",
    "Dequantize",
    "DequantizeBy",
    "DetectionPostProcess",
    "Div",
    "DynamicSlice",
    "DynamicUpdateSlice",
    "Elementwise",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Extreme",
    "FftAutoScale",
    "FilterBank",
    "FilterBankLog",
    "FilterBankSquareRoot",
    "Floor",
    "FloorDiv",
    "FloorMod",
    "Frame",
    "Framer",
    "FullyConnected",
    "Gather",
    "GatherNd",
    "Greater",
    "GreaterEqual",
    "Greatest",
    "Grey",
    "GridSample",
    "HardSwish",
    "Identity",
    "If",
    "Interpolation",
    "Irfft",
    "L2Normalization",
    "L2Pool2d",
    "LeakyRelu",
    "Less",
    "LessEqual",
    "Log",
    "LogFloor",
    "LogSoftmax",
    "Logical",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "Logistic",
    "Lookup",
    "LookupSoftmax",
    "Lstm",
    "MaxPool2d",
    "Maximum",
    "Mean",
    "MeanParams",
    "Minimum",
    "MirrorPad",
    "Moments",
    "Mul",
    "MulParams",
    "Neg",
    "NonMaxSuppression",
    "NotEqual",
    "OverlapAdd",
    "Pad",
    "PadWith",
    "Padding",
    "Pcan",
    "PoolParams",
    "Pow",
    "Power",
    "Prelu",
    "Quantize",
    "QuantizeBy",
    "RealFunction",
    "Recurrent",
    "ReduceMax",
    "ReduceMin",
    "Reduction",
    "Relu",
    "ReluParams",
    "RemoveMean",
    "RequantizeParams",
    "Resample",
    "Reshape",
    "ResizeBilinear",
    "ResizeNearest",
    "Rfft",
    "Round",
    "RoundTo",
    "RoundedRatio",
    "Rsqrt",
    "ScaledExp",
    "ScaledLog",
    "Scatter",
    "ScatterElements",
    "ScatterNd",
    "Scheme",
    "Select",
    "Shift",
    "SigmoidParams",
    "Sin",
    "Softmax",
    "SoftmaxParams",
    "SpectralSubtraction",
    "SpectrumEnergy",
    "Sqrt",
    "Square",
    "SquaredDifference",
    "Stacker",
    "StridedSlice",
    "Sub",
    "Sum",
    "Svdf",
    "Tabulated",
    "Tanh",
    "TopK",
    "Total",
    "Transpose",
    "Unpack565",
    "Weighted",
    "While",
    "Window",
    "Windowed",
    "YuvToRgb",
    "all_cases",
    "channels",
    "scheme_of",
]


def all_cases() -> Iterator[Case]:
    """The test cases of every operator: each module of this package that has ``cases``."""
    for found in iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        yield from getattr(module, "cases", tuple)()
