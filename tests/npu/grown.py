"""Random networks of one to five layers: each layer reads what earlier ones made."""

from collections.abc import Callable, Sequence

import numpy as np

from crtgen.network.ir import Array, DType, Graph, Node, Op, Quant, Signature, Value
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    LeakyRelu,
    Logistic,
    MaxPool2d,
    Mean,
    Mul,
    Pad,
    Padding,
    Quantize,
    Relu,
    Reshape,
    Softmax,
    Sub,
)

__all__ = ["grown"]

_LAYERS = 5
_CHANNELS = (1, 3, 4, 8, 9, 16, 17, 32, 40)


class _Network:
    """A network that grows from its input."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = DType.INT16 if seed % 4 == 3 else DType.INT8
        height, width = (int(n) for n in self.random.integers(1, 17, 2))
        first = Value("x", (1, height, width, self.one_of(_CHANNELS)), self.dtype, self.quant())
        self.values: list[Value] = [first]
        self.nodes: list[Node] = []
        self.made = [first]

    def one_of(self, items: Sequence[int]) -> int:
        return items[int(self.random.integers(len(items)))]

    def quant(self) -> Quant:
        scale = float(np.float32(2.0 ** self.random.uniform(-7, -1)))
        if self.dtype is DType.INT16:
            return Quant.tensor(scale / 256)
        return Quant.tensor(scale, int(self.random.integers(-128, 128)))

    def constant(self, data: Array, quant: Quant | None) -> str:
        name = f"c{len(self.values)}"
        self.values.append(Value.constant(name, data, quant))
        return name

    def apply(self, op: Op, inputs: Sequence[str], quant: Quant) -> None:
        known = {value.name: value for value in self.values}
        ((shape, dtype),) = op.infer([known[name] for name in inputs])
        made = Value(f"v{len(self.nodes)}", shape, dtype, quant)
        node = Node(f"n{len(self.nodes)}", op, tuple(inputs), (made.name,))
        known[made.name] = made
        if hasattr(op, "parameters"):  # scales that the arithmetic does not have
            op.parameters(Signature(tuple(known[name] for name in inputs), (made,)))
        self.values.append(made)
        self.made.append(made)
        self.nodes.append(node)

    def activation(self) -> Activation:
        return (Activation.NONE, Activation.NONE, Activation.RELU, Activation.RELU6)[self.random.integers(4)]

    def weighted(self, x: Value, shape: tuple[int, ...], axis: int) -> tuple[str, str, Quant]:
        """Weights and bias for ``x``, and the quantisation of the output, in which they do not saturate."""
        data = self.random.integers(-127, 128, shape, np.int8)
        if self.random.random() < 0.3:
            data[self.random.random(shape) < 0.8] = 0
        count = shape[axis]
        scales = tuple(float(np.float32(s)) for s in 2.0 ** self.random.uniform(-9, -5, count))
        weights = self.constant(data, Quant(scales, (0,) * count, axis))
        assert x.quant is not None
        taps = data.size // count
        spread = x.quant.scale * max(scales) * 60 * (60 if self.dtype is DType.INT8 else 15000) * taps**0.5
        range_ = 100 if self.dtype is DType.INT8 else 30000
        kind = np.int32 if self.dtype is DType.INT8 else np.int64
        most = 2000 if self.dtype is DType.INT8 else 1 << 20
        products = Quant(tuple(float(np.float32(x.quant.scale * s)) for s in scales), (0,) * count, 0)
        bias = self.constant(self.random.integers(-most, most, count).astype(kind), products)
        zero = int(self.random.integers(-128, 128)) if self.dtype is DType.INT8 else 0
        return weights, bias, Quant.tensor(float(spread / range_), zero)

    def window(self, x: Value, most: int) -> tuple[tuple[int, int], tuple[int, int], Padding]:
        height, width = x.shape[1:3]
        size = (
            int(self.random.integers(1, min(height, most) + 1)),
            int(self.random.integers(1, min(width, most) + 1)),
        )
        stride = (self.one_of((1, 1, 2, 3)), self.one_of((1, 1, 2, 3)))
        same = Padding.same((height, width), size, stride)
        return size, stride, same if self.random.random() < 0.5 else Padding()


def _images(network: _Network) -> Value:
    return next(value for value in reversed(network.made) if len(value.shape) == 4)


def _conv(n: _Network) -> None:
    x = _images(n)
    size, stride, padding = n.window(x, 5)
    dilation = (1, 1)
    if n.random.random() < 0.2 and stride == (1, 1):
        dilation, padding = (2, 1), Padding.same((x.shape[1], x.shape[2]), size, stride, (2, 1))
    outputs = n.one_of(_CHANNELS)
    weights, bias, quant = n.weighted(x, (outputs, *size, x.shape[3]), 0)
    n.apply(Conv2d(stride, padding, dilation, n.activation()), [x.name, weights, bias], quant)


def _depthwise(n: _Network) -> None:
    x = _images(n)
    size, stride, padding = n.window(x, 5)
    weights, bias, quant = n.weighted(x, (1, *size, x.shape[3]), 3)
    op = DepthwiseConv2d(stride, padding, activation=n.activation())
    n.apply(op, [x.name, weights, bias], quant)


def _pool(n: _Network) -> None:
    x = _images(n)
    size, stride, padding = n.window(x, 4)
    kind = (AveragePool2d, MaxPool2d)[n.random.integers(2)]
    assert x.quant is not None
    n.apply(kind(size, stride, padding, n.activation()), [x.name], x.quant)


def _binary(n: _Network) -> None:
    x = n.made[-1]
    same = [value for value in n.made if value.shape == x.shape]
    other = same[n.random.integers(len(same))].name
    if n.random.random() < 0.3:
        info = np.iinfo(n.dtype.value)
        shape = (1,) * (len(x.shape) - 1) + x.shape[-1:]
        other = n.constant(n.random.integers(info.min, info.max, shape, n.dtype.value), n.quant())
    kind = (Add, Sub, Mul)[n.random.integers(3)]
    n.apply(kind(n.activation()), [x.name, other], n.quant())


def _dense(n: _Network) -> None:
    x = n.made[-1]
    weights, bias, quant = n.weighted(x, (n.one_of(_CHANNELS), x.elements), 0)
    n.apply(FullyConnected(n.activation()), [x.name, weights, bias], quant)


def _softmax(n: _Network) -> None:
    x = n.made[-1]
    if x.shape[-1] < 2:
        return
    n.apply(
        Softmax(), [x.name], Quant.tensor(1 / 256, -128) if n.dtype is DType.INT8 else Quant.tensor(1 / 32768)
    )


def _shape(n: _Network) -> None:
    x = n.made[-1]
    assert x.quant is not None
    kind = n.random.integers(4)
    if kind == 0 and len(x.shape) == 4:
        n.apply(Pad((0, 1, 0, 0), (0, 2, 1, 0)), [x.name], x.quant)
    elif kind == 1 and len(x.shape) == 4:
        n.apply(Mean((1, 2), bool(n.random.integers(2))), [x.name], n.quant())
    elif kind == 2:
        n.apply(Concat(len(x.shape) - 1), [x.name, x.name], x.quant)
    else:
        n.apply(Reshape((1, x.elements)), [x.name], x.quant)


def _function(n: _Network) -> None:
    x = n.made[-1]
    kind = n.random.integers(3 if n.dtype is DType.INT8 else 2)
    if kind == 0:
        n.apply(Relu(), [x.name], n.quant())
    elif kind == 1:
        n.apply(Quantize(n.dtype), [x.name], n.quant())
    elif n.random.random() < 0.5:
        n.apply(LeakyRelu(0.2), [x.name], n.quant())
    else:
        n.apply(Logistic(), [x.name], Quant.tensor(1 / 256, -128))


_STEPS: tuple[Callable[[_Network], None], ...] = (
    *(_conv, _conv, _conv, _depthwise, _depthwise, _pool, _pool, _binary, _binary),
    *(_dense, _softmax, _shape, _function),
)


def grown(seed: int) -> Graph | None:
    """Return a network; None if the seed makes one that TFLite's arithmetic does not have."""
    network = _Network(seed)
    try:
        for _ in range(1 + seed % _LAYERS):
            _STEPS[network.random.integers(len(_STEPS))](network)
    except ValueError:
        return None
    if not network.nodes:
        return None
    return Graph.build(f"grown{seed}", network.values, network.nodes, ["x"], [network.made[-1].name])
