"""Random layers against TFLite Micro's reference kernels."""

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from crtgen.network.ir import Quant
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Case,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Logistic,
    MaxPool2d,
    Mean,
    Mul,
    Padding,
    Quantize,
    Relu,
    Softmax,
    Sub,
    Tanh,
)
from crtgen.network.ops.case import int8s, int16s, make, weights_and_bias
from crtgen.network.ops.function import Rsqrt
from tests.network.ops import oracle
from tests.network.ops.oracle.writer import ACTIVATIONS

_EXAMPLES = settings(max_examples=100, deadline=None)
_sizes = st.integers(1, 9)
_channels = st.integers(1, 6)
_zeros = st.integers(-128, 127)
_activations = st.sampled_from(tuple(ACTIVATIONS))
_seeds = st.integers(0, 1000)


def _scales(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def _check(case: Case, seed: int) -> None:
    graph, inputs = case.graph(), case.inputs(seed)
    (expected,) = oracle.run(oracle.model(graph), inputs, graph.inputs)
    np.testing.assert_array_equal(graph.evaluate(inputs)["y"], expected)


@dataclass(frozen=True)
class _Window:
    image: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: Padding


@st.composite
def _windows(draw: st.DrawFn, dilated: bool) -> _Window:
    """A window that slides over an image, and a padding under which it fits."""
    window = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    spreads = st.integers(1, 2) if dilated else st.just(1)
    dilation = draw(st.tuples(spreads, spreads))
    image = draw(st.tuples(_sizes, _sizes))
    extents = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    fits = all(e <= i for e, i in zip(extents, image, strict=True))
    same = Padding.same(image, window, stride, dilation)
    padding = draw(st.sampled_from([Padding(), same])) if fits else same
    return _Window(image, window, stride, dilation, padding)


@_EXAMPLES
@given(_windows(True), _channels, _channels, _scales(1e-3, 1), _zeros, _scales(1e-2, 10), _zeros, st.data())
def test_conv2d(
    window: _Window,
    channels: int,
    filters: int,
    scale: float,
    zero: int,
    out_scale: float,
    out_zero: int,
    data: st.DataObject,
) -> None:
    x = int8s("x", (1, *window.image, channels), scale, zero)
    op = Conv2d(window.stride, window.padding, window.dilation, data.draw(_activations))
    constants = weights_and_bias(
        str(window), x, (filters, *window.taps, channels), 0, data.draw(st.booleans())
    )
    _check(make("random", op, [x, *constants], Quant.tensor(out_scale, out_zero)), data.draw(_seeds))


@_EXAMPLES
@given(_windows(True), _channels, st.integers(1, 3), _scales(1e-3, 1), _zeros, _scales(1e-2, 10), st.data())
def test_depthwise_conv2d(
    window: _Window,
    channels: int,
    multiplier: int,
    scale: float,
    zero: int,
    out_scale: float,
    data: st.DataObject,
) -> None:
    x = int8s("x", (1, *window.image, channels), scale, zero)
    op = DepthwiseConv2d(window.stride, window.padding, window.dilation, multiplier, data.draw(_activations))
    constants = weights_and_bias(
        str(window), x, (1, *window.taps, channels * multiplier), 3, data.draw(st.booleans())
    )
    _check(make("random", op, [x, *constants], Quant.tensor(out_scale, data.draw(_zeros))), data.draw(_seeds))


@_EXAMPLES
@given(
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 20),
    _scales(1e-3, 1),
    _zeros,
    _scales(1e-2, 10),
    st.data(),
)
def test_fully_connected(
    batch: int, depth: int, outputs: int, scale: float, zero: int, out_scale: float, data: st.DataObject
) -> None:
    x = int8s("x", (batch, depth), scale, zero)
    constants = weights_and_bias(str(depth), x, (outputs, depth), 0, data.draw(st.booleans()))
    op = FullyConnected(data.draw(_activations))
    _check(make("random", op, [x, *constants], Quant.tensor(out_scale, data.draw(_zeros))), data.draw(_seeds))


@_EXAMPLES
@given(
    st.sampled_from([AveragePool2d, MaxPool2d]),
    _windows(False),
    _channels,
    _scales(1e-3, 1),
    _zeros,
    _activations,
    _seeds,
)
def test_pool(
    kind: type[AveragePool2d] | type[MaxPool2d],
    window: _Window,
    channels: int,
    scale: float,
    zero: int,
    activation: Activation,
    seed: int,
) -> None:
    op = kind(window.taps, window.stride, window.padding, activation)
    _check(make("random", op, [int8s("x", (1, *window.image, channels), scale, zero)]), seed)


@_EXAMPLES
@given(
    st.sampled_from([Add, Sub, Mul]),
    st.lists(_sizes, min_size=1, max_size=3),
    st.tuples(_scales(1e-3, 1), _scales(1e-3, 1), _scales(1e-2, 1)),
    st.tuples(_zeros, _zeros, _zeros),
    _activations,
    st.data(),
)
def test_binary(
    kind: type[Add] | type[Sub] | type[Mul],
    shape: list[int],
    scales: tuple[float, float, float],
    zeros: tuple[int, int, int],
    activation: Activation,
    data: st.DataObject,
) -> None:
    other = [data.draw(st.sampled_from([1, d])) for d in shape]
    a = int8s("a", tuple(shape), scales[0], zeros[0])
    b = int8s("b", tuple(other), scales[1], zeros[1])
    _check(make("random", kind(activation), [a, b], Quant.tensor(scales[2], zeros[2])), data.draw(_seeds))


@_EXAMPLES
@given(st.integers(1, 4), st.integers(1, 100), _scales(1e-4, 10), _zeros, st.floats(0.25, 4), _seeds)
def test_softmax(rows: int, columns: int, scale: float, zero: int, beta: float, seed: int) -> None:
    x = int8s("x", (rows, columns), scale, zero)
    beta = float(np.float32(beta))
    _check(make("random", Softmax(beta), [x], Quant.tensor(1 / 256, -128)), seed)


@_EXAMPLES
@given(
    st.tuples(_sizes, _sizes, _sizes, _sizes),
    st.sets(st.integers(0, 3), min_size=1),
    st.booleans(),
    st.tuples(_scales(1e-2, 1), _scales(1e-2, 1)),
    st.tuples(_zeros, _zeros),
    _seeds,
)
def test_mean(
    shape: tuple[int, ...],
    axes: set[int],
    keep: bool,
    scales: tuple[float, float],
    zeros: tuple[int, int],
    seed: int,
) -> None:
    x = int8s("x", shape, scales[0], zeros[0])
    _check(make("random", Mean(tuple(sorted(axes)), keep), [x], Quant.tensor(scales[1], zeros[1])), seed)


@_EXAMPLES
@given(st.sampled_from([Logistic, Tanh]), _scales(1e-5, 8), _zeros)
def test_sigmoid(kind: type[Logistic] | type[Tanh], scale: float, zero: int) -> None:
    case = make("random", kind(), [int8s("x", (256,), scale, zero)], kind.output)
    graph, every = case.graph(), np.arange(-128, 128).astype(np.int8)
    (expected,) = oracle.run(oracle.model(graph), {"x": every}, graph.inputs)
    np.testing.assert_array_equal(graph.evaluate({"x": every})["y"], expected)


@_EXAMPLES
@given(st.sampled_from([Quantize(), Relu()]), _scales(1e-4, 10), _zeros, _scales(1e-4, 10), _zeros)
def test_requantize(op: Quantize | Relu, scale: float, zero: int, out_scale: float, out_zero: int) -> None:
    case = make("random", op, [int8s("x", (256,), scale, zero)], Quant.tensor(out_scale, out_zero))
    graph, every = case.graph(), np.arange(-128, 128).astype(np.int8)
    (expected,) = oracle.run(oracle.model(graph), {"x": every}, graph.inputs)
    np.testing.assert_array_equal(graph.evaluate({"x": every})["y"], expected)


@_EXAMPLES
@given(_scales(1e-9, 1e-1), _scales(1e-6, 1e-1), st.booleans())
def test_rsqrt(scale: float, output: float, wide: bool) -> None:
    """Every positive number; int16 of LayerNorm has scales down to 1e-7."""
    count, zero = (32767, 0) if wide else (255, -128)
    x = int16s("x", (count,), scale) if wide else int8s("x", (count,), scale, zero)
    case = make("rsqrt", Rsqrt(), [x], Quant.tensor(output, zero))
    try:
        Rsqrt().parameters(case.sig)
    except ValueError:
        reject()
    graph = case.graph()
    inputs = {"x": np.arange(zero + 1, zero + 1 + count).astype(x.dtype.numpy)}
    (expected,) = oracle.run(oracle.model(graph), inputs, graph.inputs)
    np.testing.assert_array_equal(graph.evaluate(inputs)["y"], expected)
