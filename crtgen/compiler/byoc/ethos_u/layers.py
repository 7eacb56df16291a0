"""Converts layers to TFLite operators for Vela: the reverse of the front end.

A row of ``WRITERS`` converts a layer to operators with the same arithmetic. A layer without such operators
raises ``ValueError`` with the reason, and stays on the core. Paddings are explicit in a graph; TFLite has
SAME, VALID and a preceding PAD operator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import tflite

from crtgen.base.formats.tflite_writer import Operator, Options, TfliteTensor
from crtgen.network.ir import Array, DType, Op, Rescaling, Signature, Value
from crtgen.network.ops import (
    Abs,
    Activation,
    Add,
    AveragePool2d,
    BatchMatMul,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    HardSwish,
    LeakyRelu,
    Logistic,
    Maximum,
    MaxPool2d,
    Mean,
    Minimum,
    Mul,
    Pad,
    Padding,
    Quantize,
    Relu,
    Reshape,
    ResizeBilinear,
    ResizeNearest,
    Softmax,
    StridedSlice,
    Sub,
    Tanh,
    Transpose,
)
from crtgen.network.ops.attrs import NO_PADDING

__all__ = ["WRITERS", "VelaLayer", "why_not"]

_TYPES = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32)
_SAME, _VALID = 0, 1


@dataclass(slots=True)
class VelaLayer:
    """A layer being written: its signature, the names of its tensors, and the operators written so far."""

    op: Any
    sig: Signature
    inputs: Sequence[str]
    output: str
    tensors: list[TfliteTensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)

    def add(self, code: str, inputs: Sequence[str], options: Options | None = None, output: str = "") -> None:
        """Add an operator; its output is that of the layer unless another name is given."""
        self.operators.append(Operator(code, inputs, [output or self.output], options))

    def constant(self, numbers: Sequence[Any]) -> str:
        data = np.array(numbers, np.int32)
        name = f"{self.output} constant {len(self.tensors)}"
        self.tensors.append(TfliteTensor(name, data.shape, "int32", data=data))
        return name

    def padded(self, shape: Sequence[int], before: Sequence[int], after: Sequence[int]) -> str:
        """Add an operator that pads the first input, and return the name of its output."""
        name = f"{self.output} padded"
        self.tensors.append(tensor_of(name, self.sig.x, shape))
        widths = self.constant(list(zip(before, after, strict=True)))
        self.add("PAD", [self.inputs[0], widths], Options("PadOptions"), name)
        return name


Writer = Callable[[VelaLayer], None]


def tensor_of(name: str, value: Value, shape: Sequence[int] | None = None) -> TfliteTensor:
    quant = value.quant
    return TfliteTensor(
        name,
        value.shape if shape is None else shape,
        value.dtype.value,
        scales=quant.scales if quant else (),
        zero_points=quant.zero_points if quant else (),
        axis=(quant.axis or 0) if quant else 0,
        data=_data(value),
    )


def _data(value: Value) -> Array | None:
    return value.array() if value.is_constant else None


def why_not(op: Op, sig: Signature) -> str:
    """Return the reason why no TFLite operator computes what a layer does; empty if one does."""
    if type(op) not in WRITERS:
        return f"crtgen does not hand {op.name} to Vela"
    for value in (*sig.inputs, *sig.outputs):
        if value.dtype is DType.FLOAT32:
            return "it computes with floats; the NPU has integers only"
        if value.dtype not in _TYPES and not (value.is_constant and value.dtype is DType.INT64):
            return f"it has values of {value.dtype.value}, which the NPU does not have"
        if value.quant is not None and value.quant.rescaling is not Rescaling.FIXED_POINT:
            return "it is rescaled in float32, as ONNX Runtime does; the NPU scales by integers"
    if not _is_quantised(sig):
        return "its values are not quantised"
    try:
        WRITERS[type(op)](VelaLayer(op, sig, [str(i) for i, _ in enumerate(sig.inputs)], "y"))
    except ValueError as error:
        return str(error)
    return ""


def _is_quantised(sig: Signature) -> bool:
    return all(v.quant is not None for v in (sig.x, *sig.outputs))


def _activation(activation: Activation) -> int:
    name = {Activation.RELU_N1_1: "RELU_N1_TO_1"}.get(activation, activation.name)
    if not hasattr(tflite.ActivationFunctionType, name):
        raise ValueError(f"TFLite has no layer with the activation {activation.value}")
    return int(getattr(tflite.ActivationFunctionType, name))


def _window(layer: VelaLayer, window: tuple[int, int], dilation: tuple[int, int] = (1, 1)) -> tuple[int, str]:
    # The padding as TFLite names it, and the input; padded before if TFLite has no name for it.
    padding, sig = layer.op.padding, layer.sig
    size = (sig.x.shape[1], sig.x.shape[2])
    if padding == NO_PADDING:
        return _VALID, layer.inputs[0]
    if padding == Padding.same(size, window, layer.op.stride, dilation):
        return _SAME, layer.inputs[0]
    if isinstance(layer.op, AveragePool2d | MaxPool2d):
        raise ValueError(f"TFLite has no pool with the padding {padding}")
    batch, height, width, depth = sig.x.shape
    before, after = (0, padding.top, padding.left, 0), (0, padding.bottom, padding.right, 0)
    shape = (batch, height + padding.top + padding.bottom, width + padding.left + padding.right, depth)
    return _VALID, layer.padded(shape, before, after)


def _strides(op: Any) -> dict[str, int]:
    return {"StrideH": op.stride[0], "StrideW": op.stride[1]}


def _convolution(layer: VelaLayer) -> None:
    op = layer.op
    weights = layer.sig.inputs[1]
    if weights.dtype is not DType.INT8:
        raise ValueError(f"the weights are {weights.dtype.value}, expected int8")
    padding, x = _window(layer, (weights.shape[1], weights.shape[2]), op.dilation)
    fields = {
        "Padding": padding,
        **_strides(op),
        "DilationHFactor": op.dilation[0],
        "DilationWFactor": op.dilation[1],
        "FusedActivationFunction": _activation(op.activation),
    }
    if isinstance(op, DepthwiseConv2d):
        options = Options("DepthwiseConv2DOptions", DepthMultiplier=op.multiplier, **fields)
        layer.add("DEPTHWISE_CONV_2D", [x, *layer.inputs[1:]], options)
    else:
        layer.add("CONV_2D", [x, *layer.inputs[1:]], Options("Conv2DOptions", **fields))


def _fully_connected(layer: VelaLayer) -> None:
    if layer.sig.inputs[1].dtype is not DType.INT8:
        raise ValueError(f"the weights are {layer.sig.inputs[1].dtype.value}, expected int8")
    options = Options(
        "FullyConnectedOptions",
        FusedActivationFunction=_activation(layer.op.activation),
        KeepNumDims=layer.op.keep_dims,
    )
    layer.add("FULLY_CONNECTED", layer.inputs, options)


def _pool(layer: VelaLayer) -> None:
    op = layer.op
    padding, x = _window(layer, op.window)
    options = Options(
        "Pool2DOptions",
        Padding=padding,
        **_strides(op),
        FilterHeight=op.window[0],
        FilterWidth=op.window[1],
        FusedActivationFunction=_activation(op.activation),
    )
    layer.add("AVERAGE_POOL_2D" if isinstance(op, AveragePool2d) else "MAX_POOL_2D", [x], options)


def _binary(code: str, table: str) -> Writer:
    def write(layer: VelaLayer) -> None:
        options = Options(table, FusedActivationFunction=_activation(layer.op.activation))
        layer.add(code, layer.inputs, options)

    return write


def _plain(code: str, table: str = "") -> Writer:
    def write(layer: VelaLayer) -> None:
        layer.add(code, layer.inputs, Options(table) if table else None)

    return write


def _sigmoid(code: str) -> Writer:
    def write(layer: VelaLayer) -> None:
        if layer.sig.x.dtype is DType.INT16:
            raise ValueError(
                "the NPU has a function of its own for it in int16, whose last bits are not published"
            )
        layer.add(code, layer.inputs)

    return write


def _softmax(layer: VelaLayer) -> None:
    if layer.sig.x.dtype is DType.INT16:
        raise ValueError("Vela's table for it in int16 has two other entries than TFLite's")
    if layer.op.to not in (None, layer.sig.x.dtype):
        raise ValueError(f"the output is {layer.op.to.value}, expected the type of its input")
    layer.add("SOFTMAX", layer.inputs, Options("SoftmaxOptions", Beta=layer.op.beta))


def _relu(layer: VelaLayer) -> None:
    kind = layer.op.kind
    code = {Activation.RELU: "RELU", Activation.RELU6: "RELU6", Activation.RELU_N1_1: "RELU_N1_TO_1"}
    if kind not in code:
        raise ValueError(f"crtgen does not hand {kind.value} to Vela")
    layer.add(code[kind], layer.inputs)


def _leaky_relu(layer: VelaLayer) -> None:
    if layer.sig.x.dtype is DType.INT16:
        raise ValueError("Vela scales it by 16 bits in int16, which is not TFLite's result")
    layer.add("LEAKY_RELU", layer.inputs, Options("LeakyReluOptions", Alpha=layer.op.alpha))


def _reshape(layer: VelaLayer) -> None:
    shape = list(layer.sig.y.shape)
    layer.add("RESHAPE", [layer.inputs[0], layer.constant(shape)], Options("ReshapeOptions", NewShape=shape))


def _concat(layer: VelaLayer) -> None:
    options = Options("ConcatenationOptions", Axis=layer.op.axis, FusedActivationFunction=0)
    layer.add("CONCATENATION", layer.inputs, options)


def _pad(layer: VelaLayer) -> None:
    if layer.op.fill(layer.sig) != layer.sig.x.quant.zero_point:  # type: ignore[union-attr]
        raise ValueError("the padding has another value than zero")
    widths = list(zip(layer.op.before, layer.op.after, strict=True))
    layer.add("PAD", [layer.inputs[0], layer.constant(widths)], Options("PadOptions"))


def _mean(layer: VelaLayer) -> None:
    options = Options("ReducerOptions", KeepDims=layer.op.keep_dims)
    layer.add("MEAN", [layer.inputs[0], layer.constant(layer.op.axes)], options)


def _transpose(layer: VelaLayer) -> None:
    layer.add("TRANSPOSE", [layer.inputs[0], layer.constant(layer.op.perm)], Options("TransposeOptions"))


def _resize(code: str, table: str) -> Writer:
    def write(layer: VelaLayer) -> None:
        op = layer.op
        options = Options(table, AlignCorners=op.align_corners, HalfPixelCenters=op.half_pixel_centers)
        layer.add(code, [layer.inputs[0], layer.constant(op.size)], options)

    return write


def _strided_slice(layer: VelaLayer) -> None:
    op = layer.op
    if min(op.stride) < 0:
        raise ValueError("the slice goes backwards along an axis")
    shrink = sum(1 << axis for axis in op.shrink)
    places = [layer.constant(numbers) for numbers in (op.begin, op.end, op.stride)]
    options = Options("StridedSliceOptions", BeginMask=0, EndMask=0, ShrinkAxisMask=shrink)
    layer.add("STRIDED_SLICE", [layer.inputs[0], *places], options)


def _batch_matmul(layer: VelaLayer) -> None:
    options = Options("BatchMatMulOptions", AdjX=layer.op.adj_x, AdjY=layer.op.adj_y)
    layer.add("BATCH_MATMUL", layer.inputs, options)


WRITERS: Mapping[type[Op], Writer] = MappingProxyType(
    {
        Conv2d: _convolution,
        DepthwiseConv2d: _convolution,
        FullyConnected: _fully_connected,
        AveragePool2d: _pool,
        MaxPool2d: _pool,
        Add: _binary("ADD", "AddOptions"),
        Sub: _binary("SUB", "SubOptions"),
        Mul: _binary("MUL", "MulOptions"),
        Maximum: _plain("MAXIMUM", "MaximumMinimumOptions"),
        Minimum: _plain("MINIMUM", "MaximumMinimumOptions"),
        Softmax: _softmax,
        Relu: _relu,
        LeakyRelu: _leaky_relu,
        HardSwish: _plain("HARD_SWISH", "HardSwishOptions"),
        Logistic: _sigmoid("LOGISTIC"),
        Tanh: _sigmoid("TANH"),
        Abs: _plain("ABS", "AbsOptions"),
        Quantize: _plain("QUANTIZE", "QuantizeOptions"),
        Reshape: _reshape,
        Concat: _concat,
        Pad: _pad,
        Mean: _mean,
        Transpose: _transpose,
        ResizeNearest: _resize("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
        ResizeBilinear: _resize("RESIZE_BILINEAR", "ResizeBilinearOptions"),
        StridedSlice: _strided_slice,
        BatchMatMul: _batch_matmul,
    }
)
