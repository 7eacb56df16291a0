"""Layers with weights, and poolings."""

from collections.abc import Mapping
from typing import Any

from crtgen.network.ir import Node, Op, Signature
from crtgen.network.ops import AveragePool2d, Conv2d, DepthwiseConv2d, FullyConnected, MaxPool2d
from crtgen.network.ops.normalize import L2Pool2d
from tests.network.ops.oracle.writer import ACTIVATIONS, Write, Writer, Written
from tests.tflite_builder import Operator, Options

_WINDOWS: dict[type[Op], tuple[str, str]] = {
    Conv2d: ("CONV_2D", "Conv2DOptions"),
    DepthwiseConv2d: ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"),
    AveragePool2d: ("AVERAGE_POOL_2D", "Pool2DOptions"),
    MaxPool2d: ("MAX_POOL_2D", "Pool2DOptions"),
    L2Pool2d: ("L2_POOL_2D", "Pool2DOptions"),
}


def _window(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    convolution = not isinstance(op, AveragePool2d | MaxPool2d | L2Pool2d)
    window = sig.inputs[1].shape[1:3] if convolution else op.window
    padding, source = writer.padded(node, sig, window)
    fields: dict[str, Any] = {
        "Padding": padding,
        "StrideH": op.stride[0],
        "StrideW": op.stride[1],
        "FusedActivationFunction": ACTIVATIONS[op.activation],
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


def _fully_connected(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    fields = {"FusedActivationFunction": ACTIVATIONS[op.activation], "KeepNumDims": op.keep_dims}
    return "FULLY_CONNECTED", Options("FullyConnectedOptions", **fields), []


WRITERS: Mapping[type[Op], Write] = {
    Conv2d: _window,
    DepthwiseConv2d: _window,
    AveragePool2d: _window,
    MaxPool2d: _window,
    L2Pool2d: _window,
    FullyConnected: _fully_connected,
}
