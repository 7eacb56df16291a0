"""Networks in the shape of known ones, with drawn weights: a MobileNetV2, a SSD, one of int16.

The scale of weights follows from the count of terms in a sum, so that values keep to their range from layer
to layer: outputs are neither all 0 nor all clamped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.tflite_builder import Model, Operator, Options, Tensor

__all__ = ["SHAPED", "mobilenet_v2", "short_network", "ssd"]

_SAME = 0
_RELU6 = 3
_SCALE = {"int8": 6 / 255, "int16": 6 / 32767}
_DEVIATION = 73  # of weights that are drawn from -127 to 127


@dataclass
class _Shaped:
    """A network that grows: each method adds a layer and returns the name of its output."""

    dtype: str = "int8"
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))
    tensors: dict[str, Tensor] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)

    def value(self, shape: tuple[int, ...], scale: float, zero: int = 0) -> str:
        name = f"t{len(self.tensors)}"
        zero = 0 if self.dtype == "int16" else zero
        self.tensors[name] = Tensor(name, shape, self.dtype, [scale], [zero])
        return name

    def _weights(
        self, x: str, shape: tuple[int, ...], channels: int, axis: int, terms: int
    ) -> tuple[str, str]:
        data = self.random.integers(-127, 128, shape).astype(np.int8)
        scale = self.tensors[x].scales[0]
        scales = [_SCALE[self.dtype] / (scale * _DEVIATION * float(np.sqrt(terms)))] * channels
        name, bias = f"w{len(self.tensors)}", f"b{len(self.tensors)}"
        self.tensors[name] = Tensor(name, shape, "int8", scales, [0] * channels, axis, data)
        wide = "int64" if self.dtype == "int16" else "int32"
        values = self.random.integers(-2000, 2000, channels).astype(wide)
        self.tensors[bias] = Tensor(
            bias, (channels,), wide, [scale * s for s in scales], [0] * channels, data=values
        )
        return name, bias

    def conv(self, x: str, channels: int, size: int = 1, stride: int = 1, relu: bool = True) -> str:
        _, height, width, depth = self.tensors[x].shape
        shape = (1, -(-height // stride), -(-width // stride), channels)
        w, b = self._weights(x, (channels, size, size, depth), channels, 0, size * size * depth)
        y = self.value(shape, _SCALE[self.dtype], -128 if relu else 4)
        fields = {"StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1}
        options = Options("Conv2DOptions", Padding=_SAME, FusedActivationFunction=_RELU6 * relu, **fields)
        self.operators.append(Operator("CONV_2D", [x, w, b], [y], options))
        return y

    def depthwise(self, x: str, stride: int = 1) -> str:
        _, height, width, depth = self.tensors[x].shape
        shape = (1, -(-height // stride), -(-width // stride), depth)
        w, b = self._weights(x, (1, 3, 3, depth), depth, 3, 9)
        y = self.value(shape, _SCALE[self.dtype], -128)
        fields = {"StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1}
        options = Options(
            "DepthwiseConv2DOptions",
            Padding=_SAME,
            DepthMultiplier=1,
            FusedActivationFunction=_RELU6,
            **fields,
        )
        self.operators.append(Operator("DEPTHWISE_CONV_2D", [x, w, b], [y], options))
        return y

    def add(self, x: str, other: str) -> str:
        scales = (self.tensors[x].scales[0], self.tensors[other].scales[0])
        y = self.value(tuple(self.tensors[x].shape), float(np.hypot(*scales)), 4)
        fields = {"PotScaleInt16": False} if self.dtype == "int16" else {}
        self.operators.append(Operator("ADD", [x, other], [y], Options("AddOptions", **fields)))
        return y

    def pooled(self, x: str) -> str:
        _, height, width, depth = self.tensors[x].shape
        old = self.tensors[x]
        y = self.value((1, 1, 1, depth), old.scales[0], old.zero_points[0])
        window = {"FilterHeight": height, "FilterWidth": width, "StrideH": 1, "StrideW": 1, "Padding": 1}
        self.operators.append(Operator("AVERAGE_POOL_2D", [x], [y], Options("Pool2DOptions", **window)))
        return y

    def reshaped(self, x: str, shape: tuple[int, ...]) -> str:
        old = self.tensors[x]
        y = self.value(shape, old.scales[0], old.zero_points[0])
        name = f"s{y}"
        self.tensors[name] = Tensor(name, (len(shape),), "int32", data=np.array(shape, np.int32))
        options = Options("ReshapeOptions")
        self.operators.append(Operator("RESHAPE", [x, name], [y], options))
        return y

    def table(self, x: str, code: str) -> str:
        scale, zero = {"int8": (1 / 256, -128), "int16": (1 / 32768, 0)}[self.dtype]
        y = self.value(tuple(self.tensors[x].shape), scale, zero)
        options = Options("SoftmaxOptions", Beta=1.0) if code == "SOFTMAX" else None
        self.operators.append(Operator(code, [x], [y], options))
        return y

    def joined(self, parts: list[str]) -> str:
        shapes = [self.tensors[part].shape for part in parts]
        shape = (1, sum(s[1] for s in shapes), shapes[0][2])
        old = self.tensors[parts[0]]
        for part in parts:  # of one scale, as TFLite asks for
            self.tensors[part].scales = old.scales
            self.tensors[part].zero_points = old.zero_points
        y = self.value(shape, old.scales[0], old.zero_points[0])
        self.operators.append(Operator("CONCATENATION", parts, [y], Options("ConcatenationOptions", Axis=1)))
        return y

    def model(self, x: str, outputs: list[str]) -> bytes:
        return Model(list(self.tensors.values()), self.operators, [x], outputs).to_bytes()


_BLOCKS = ((1, 8, 1, 1), (6, 8, 2, 2), (6, 16, 2, 2), (6, 24, 2, 2), (6, 32, 1, 1), (6, 56, 2, 2))
"""Blocks of MobileNetV2 with a third of its channels: expansion, channels, repetitions, stride."""


def mobilenet_v2(side: int = 96) -> bytes:
    """Inverted residuals from an image of ``side`` x ``side`` to ten classes."""
    net = _Shaped()
    image = net.value((1, side, side, 3), 0.02, 0)
    x = net.conv(image, 16, 3, 2)
    for expansion, channels, count, stride in _BLOCKS:
        for i in range(count):
            inner = net.conv(x, expansion * net.tensors[x].shape[3]) if expansion > 1 else x
            y = net.conv(net.depthwise(inner, stride if i == 0 else 1), channels, relu=False)
            x = net.add(x, y) if i else y
    x = net.pooled(net.conv(x, 128))
    classes = net.reshaped(net.conv(x, 10, relu=False), (1, 10))
    return net.model(image, [net.table(classes, "SOFTMAX")])


def ssd(side: int = 64) -> bytes:
    """A backbone, and boxes and scores of three classes from two of its sizes."""
    net = _Shaped()
    image = net.value((1, side, side, 3), 0.02, 0)
    x = net.conv(image, 16, 3, 2)
    for channels, stride in ((24, 2), (32, 1), (48, 2)):
        x = net.conv(net.depthwise(x, stride), channels)
    y = net.conv(net.depthwise(x, 2), 64)
    boxes, scores = [], []
    for level in (x, y):
        _, height, width, _ = net.tensors[level].shape
        head = net.depthwise(level)
        boxes.append(net.reshaped(net.conv(head, 3 * 4, relu=False), (1, 3 * height * width, 4)))
        scores.append(net.reshaped(net.conv(head, 3 * 3, relu=False), (1, 3 * height * width, 3)))
    return net.model(image, [net.joined(boxes), net.table(net.joined(scores), "LOGISTIC")])


def short_network() -> bytes:
    """Convolutions and a sum of int16, and at the end a function that the NPU has otherwise."""
    net = _Shaped("int16")
    image = net.value((1, 32, 32, 4), _SCALE["int16"])
    x = net.conv(image, 16, 3, 2)
    y = net.conv(net.depthwise(x), 16)
    x = net.pooled(net.conv(net.add(x, y), 24, 3, 2))
    return net.model(image, [net.table(net.reshaped(net.conv(x, 8, relu=False), (1, 8)), "TANH")])


SHAPED: dict[str, Callable[[], bytes]] = {
    "mobilenet_v2": mobilenet_v2,
    "ssd": ssd,
    "short_network": short_network,
}
