"""The operators: attributes, shape inference, numpy reference with the exact arithmetic, test cases."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from crtgen.network.ops.accumulate import Accumulate
from crtgen.network.ops.activation import (
    LeakyRelu,
    Logistic,
    Relu,
    ReluParams,
    SigmoidParams,
    Softmax,
    SoftmaxParams,
    Tanh,
)
from crtgen.network.ops.affine import DequantizeBy, QuantizeBy
from crtgen.network.ops.arithmetic import AddN, Div, FloorDiv, FloorMod, Pow, Prelu, SquaredDifference
from crtgen.network.ops.attrs import Activation, Padding
from crtgen.network.ops.binary import Add, AddParams, Mul, MulParams, Sub
from crtgen.network.ops.bits import BitAnd, BitCast, BitNot, BitOr, Bitwise, BitXor, Shift
from crtgen.network.ops.block_power import BlockPower
from crtgen.network.ops.camera import Demosaic, Grey, Unpack565, YuvToRgb
from crtgen.network.ops.case import Case
from crtgen.network.ops.compare import (
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
from crtgen.network.ops.control import ControlFlow, If, While
from crtgen.network.ops.conv import Conv2d, ConvParams, DepthwiseConv2d
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.detection import DetectionPostProcess
from crtgen.network.ops.elementwise import Elementwise
from crtgen.network.ops.exponential import ScaledExp
from crtgen.network.ops.fft import Irfft, Rfft
from crtgen.network.ops.function import (
    Abs,
    Atan,
    Cast,
    Ceil,
    Cos,
    Elu,
    Erf,
    Exp,
    Floor,
    Gelu,
    GeluTanh,
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
from crtgen.network.ops.gather import DynamicSlice, DynamicUpdateSlice, Gather, GatherNd
from crtgen.network.ops.grid import GridSample
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.interpolation import Interpolation
from crtgen.network.ops.logsoftmax import LogSoftmax
from crtgen.network.ops.lookup import Lookup
from crtgen.network.ops.lookup_softmax import LookupSoftmax
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.narrow import RoundTo
from crtgen.network.ops.normalize import CumSum, L2Normalization, L2Pool2d
from crtgen.network.ops.pool import AveragePool2d, MaxPool2d, PoolParams
from crtgen.network.ops.quant import AffineParams, Dequantize, Quantize, RequantizeParams
from crtgen.network.ops.recurrent import Recurrent
from crtgen.network.ops.reduce import (
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
from crtgen.network.ops.resample import Blend, ByteTable, Resample
from crtgen.network.ops.resize import ResizeBilinear, ResizeBytes, ResizeLinear, ResizeNearest
from crtgen.network.ops.scatter import Scatter, ScatterElements, ScatterNd
from crtgen.network.ops.scheme import FLOAT32, INT8, INT16, UINT8, Scheme, scheme_of
from crtgen.network.ops.shape import Concat, Identity, Pad, Reshape, StridedSlice, Transpose
from crtgen.network.ops.signal import (
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSquareRoot,
    Pcan,
    SpectralSubtraction,
    SpectrumEnergy,
    Window,
)
from crtgen.network.ops.spectral import (
    Bands,
    Before,
    Frame,
    LogFloor,
    Power,
    RemoveMean,
    RoundedRatio,
    ScaledLog,
)
from crtgen.network.ops.spread import BroadcastTo, MirrorPad, PadWith
from crtgen.network.ops.statistics import Biquads, Moments
from crtgen.network.ops.stream import Delay, Framer, OverlapAdd, Stacker
from crtgen.network.ops.suppression import NonMaxSuppression
from crtgen.network.ops.svdf import Svdf
from crtgen.network.ops.topk import TopK
from crtgen.network.ops.traits import Channelwise, Clamping, Tabulated, Weighted, Windowed, channels
from crtgen.network.ops.trees import Forest, TreeNode, Trees, TreeTest

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
    "Forest",
    "Frame",
    "Framer",
    "FullyConnected",
    "Gather",
    "GatherNd",
    "Gelu",
    "GeluTanh",
    "Greater",
    "GreaterEqual",
    "Greatest",
    "Grey",
    "GridSample",
    "Gru",
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
    "ResizeBytes",
    "ResizeLinear",
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
    "TreeNode",
    "TreeTest",
    "Trees",
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
    """Yield the test cases of every operator, from each module of this package that has ``cases``."""
    for found in iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        yield from getattr(module, "cases", tuple)()
