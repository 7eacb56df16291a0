"""Networks of papers with weights at random, for benchmarks: memory depends on shapes alone, cycles nearly.

``mobilenet_v1`` is table 1 of arXiv:1704.04861, ``mobilenet_v2`` table 2 of arXiv:1801.04381,
``tiny_yolo`` is the tiny model of Darknet in arXiv:1612.08242.
"""

from crtgen.network.ir import Graph, Node, Op, Quant, Value
from crtgen.network.ops import (
    Activation,
    Add,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    MaxPool2d,
    Mean,
    Padding,
)
from crtgen.network.ops.case import int8s, weights_and_bias

__all__ = ["mobilenet_v1", "mobilenet_v2", "tiny_yolo"]

_QUANT = Quant.tensor(0.05, -3)
_HALVED = Padding(0, 1, 0, 1)
_SAME = Padding(1, 1, 1, 1)

# Channels and strides of MobileNetV1's pairs of layers.
_PAIRS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *((512, 1),) * 5,
    (1024, 2),
    (1024, 1),
)

# Expansion, channels, repeats and first stride of MobileNetV2's blocks.
_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class _Layers:
    """A chain of layers with weights at random."""

    def __init__(self, side: int) -> None:
        self.last = int8s("image", (1, side, side, 3), 0.05, -3)
        self.values, self.nodes = [self.last], list[Node]()

    def layer(self, op: Op, shape: tuple[int, ...] = (), axis: int = 0) -> None:
        """Apply ``op`` to the last value, with weights of this shape."""
        name, constants = f"l{len(self.nodes)}", list[Value]()
        if shape:
            made = weights_and_bias(name, self.last, shape, axis, True)
            constants = [Value.constant(f"{name}_{v.name}", v.array(), v.quant) for v in made]
        self._node(name, op, (self.last, *constants))
        self.values += constants

    def add(self, other: Value) -> None:
        self._node(f"l{len(self.nodes)}", Add(), (self.last, other))

    def separable(self, inputs: int, outputs: int, stride: int, activation: Activation) -> None:
        """Append a depthwise layer and the 1x1 convolution behind it."""
        padding = _HALVED if stride == 2 else _SAME
        self.layer(
            DepthwiseConv2d((stride, stride), padding, activation=Activation.RELU6), (1, 3, 3, inputs), 3
        )
        self.layer(Conv2d(activation=activation), (outputs, 1, 1, inputs))

    def graph(self, name: str) -> Graph:
        return Graph.build(name, self.values, self.nodes, ["image"], [self.last.name])

    def _node(self, name: str, op: Op, inputs: tuple[Value, ...]) -> None:
        ((shape, dtype),) = op.infer(inputs)
        self.last = Value(f"{name}_out", shape, dtype, _QUANT)
        self.values.append(self.last)
        self.nodes.append(Node(name, op, tuple(v.name for v in inputs), (self.last.name,)))


def mobilenet_v1(side: int = 160, width: float = 0.5) -> Graph:
    """MobileNetV1 with a thousand classes."""
    net, channels = _Layers(side), round(32 * width)
    net.layer(Conv2d((2, 2), _HALVED, activation=Activation.RELU6), (channels, 3, 3, 3))
    for wide, stride in _PAIRS:
        outputs = round(wide * width)
        net.separable(channels, outputs, stride, Activation.RELU6)
        channels = outputs
    net.layer(Mean((1, 2)))
    net.layer(FullyConnected(), (1000, channels))
    return net.graph(f"mobilenet_v1_{width:g}_{side}".replace(".", "_"))


def mobilenet_v2(side: int = 224) -> Graph:
    """MobileNetV2 with a thousand classes."""
    net, channels = _Layers(side), 32
    net.layer(Conv2d((2, 2), _HALVED, activation=Activation.RELU6), (32, 3, 3, 3))
    for expansion, outputs, repeats, first in _BLOCKS:
        for number in range(repeats):
            before, wide = net.last, expansion * channels
            if expansion > 1:
                net.layer(Conv2d(activation=Activation.RELU6), (wide, 1, 1, channels))
            net.separable(wide, outputs, first if number == 0 else 1, Activation.NONE)
            if number:
                net.add(before)
            channels = outputs
    net.layer(Conv2d(activation=Activation.RELU6), (1280, 1, 1, channels))
    net.layer(Mean((1, 2)))
    net.layer(FullyConnected(), (1000, 1280))
    return net.graph(f"mobilenet_v2_{side}")


def tiny_yolo(side: int = 192, share: int = 4) -> Graph:
    """YOLOv2's tiny model with one of ``share`` channels, five anchors and twenty classes."""
    net, channels = _Layers(side), 3
    for number, wide in enumerate((16, 32, 64, 128, 256, 512, 1024, 1024)):
        net.layer(Conv2d(padding=_SAME, activation=Activation.RELU6), (wide // share, 3, 3, channels))
        if number < 5:
            net.layer(MaxPool2d((2, 2), (2, 2)))
        channels = wide // share
    net.layer(Conv2d(), (125, 1, 1, channels))
    return net.graph(f"tiny_yolo_{side}")
