"""A network with the shape of MLPerf Tiny's keyword spotting, for selftests; its weights are pseudorandom.

The shape is that of the benchmark's reference model: a 10 x 4 convolution, four times a 3 x 3 depthwise and a
1 x 1 convolution, an average, twelve classes. Its outputs have no meaning, but they must be exact.
"""

from dataclasses import dataclass, field

import numpy as np

from crtgen.api import Model
from crtgen.network.ir import DType, Graph, Node, Op, Quant, Value
from crtgen.network.ops import (
    Activation,
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Padding,
    Softmax,
)
from crtgen.network.ops.shape import Reshape

__all__ = ["NAME", "keywords"]

NAME = "keywords"
_CHANNELS, _CLASSES, _BLOCKS = 64, 12, 4
_SEED = 3
# Of every activation.
_SCALE = 0.05

_PROBABILITY = Quant.tensor(1 / 256, -128)


def keywords() -> Model:
    """Return the network: ``x`` is int8[1,49,10,1], the output int8[1,12]. 22,016 weights, 2,656,768
    multiplications.
    """
    made = _LayerChain()
    around = Padding.same((49, 10), (10, 4), (2, 2))
    made.weighted(Conv2d((2, 2), around, activation=Activation.RELU), (_CHANNELS, 10, 4, 1), 0)
    around = Padding.same((25, 5), (3, 3), (1, 1))
    for _ in range(_BLOCKS):
        by_channel = DepthwiseConv2d((1, 1), around, activation=Activation.RELU)
        made.weighted(by_channel, (1, 3, 3, _CHANNELS), 3)
        made.weighted(Conv2d(activation=Activation.RELU), (_CHANNELS, 1, 1, _CHANNELS), 0)
    made.add(AveragePool2d((25, 5), (25, 5)))
    made.add(Reshape((1, _CHANNELS)))
    made.weighted(FullyConnected(), (_CLASSES, _CHANNELS), 0)
    made.add(Softmax(), quant=_PROBABILITY)
    return Model(made.graph())


def _input() -> Value:
    return Value("x", (1, 49, 10, 1), DType.INT8, Quant.tensor(_SCALE, 0))


@dataclass(slots=True)
class _LayerChain:
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(_SEED))
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    last: Value = field(default_factory=_input)

    def weighted(self, op: Op, shape: tuple[int, ...], axis: int) -> None:
        # A layer with weights of that shape, the output's channels along ``axis``. Sums have about the spread
        # that the inputs have, so that few of them reach a limit.
        number, count = len(self.nodes), shape[axis]
        taps = int(np.prod(shape)) // shape[axis]
        drawn = self.random.uniform(1.0, 1.6, count) / (64 * np.sqrt(taps))
        each = tuple(drawn.astype(np.float32).tolist())
        data = self.random.integers(-127, 128, shape, np.int8)
        x = self.last.quant
        assert x is not None
        scales = tuple(float(np.float32(x.scale * scale)) for scale in each)
        bias = self.random.integers(-2000, 2000, count, np.int32)
        weights = Value.constant(f"w{number}", data, Quant(each, (0,) * count, axis))
        self.add(op, weights, Value.constant(f"b{number}", bias, Quant(scales, (0,) * count, 0)))

    def add(self, op: Op, *constants: Value, quant: Quant | None = None) -> None:
        # A layer on the last output.
        number, inputs = len(self.nodes), (self.last, *constants)
        ((shape, dtype),) = op.infer(inputs)
        made = Value(f"y{number}", shape, dtype, quant or self._quant(bool(constants)))
        self.nodes.append(Node(f"{op.name}{number}", op, tuple(v.name for v in inputs), (made.name,)))
        self.values += inputs
        self.last = made

    def _quant(self, is_weighted: bool) -> Quant | None:
        return Quant.tensor(_SCALE, -128) if is_weighted else self.last.quant

    def graph(self) -> Graph:
        values = {value.name: value for value in (*self.values, self.last)}
        return Graph.build(NAME, list(values.values()), self.nodes, ["x"], [self.last.name])
