"""What each TFLite operator means, as a table: the schema's name -> converter and types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.tflite_file import FileOperator, FileTensor
from crtgen.ir import Array, DType, Op, shape_text
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
    Padding,
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
from crtgen.ops.activation import LeakyRelu

__all__ = ["CONVERTERS", "Converter", "Layer", "option_fields"]

_ACTIVATIONS = {
    0: Activation.NONE,
    1: Activation.RELU,
    2: Activation.RELU_N1_1,
    3: Activation.RELU6,
    4: "TANH",
    5: "SIGN_BIT",
}


class _Padding(IntEnum):
    SAME = 0
    VALID = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator of the file with its tensors. What is wrong with it is a ``ValueError``."""

    operator: FileOperator
    inputs: tuple[FileTensor | None, ...]
    outputs: tuple[FileTensor, ...]

    @property
    def x(self) -> FileTensor:
        return self.tensor(0)

    @property
    def y(self) -> FileTensor:
        return self.outputs[0]

    def tensor(self, position: int) -> FileTensor:
        """An input that has to be there."""
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if tensor is None:
            raise ValueError(f"input {position} is missing")
        return tensor

    def constant(self, position: int, role: str) -> Array:
        """The data of an input that has to be a constant."""
        tensor = self.tensor(position)
        if tensor.data is None:
            raise Refused(f"{role} that are computed at run time; supported: constants")
        return tensor.data

    def integers(self, position: int, role: str) -> list[int]:
        """A short constant vector of integers."""
        data = self.constant(position, role)
        if data.dtype.kind != "i" or data.size > 64:
            raise ValueError(f"the {role} are {shape_text(data.shape)} of {data.dtype.name}")
        return [int(i) for i in data.reshape(-1).tolist()]

    def option(self, name: str) -> Any:
        """An option of the operator; 0 where the file has no options."""
        return self.operator.options.get(name, 0)

    def activation(self) -> Activation:
        """The fused activation."""
        number = self.option("FusedActivationFunction")
        activation = _ACTIVATIONS.get(number, f"number {number}")
        if not isinstance(activation, Activation):
            raise Refused(f"fused activation {activation}; supported: NONE, RELU, RELU6, RELU_N1_TO_1")
        return activation

    def image(self, position: int = 0) -> tuple[int, int]:
        """Height and width of an input of four dimensions."""
        shape = self.tensor(position).shape
        if len(shape) != 4:
            raise ValueError(f"input {position} has shape {shape_text(shape)} instead of four dimensions")
        return shape[1], shape[2]

    def pair(self, stem: str, suffix: str = "") -> tuple[int, int]:
        """An option for height and width: ``StrideH`` and ``StrideW``."""
        values = tuple(int(self.option(f"{stem}{axis}{suffix}")) for axis in ("H", "W"))
        return values[0], values[1]

    def padding(
        self, window: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int] = (1, 1)
    ) -> Padding:
        """SAME or VALID as rows and columns."""
        if min(*window, *stride, *dilation) < 1:
            raise ValueError(f"window {window}, stride {stride} and dilation {dilation} must be positive")
        if self.option("Padding") == _Padding.VALID:
            return Padding()
        if self.option("Padding") == _Padding.SAME:
            return Padding.same(self.image(), window, stride, dilation)
        raise Refused(f"padding number {self.option('Padding')}; supported: SAME, VALID")


def _with_weights(layer: Layer, op: Op, channels: int) -> Converted:
    """The operands of a layer with weights and an optional bias."""
    x, w = layer.tensor(0), layer.tensor(1)
    if w.dtype is not x.dtype:
        raise Refused(
            f"weights of {w.type_name} on {x.type_name}; supported: INT8 on INT8, FLOAT32 on FLOAT32"
        )
    layer.constant(1, "weights")
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    roles = ("weights", "bias")
    expected = DType.FLOAT32 if x.dtype is DType.FLOAT32 else DType.INT32
    if bias is None:
        return Converted(op, (x, w, np.zeros(channels, expected.numpy)), roles)
    layer.constant(2, "biases")
    if bias.dtype is not expected:
        raise Refused(f"a bias of {bias.type_name} on {x.type_name}; supported: {expected.name}")
    return Converted(op, (x, w, bias), roles)


def _conv2d(layer: Layer) -> Converted:
    layer.image()
    window, stride, dilation = layer.image(1), layer.pair("Stride"), layer.pair("Dilation", "Factor")
    padding = layer.padding(window, stride, dilation)
    channels, depth = layer.tensor(1).shape[0], layer.tensor(1).shape[3]
    if depth != layer.x.shape[3]:
        raise Refused(
            f"grouped convolution, weights for {depth} of {layer.x.shape[3]} channels; supported: one group"
        )
    return _with_weights(layer, Conv2d(stride, padding, dilation, layer.activation()), channels)


def _depthwise_conv2d(layer: Layer) -> Converted:
    layer.image()
    window, stride, dilation = layer.image(1), layer.pair("Stride"), layer.pair("Dilation", "Factor")
    padding = layer.padding(window, stride, dilation)
    channels = layer.tensor(1).shape[3]
    multiplier = channels // layer.x.shape[3]
    op = DepthwiseConv2d(stride, padding, dilation, multiplier, layer.activation())
    return _with_weights(layer, op, channels)


def _fully_connected(layer: Layer) -> Converted:
    if layer.option("WeightsFormat") != 0:
        raise Refused(f"weights format number {layer.option('WeightsFormat')}; supported: DEFAULT")
    shape = layer.tensor(1).shape
    if len(shape) != 2:
        raise ValueError(f"weights of shape {shape_text(shape)} instead of two dimensions")
    op = FullyConnected(layer.activation(), bool(layer.option("KeepNumDims")))
    return _with_weights(layer, op, shape[0])


def _pool(kind: type[AveragePool2d] | type[MaxPool2d]) -> "Convert":
    def convert(layer: Layer) -> Converted:
        height, width = int(layer.option("FilterHeight")), int(layer.option("FilterWidth"))
        stride = layer.pair("Stride")
        padding = layer.padding((height, width), stride)
        return Converted(kind((height, width), stride, padding, layer.activation()), (layer.x,))

    return convert


def _binary(kind: type[Add] | type[Sub] | type[Mul]) -> "Convert":
    def convert(layer: Layer) -> Converted:
        operands = (layer.tensor(0), layer.tensor(1))
        return Converted(kind(layer.activation()), operands, ("operand",))

    return convert


def _unary(op: Op) -> "Convert":
    return lambda layer: Converted(op, (layer.x,))


def _leaky_relu(layer: Layer) -> Converted:
    alpha = float(layer.option("Alpha"))
    if not np.isfinite(alpha):
        raise ValueError(f"alpha is {alpha}")
    return Converted(LeakyRelu(alpha), (layer.x,))


def _softmax(layer: Layer) -> Converted:
    beta = float(layer.option("Beta"))
    if not 0 < beta < np.inf:
        raise Refused(f"beta {beta}; supported: positive numbers")
    return Converted(Softmax(beta), (layer.x,))


def _reshape(layer: Layer) -> Converted:
    """Also squeeze and expand_dims: the file has the resulting shape."""
    if prod(layer.x.shape) != prod(layer.y.shape):
        raise ValueError(f"{shape_text(layer.x.shape)} does not become {shape_text(layer.y.shape)}")
    return Converted(Reshape(layer.y.shape), (layer.x,))


def _pad(layer: Layer) -> Converted:
    amounts = layer.integers(1, "paddings")
    if len(amounts) != 2 * len(layer.x.shape):
        raise ValueError(f"{len(amounts)} paddings for {len(layer.x.shape)} axes")
    return Converted(Pad(tuple(amounts[::2]), tuple(amounts[1::2])), (layer.x,))


def _pad_v2(layer: Layer) -> Converted:
    op = _pad(layer).op
    assert isinstance(op, Pad)
    value, tensor = layer.constant(2, "padding values"), layer.tensor(2)
    if value.size != 1 or tensor.dtype is not layer.x.dtype:
        raise ValueError(f"a padding value of {shape_text(tensor.shape)} {tensor.type_name}")
    if tensor.quant != layer.x.quant:
        raise Refused("a padding value that is quantised unlike the input")
    return Converted(Pad(op.before, op.after, value.reshape(-1)[0].item()), (layer.x,))


def _transpose(layer: Layer) -> Converted:
    rank = len(layer.x.shape)
    perm = tuple(p + rank if p < 0 else p for p in layer.integers(1, "permutations"))
    return Converted(Transpose(perm), (layer.x,))


def _strided_slice(layer: Layer) -> Converted:
    for name in ("EllipsisMask", "NewAxisMask", "Offset"):
        if layer.option(name):
            raise Refused(f"{name}; supported: BeginMask, EndMask, ShrinkAxisMask")
    begins, ends, strides = (layer.integers(i, n) for i, n in enumerate(("begins", "ends", "strides"), 1))
    if not len(begins) == len(ends) == len(strides) <= len(layer.x.shape):
        raise ValueError(f"slices {begins}, {ends}, {strides} of {shape_text(layer.x.shape)}")
    if 0 in strides:
        raise ValueError("the stride is zero")
    ranges, shrink = [], []
    for axis, length in enumerate(layer.x.shape):
        bit = 1 << axis
        if axis >= len(begins):
            ranges.append((0, length, 1))
        elif layer.option("ShrinkAxisMask") & bit:
            at = begins[axis] + length if begins[axis] < 0 else begins[axis]
            ranges.append((at, at + 1, 1))
            shrink.append(axis)
        else:
            first = None if layer.option("BeginMask") & bit else begins[axis]
            last = None if layer.option("EndMask") & bit else ends[axis]
            ranges.append(slice(first, last, strides[axis]).indices(length))
    begin, end, stride = (tuple(r[part] for r in ranges) for part in range(3))
    return Converted(StridedSlice(begin, end, stride, tuple(shrink)), (layer.x,))


def _concat(layer: Layer) -> Converted:
    if layer.activation() is not Activation.NONE:
        raise Refused("a fused activation in a concatenation; supported: NONE")
    axis = int(layer.option("Axis"))
    operands = tuple(layer.tensor(i) for i in range(len(layer.inputs)))
    return Converted(
        Concat(axis + len(layer.x.shape) if axis < 0 else axis),
        operands,
        tuple(f"part{i}" for i in range(1, len(operands))),
    )


def _mean(layer: Layer) -> Converted:
    rank = len(layer.x.shape)
    axes = sorted({a + rank if a < 0 else a for a in layer.integers(1, "axes")})
    return Converted(Mean(tuple(axes), bool(layer.option("KeepDims"))), (layer.x,))


def _resize_nearest(layer: Layer) -> Converted:
    size = layer.integers(1, "sizes")
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"a size of {size}")
    corners, centres = bool(layer.option("AlignCorners")), bool(layer.option("HalfPixelCenters"))
    return Converted(ResizeNearest((size[0], size[1]), corners, centres), (layer.x,))


_FUSED = ("FusedActivationFunction",)
_WINDOW = ("Padding", "StrideH", "StrideW", "FusedActivationFunction")
_CONVOLUTION = (*_WINDOW, "DilationHFactor", "DilationWFactor")
_DEPTHWISE = (*_CONVOLUTION, "DepthMultiplier")
_POOLING = (*_WINDOW, "FilterHeight", "FilterWidth")
_DENSE = ("FusedActivationFunction", "WeightsFormat", "KeepNumDims")
_JOIN = ("Axis", "FusedActivationFunction")
_SLICE = ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset")
_RESIZE = ("AlignCorners", "HalfPixelCenters")

Convert = Callable[[Layer], Converted]
_Types = frozenset[tuple[DType, DType]]

_F32, _I8 = DType.FLOAT32, DType.INT8
_SAME: _Types = frozenset({(_F32, _F32), (_I8, _I8)})


@dataclass(frozen=True, slots=True)
class Converter:
    """A row of the table.

    ``stems`` is what the layer's name begins with, ``options`` the name of the options' table and ``fields``
    what is read of it, ``types`` the pairs of first input and output.
    """

    convert: Convert
    stems: tuple[str, ...]
    options: str = ""
    fields: tuple[str, ...] = ()
    types: _Types = _SAME


CONVERTERS: Mapping[str, Converter] = {
    "ADD": Converter(_binary(Add), ("add",), "AddOptions", _FUSED),
    "AVERAGE_POOL_2D": Converter(
        _pool(AveragePool2d),
        ("average_pool2d", "average_pooling2d"),
        "Pool2DOptions",
        _POOLING,
    ),
    "CONCATENATION": Converter(_concat, ("concat",), "ConcatenationOptions", _JOIN),
    "CONV_2D": Converter(_conv2d, ("conv2d",), "Conv2DOptions", _CONVOLUTION),
    "DEPTHWISE_CONV_2D": Converter(
        _depthwise_conv2d,
        ("depthwise_conv2d",),
        "DepthwiseConv2DOptions",
        _DEPTHWISE,
    ),
    "DEQUANTIZE": Converter(_unary(Dequantize()), ("dequantize",), types=frozenset({(_I8, _F32)})),
    "EXPAND_DIMS": Converter(_reshape, ("expand_dims",)),
    "FULLY_CONNECTED": Converter(
        _fully_connected,
        ("fully_connected", "dense"),
        "FullyConnectedOptions",
        _DENSE,
    ),
    "LEAKY_RELU": Converter(_leaky_relu, ("leaky_relu",), "LeakyReluOptions", ("Alpha",)),
    "LOGISTIC": Converter(_unary(Logistic()), ("logistic", "sigmoid")),
    "MAX_POOL_2D": Converter(
        _pool(MaxPool2d),
        ("max_pool2d", "max_pooling2d"),
        "Pool2DOptions",
        _POOLING,
    ),
    "MEAN": Converter(_mean, ("mean", "global_average_pooling2d"), "ReducerOptions", ("KeepDims",)),
    "MUL": Converter(_binary(Mul), ("mul",), "MulOptions", _FUSED),
    "PAD": Converter(_pad, ("pad", "zero_padding2d")),
    "PADV2": Converter(_pad_v2, ("pad",)),
    "QUANTIZE": Converter(_unary(Quantize()), ("quantize",), types=frozenset({(_F32, _I8), (_I8, _I8)})),
    "RELU": Converter(_unary(Relu(Activation.RELU)), ("relu", "re_lu")),
    "RELU6": Converter(_unary(Relu(Activation.RELU6)), ("relu6",)),
    "RELU_N1_TO_1": Converter(_unary(Relu(Activation.RELU_N1_1)), ("relu_n1_to_1",)),
    "RESHAPE": Converter(_reshape, ("reshape", "flatten")),
    "RESIZE_NEAREST_NEIGHBOR": Converter(
        _resize_nearest,
        ("resize_nearest", "up_sampling2d"),
        "ResizeNearestNeighborOptions",
        _RESIZE,
    ),
    "SOFTMAX": Converter(_softmax, ("softmax",), "SoftmaxOptions", ("Beta",)),
    "SQUEEZE": Converter(_reshape, ("squeeze",)),
    "STRIDED_SLICE": Converter(
        _strided_slice,
        ("strided_slice",),
        "StridedSliceOptions",
        _SLICE,
    ),
    "SUB": Converter(_binary(Sub), ("sub",), "SubOptions", _FUSED),
    "TANH": Converter(_unary(Tanh()), ("tanh",)),
    "TRANSPOSE": Converter(_transpose, ("transpose",)),
}


def option_fields() -> Mapping[str, tuple[str, ...]]:
    """What is read of each table of options."""
    return {row.options: row.fields for row in CONVERTERS.values() if row.options}
