"""TFLite Micro as the oracle: a graph as a `.tflite` file, and its outputs by tflite-micro."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tflite import ActivationFunctionType, Padding
from tflite_micro import runtime

from crtgen.ir import Array, DType, Graph, Node, Op, Signature, Value
from crtgen.ops import (
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
    Mul,
    Pad,
    Quantize,
    Relu,
    Reshape,
    ResizeNearest,
    Softmax,
    StridedSlice,
    Sub,
    Tanh,
    Transpose,
)
from crtgen.ops import Padding as Border
from crtgen.ops.activation import LeakyRelu
from tests.tflite_builder import Model, Operator, Options, Tensor

__all__ = ["assert_same", "model", "run"]

_ACTIVATIONS = {
    Activation.NONE: ActivationFunctionType.NONE,
    Activation.RELU: ActivationFunctionType.RELU,
    Activation.RELU6: ActivationFunctionType.RELU6,
    Activation.RELU_N1_1: ActivationFunctionType.RELU_N1_TO_1,
}
_ARENA = 1 << 22


class _Writer:
    """Collects the tensors and operators of a model."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = [_tensor(v) for v in graph.values.values()]
        self.operators: list[Operator] = []

    def constant(self, name: str, data: Any, dtype: str = "int32", like: Value | None = None) -> str:
        array = np.asarray(data, dtype)
        quant = like.quant if like is not None else None
        scales, zeros = (quant.scales, quant.zero_points) if quant else ((), ())
        self.tensors.append(Tensor(name, array.shape, dtype, scales, zeros, data=array))
        return name

    def node(self, node: Node) -> None:
        write = _WRITERS[type(node.op)]
        code, options, extra = write(self, node, self.graph.signature(node))
        inputs = [*node.inputs, *extra]
        self.operators.append(Operator(code, inputs, node.outputs, options))

    def padded(self, node: Node, sig: Signature, window: tuple[int, ...]) -> tuple[int, str]:
        """TFLite's padding and the name of the input: padded by an operator of its own where it has to be."""
        op: Any = node.op
        dilation = getattr(op, "dilation", (1, 1))
        size = (sig.x.shape[1], sig.x.shape[2])
        if op.padding == Border():
            return Padding.VALID, sig.x.name
        if op.padding == Border.same(size, (window[0], window[1]), op.stride, dilation):
            return Padding.SAME, sig.x.name
        p = op.padding
        amounts = [[0, 0], [p.top, p.bottom], [p.left, p.right], [0, 0]]
        shape = tuple(d + sum(a) for d, a in zip(sig.x.shape, amounts, strict=True))
        name = f"{node.name}_padded"
        self.tensors.append(_tensor(Value(name, shape, sig.x.dtype, sig.x.quant)))
        self.operators.append(Operator("PAD", [sig.x.name, self.constant(f"{name}_by", amounts)], [name]))
        return Padding.VALID, name


def _tensor(value: Value) -> Tensor:
    quant = value.quant
    if quant is None:
        return Tensor(value.name, value.shape, value.dtype.value, data=value.data)
    return Tensor(
        value.name,
        value.shape,
        value.dtype.value,
        quant.scales,
        quant.zero_points,
        quant.axis or 0,
        value.data,
    )


_Written = tuple[str, Options | None, list[str]]


_WINDOWS: dict[type[Op], tuple[str, str]] = {
    Conv2d: ("CONV_2D", "Conv2DOptions"),
    DepthwiseConv2d: ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"),
    AveragePool2d: ("AVERAGE_POOL_2D", "Pool2DOptions"),
    MaxPool2d: ("MAX_POOL_2D", "Pool2DOptions"),
}


def _window(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    convolution = not isinstance(op, AveragePool2d | MaxPool2d)
    window = sig.inputs[1].shape[1:3] if convolution else op.window
    padding, source = writer.padded(node, sig, window)
    fields: dict[str, Any] = {
        "Padding": padding,
        "StrideH": op.stride[0],
        "StrideW": op.stride[1],
        "FusedActivationFunction": _ACTIVATIONS[op.activation],
    }
    if convolution:
        fields |= {"DilationHFactor": op.dilation[0], "DilationWFactor": op.dilation[1]}
    else:
        fields |= {"FilterHeight": window[0], "FilterWidth": window[1]}
    if isinstance(op, DepthwiseConv2d):
        fields["DepthMultiplier"] = op.multiplier
    code, table = _WINDOWS[type(op)]
    writer.operators.append(
        Operator(code, [source, *node.inputs[1:]], node.outputs, Options(table, **fields))
    )
    return "", None, []


def _fully_connected(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    fields = {"FusedActivationFunction": _ACTIVATIONS[op.activation], "KeepNumDims": op.keep_dims}
    return "FULLY_CONNECTED", Options("FullyConnectedOptions", **fields), []


def _binary(code: str, table: str) -> Callable[[_Writer, Node, Signature], _Written]:
    def write(writer: _Writer, node: Node, sig: Signature) -> _Written:
        op: Any = node.op
        return code, Options(table, FusedActivationFunction=_ACTIVATIONS[op.activation]), []

    return write


def _plain(code: str) -> Callable[[_Writer, Node, Signature], _Written]:
    return lambda writer, node, sig: (code, None, [])


def _softmax(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    return "SOFTMAX", Options("SoftmaxOptions", Beta=op.beta), []


def _relu(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    code = {Activation.RELU: "RELU", Activation.RELU6: "RELU6", Activation.RELU_N1_1: "RELU_N1_TO_1"}
    return code[op.kind], None, []


def _leaky_relu(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    return "LEAKY_RELU", Options("LeakyReluOptions", Alpha=op.alpha), []


def _reshape(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    shape = writer.constant(f"{node.name}_shape", op.shape)
    return "RESHAPE", Options("ReshapeOptions", NewShape=op.shape), [shape]


def _pad(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    amounts = writer.constant(f"{node.name}_by", list(zip(op.before, op.after, strict=True)))
    if op.value is None:
        return "PAD", Options("PadOptions"), [amounts]
    value = writer.constant(f"{node.name}_value", [op.value], sig.x.dtype.value, sig.x)
    return "PADV2", Options("PadV2Options"), [amounts, value]


def _transpose(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    return "TRANSPOSE", Options("TransposeOptions"), [writer.constant(f"{node.name}_perm", op.perm)]


def _strided_slice(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    open_ends = sum(1 << a for a, e in enumerate(op.end) if e == -1)
    shrink = sum(1 << a for a in op.shrink)
    parts = [writer.constant(f"{node.name}_{k}", getattr(op, k)) for k in ("begin", "end", "stride")]
    return "STRIDED_SLICE", Options("StridedSliceOptions", EndMask=open_ends, ShrinkAxisMask=shrink), parts


def _concat(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    return "CONCATENATION", Options("ConcatenationOptions", Axis=op.axis), []


def _mean(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    return (
        "MEAN",
        Options("ReducerOptions", KeepDims=op.keep_dims),
        [writer.constant(f"{node.name}_axes", op.axes)],
    )


def _resize(writer: _Writer, node: Node, sig: Signature) -> _Written:
    op: Any = node.op
    fields = {"AlignCorners": op.align_corners, "HalfPixelCenters": op.half_pixel_centers}
    size = writer.constant(f"{node.name}_size", op.size)
    return "RESIZE_NEAREST_NEIGHBOR", Options("ResizeNearestNeighborOptions", **fields), [size]


_WRITERS: dict[type, Callable[[_Writer, Node, Signature], _Written]] = {
    Conv2d: _window,
    DepthwiseConv2d: _window,
    AveragePool2d: _window,
    MaxPool2d: _window,
    FullyConnected: _fully_connected,
    Add: _binary("ADD", "AddOptions"),
    Sub: _binary("SUB", "SubOptions"),
    Mul: _binary("MUL", "MulOptions"),
    Softmax: _softmax,
    Logistic: _plain("LOGISTIC"),
    Tanh: _plain("TANH"),
    Relu: _relu,
    LeakyRelu: _leaky_relu,
    Reshape: _reshape,
    Pad: _pad,
    Transpose: _transpose,
    StridedSlice: _strided_slice,
    Concat: _concat,
    Mean: _mean,
    ResizeNearest: _resize,
    Quantize: _plain("QUANTIZE"),
    Dequantize: _plain("DEQUANTIZE"),
}


def model(graph: Graph) -> bytes:
    """The graph as a `.tflite` file."""
    writer = _Writer(graph)
    for node in graph.nodes:
        writer.node(node)
    return Model(
        writer.tensors, [o for o in writer.operators if o.code], graph.inputs, graph.outputs
    ).to_bytes()


def run(data: bytes, inputs: Mapping[str, Array], names: tuple[str, ...], outputs: int = 1) -> list[Array]:
    """The outputs of a `.tflite` file by tflite-micro's reference kernels."""
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA)
    for index, name in enumerate(names):
        interpreter.set_input(inputs[name], index)
    interpreter.invoke()
    return [interpreter.get_output(i).copy() for i in range(outputs)]


def assert_same(actual: Array, expected: Array) -> None:
    """int8 is equal; float32 differs by at most 1e-5 of the largest output."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if actual.dtype == DType.FLOAT32.numpy:
        error = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
        assert error <= 1e-5 * max(float(np.abs(expected).max()), 1e-30)
    else:
        np.testing.assert_array_equal(actual, expected)
