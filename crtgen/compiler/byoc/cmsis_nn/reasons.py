"""Reasons why CMSIS-NN does not support an operator."""

from crtgen.compiler.byoc.cmsis_nn.elements import left_shift
from crtgen.compiler.byoc.cmsis_nn.layer import has_own_scales
from crtgen.compiler.byoc.cmsis_nn.transposed import BLOCKS
from crtgen.network.ir import DType, Op, Signature
from crtgen.network.ops import (
    Add,
    AveragePool2d,
    DepthwiseConv2d,
    FullyConnected,
    Logistic,
    MaxPool2d,
    Mul,
    Pad,
    Reshape,
    Softmax,
    StridedSlice,
    Tanh,
    Transpose,
    Weighted,
)
from crtgen.network.ops.compare import Maximum, Minimum
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.rescaling import by_float
from crtgen.network.ops.scheme import INT8, scheme_of
from crtgen.network.ops.svdf import Svdf

__all__ = ["reason"]

_BYTES_ONLY = Maximum | Minimum | Pad | Transpose | Svdf
_AXES = 4


def reason(op: Op, sig: Signature) -> str:
    """Return the reason, empty if it is supported; ``ValueError`` with the reason if its parameters cannot be
    expressed.
    """
    found = _of_types(op, sig)
    if found:
        return found
    if isinstance(op, Weighted):
        return _of_weights(op, sig)
    if isinstance(op, Lstm | Svdf):
        return _of_states(op, sig)
    if any(value.is_constant for value in sig.inputs) and not isinstance(op, Add | Mul | Maximum | Minimum):
        return "its input is constant"
    return _of_shapes(op, sig)


def _of_types(op: Op, sig: Signature) -> str:
    if by_float(sig.y):
        return "its results are rescaled in float32, as ONNX Runtime does it"
    if sig.x.dtype not in (DType.INT8, DType.INT16):
        return f"it is of {sig.x.dtype.value}, not int8 or int16"
    if sig.x.dtype is not sig.y.dtype and not isinstance(op, Softmax):
        return f"its output is of {sig.y.dtype.value}"
    if scheme_of(sig.x) is not INT8 and isinstance(op, _BYTES_ONLY):
        return f"it is of {sig.x.dtype.value}, not int8"
    if isinstance(op, Logistic | Tanh):
        if scheme_of(sig.x) is INT8:
            return "it is of int8, not int16"
        if left_shift(op.parameters(sig)) is None:
            return "its input's scale is no power of two"
    return ""


def _of_weights(op: Weighted, sig: Signature) -> str:
    if sig.x.is_constant or not all(v.is_constant for v in sig.inputs[1:]):
        return "its weights are not constant"
    byte = scheme_of(sig.x) is INT8 and sig.inputs[1].dtype is DType.INT8
    if isinstance(op, FullyConnected) and not byte and has_own_scales(op.parameters(sig)):
        return "its channels are quantised one by one, and not of int8"
    if isinstance(op, DepthwiseConv2d) and sig.inputs[1].dtype is DType.INT4:
        return "its weights are of int4, where CMSIS-NN's outputs differ with Helium"
    if isinstance(op, DepthwiseConv2d) and sig.x.shape[0] != 1:
        return "it has several images"
    short = scheme_of(sig.x) is not INT8 and sig.inputs[2].dtype is DType.INT32
    if short and isinstance(op, DepthwiseConv2d | FullyConnected):
        return "its bias is of int32, not int64"
    return ""


def _of_states(op: Lstm | Svdf, sig: Signature) -> str:
    constants = sig.inputs[1:4] if isinstance(op, Svdf) else sig.inputs[3:]
    if not all(v.is_constant for v in constants):
        return "its weights are not constant"
    if isinstance(op, Svdf) and op.parameters(sig).state_zero_point:
        return "its state has a zero point"
    op.parameters(sig)
    return ""


def _of_shapes(op: Op, sig: Signature) -> str:
    if isinstance(op, Add | Mul) and any(v.shape != sig.y.shape for v in sig.inputs):
        return "its operands have different shapes"
    if isinstance(op, AveragePool2d | MaxPool2d) and sig.x.shape[0] != 1:
        return "it has several images"
    if isinstance(op, Reshape | StridedSlice) or (isinstance(op, Transpose) and op.perm == BLOCKS):
        return ""  # of transposed convolutions
    if max(len(v.shape) for v in (*sig.inputs, sig.y)) > _AXES and not isinstance(op, Add | Mul):
        return f"it has more than {_AXES} axes"
    if isinstance(op, BatchMatMul) and (op.adj_x or not op.adj_y):
        return "its second operand does not have columns one after the other"
    if isinstance(op, Add | Mul | AveragePool2d | MaxPool2d | Softmax | BatchMatMul):
        op.parameters(sig)
    return ""
