"""Quantised layers: integers with scales and zero points at both ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.affine import dequantized, quantized
from crtgen.network.frontends.onnx_convert.integers import conv_sums, dense_sums, in_steps
from crtgen.network.frontends.onnx_convert.layer import (
    ANY,
    NUMBERS,
    Convert,
    OnnxConverter,
    OnnxLayer,
    Operand,
    cast,
    number,
    reshaped,
    transposed,
)
from crtgen.network.frontends.onnx_convert.pool import averaged_whole
from crtgen.network.frontends.onnx_convert.weights import convolved, turned
from crtgen.network.frontends.onnx_convert.window import ConvStorage
from crtgen.network.frontends.onnx_edges import (
    DEQUANTIZE,
    LOOKUP,
    OF_BYTE,
    QUANTIZE,
    RECODED,
    TRANSPOSED,
    as_int8,
    numbers_of,
    quant_of,
    real_numbers,
)
from crtgen.network.frontends.onnx_recurrent import RECURRENT
from crtgen.network.frontends.onnx_short import CONV, DENSE, TURNED
from crtgen.network.ir import Array, DType, Quant, Value
from crtgen.network.ops import (
    Activation,
    Add,
    Concat,
    Dequantize,
    FullyConnected,
    Mean,
    Mul,
    Quantize,
    Reshape,
)
from crtgen.network.ops.bits import BitXor
from crtgen.network.ops.compare import Select
from crtgen.network.ops.fixedpoint import single
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.lookup import Lookup
from crtgen.network.ops.lookup_softmax import LookupSoftmax
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.rescaling import product_factors

__all__ = ["CONVERTERS"]

_BYTES = frozenset({DType.INT8})
_SHORT = frozenset({DType.INT16})
Real = npt.NDArray[np.float32]
_INT8 = np.iinfo(np.int8)


@dataclass(frozen=True)
class _QuantisedWeights(ConvStorage):
    quant: Quant
    output: Quant
    activation: Activation

    def weights(self, data: Array, axis: int, first: int) -> Operand:
        scales = self.quant.scales
        own = scales[first : first + data.shape[axis]] if len(scales) > 1 else scales
        zeros, channels = (0,) * len(own), axis if len(own) > 1 else None
        return Value.constant("weights", np.ascontiguousarray(data), Quant(own, zeros, channels))

    def reordered(self, order: npt.NDArray[np.intp]) -> "_QuantisedWeights":
        scales = self.quant.scales
        if len(scales) == 1:
            return self
        return replace(self, quant=Quant(tuple(scales[int(i)] for i in order), (0,) * len(order), 0))


def _quant(layer: OnnxLayer, scale: int) -> Quant:
    # The quantisation of a whole tensor, whose scale is at that place and whose zero point follows.
    scales = layer.constant(scale, "scales")
    if scales.size != 1:
        raise RefusedOperator(f"{scales.size} scales of one tensor; supported: one")
    return quant_of(scales, _zero(layer, scale + 1))


def _zero(layer: OnnxLayer, place: int) -> Array | None:
    return layer.constant(place, "zero points") if layer.has(place) else None


def _operand(layer: OnnxLayer, place: int) -> Operand:
    # A quantised tensor, read as this layer says that it is quantised.
    tensor, quant = layer.tensor(place), _quant(layer, place + 1)
    if tensor.data is not None:
        return Value.constant("operand", as_int8(tensor.data), quant)
    if tensor.quant is None:
        raise RefusedOperator(
            f"{tensor.name!r} is of {tensor.type_name}; supported: quantised numbers of eight bits"
        )
    return tensor if tensor.quant == quant else Converted(Reshape(tensor.shape), (tensor,), quant=quant)


def _activation(layer: OnnxLayer) -> Activation:
    return Activation.RELU if layer.attribute("activation") == "Relu" else Activation.NONE


def _weights(layer: OnnxLayer, place: int, axis: int) -> tuple[Array, Quant]:
    # Weights less their zero points, and their scales; the outputs are on ``axis``.
    data, scale = layer.constant(place, "weights"), layer.constant(place + 1, "scales")
    zero = _zero(layer, place + 2)
    outputs = data.shape[axis]
    zeros = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64).reshape(-1)
    if scale.size not in (1, outputs) or zeros.size not in (1, outputs):
        raise ValueError(f"{scale.size} scales and {zeros.size} zero points of {outputs} outputs")
    if zeros.any() or data.dtype != np.int8:
        along = [-1 if a == axis else 1 for a in range(data.ndim)]
        data = data.astype(np.int64) - zeros.reshape(along if zeros.size > 1 else [1] * data.ndim)
    scales = tuple(float(s) for s in scale.reshape(-1).astype(np.float32))
    return data, Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)


def _fits(weights: Array) -> bool:
    # True if the weights minus their zero points fit into int8.
    return bool(_INT8.min <= weights.min() and weights.max() <= _INT8.max)


def _wide(
    layer: OnnxLayer, sums: Converted, scale: float, weights: Quant, place: int, rank: int
) -> Converted:
    # Sums of inputs of a ``scale`` and weights of nine bits as the output. Its quantisation is at ``place``;
    # outputs are on the first of the last ``rank`` axes.
    y = _quant(layer, place)
    factors = product_factors(scale, weights.scales, y.scale, [0] * len(weights.scales))
    shaped = factors.reshape(-1, *(1,) * (rank - 1)) if len(factors) > 1 else factors.reshape(())
    return in_steps(sums, shaped, y, _activation(layer) is Activation.RELU)


def _bias(layer: OnnxLayer, place: int, outputs: int) -> Array:
    if not layer.has(place):
        return np.zeros(outputs, np.int32)
    bias = layer.constant(place, "biases").reshape(-1)
    if bias.dtype != np.int32 or bias.size not in (1, outputs):
        raise ValueError(f"a bias of {bias.size} numbers of {bias.dtype} for {outputs} outputs")
    return np.broadcast_to(bias, (outputs,)).copy()


def _qlinear_conv(layer: OnnxLayer) -> Converted:
    data, quant = _weights(layer, 3, 0)
    x, bias = _operand(layer, 0), _bias(layer, 8, len(data))
    if not _fits(data):
        scale = _quant(layer, 1).scale
        return _wide(layer, conv_sums(layer, x, data.astype(np.int64), bias), scale, quant, 6, layer.rank - 1)
    numbers = _QuantisedWeights(quant, _quant(layer, 6), _activation(layer))
    return convolved(layer, x, data.astype(np.int8, copy=False), bias, numbers)


def _turned(layer: OnnxLayer) -> Converted:
    # A transposed convolution; scales of outputs are along the second axis of the weights, for each group.
    data, quant = _weights(layer, 3, 1)
    groups = layer.whole("group", 1)
    numbers = _QuantisedWeights(_of_groups(quant, groups), _quant(layer, 6), _activation(layer))
    bias = _bias(layer, 8, groups * data.shape[1])
    return turned(layer, _operand(layer, 0), data.astype(np.int8), bias, numbers)


def _qlinear_matmul(layer: OnnxLayer) -> Converted:
    # With constant weights this is a fully connected layer.
    second = layer.tensor(3)
    if second.data is None or second.data.ndim != 2 or layer.rank < 2:
        return Converted(BatchMatMul(), (_operand(layer, 0), _operand(layer, 3)), ("operand",))
    data, quant = _weights(layer, 3, 1)
    bias = np.zeros(data.shape[1], np.int32)
    return _dense(layer, (_operand(layer, 0), _quant(layer, 1)), (data.T, quant), bias, 6)


def _qgemm(layer: OnnxLayer) -> Converted:
    # ``alpha`` is a part of the input's scale.
    turned = bool(layer.whole("transB"))
    data, quant = _weights(layer, 3, 0 if turned else 1)
    data = data if turned else data.T
    own = _quant(layer, 1)
    scaled = replace(own, scales=(single(layer.real("alpha", 1.0) * own.scale),))
    x = _operand(layer, 0)
    if scaled != own:
        x = Converted(Reshape(layer.x.shape), (x,), quant=scaled)
    if layer.whole("transA"):
        x = transposed(x, (1, 0))
    return _dense(layer, (x, scaled), (data, quant), _bias(layer, 6, len(data)), 7)


def _dense(
    layer: OnnxLayer, given: tuple[Operand, Quant], weights_: tuple[Array, Quant], bias: Array, place: int
) -> Converted:
    # A fully connected layer by ``weights_[O, K]``; the quantisation of the output is at ``place``.
    (x, own), (data, quant) = given, weights_
    if not _fits(data):
        return _wide(layer, dense_sums(x, data.astype(np.int64), bias), own.scale, quant, place, 1)
    weights = Value.constant("weights", np.ascontiguousarray(data.astype(np.int8, copy=False)), quant)
    op = FullyConnected(_activation(layer), keep_dims=layer.node.code == "QLinearMatMul")
    return Converted(op, (x, weights, bias), ("weights", "bias"))


def _short(layer: OnnxLayer) -> tuple[Operand, Array, _QuantisedWeights]:
    # The operand, the weights and the storage of a layer of int16.
    scales = tuple(float(s) for s in layer.attribute("weight_scales"))
    own = Quant.tensor(float(layer.attribute("x_scale")))
    x = layer.x if layer.x.quant == own else Converted(Reshape(layer.x.shape), (layer.x,), quant=own)
    quant = Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)
    output = Quant.tensor(float(layer.attribute("y_scale")))
    activation = Activation[layer.text("activation", "") or "NONE"]
    return x, layer.constant(1, "weights"), _QuantisedWeights(quant, output, activation)


def _short_conv(layer: OnnxLayer) -> Converted:
    x, data, storage = _short(layer)
    return convolved(layer, x, data, _bias(layer, 2, len(data)).astype(np.int64), storage)


def _short_turned(layer: OnnxLayer) -> Converted:
    x, data, storage = _short(layer)
    groups = layer.whole("group", 1)
    own = replace(storage, quant=_of_groups(storage.quant, groups))
    bias = _bias(layer, 2, groups * data.shape[1]).astype(np.int64)
    return turned(layer, x, data, bias, own)


def _of_groups(quant: Quant, groups: int) -> Quant:
    if len(quant.scales) == 1:
        return quant
    return Quant(quant.scales * groups, quant.zero_points * groups, 0)


def _short_dense(layer: OnnxLayer) -> Converted:
    x, data, storage = _short(layer)
    matrix = data if layer.whole("transB") else data.T
    weights = Value.constant("weights", np.ascontiguousarray(matrix), storage.quant)
    bias = _bias(layer, 2, len(matrix)).astype(np.int64)
    op = FullyConnected(storage.activation, keep_dims=layer.rank != 2)
    return Converted(op, (x, weights, bias), ("weights", "bias"), quant=storage.output)


def _recurrent(layer: OnnxLayer) -> Converted:
    # An LSTM or GRU of integers, with time first; its first states are constants or computed.
    own, states = layer.attribute("x_quant"), layer.attribute("state_quant")
    x: Operand = layer.x
    if layer.x.dtype is DType.INT8:
        x = _operand(layer, 0)
    elif layer.x.quant != own:
        x = Converted(Reshape(layer.x.shape), (layer.x,), quant=own)
    roles = ("hidden", "state", "weights", "hidden_weights")
    scales = (layer.attribute(f"{name}_scales") for name in ("weight", "hidden"))
    quants = (layer.attribute("y_quant"), states, *(Quant(s, (0,) * len(s), 0) for s in scales))
    given = [
        tensor if tensor.data is None else Value.constant(role, np.ascontiguousarray(tensor.data), quant)
        for role, quant, tensor in zip(roles, quants, map(layer.tensor, range(3, 7)), strict=True)
    ]
    biases = [layer.constant(place, "biases") for place in (7, 8)[: 1 + layer.whole("gru")]]
    op = Gru(True) if layer.whole("gru") else Lstm(True)
    return Converted(op, (x, *given, *biases), (*roles, "bias", "hidden_bias"))


def _pair(kind: type[Add] | type[Mul]) -> Convert:
    def convert(layer: OnnxLayer) -> Converted:
        return Converted(kind(_activation(layer)), (_operand(layer, 0), _operand(layer, 3)), ("operand",))

    return convert


def _global_average(layer: OnnxLayer) -> Converted:
    layer.refuse("channels_last", 0)
    return Converted(Mean(tuple(range(2, layer.rank)), True), (_operand(layer, 0),))


def _average(layer: OnnxLayer) -> Converted:
    layer.refuse("channels_last", 0)
    return averaged_whole(layer, _operand(layer, 0), _quant(layer, 3))


def _softmax(layer: OnnxLayer) -> Converted:
    # Along one axis; before opset 13, along all from one on.
    x, shape = _operand(layer, 0), layer.x.shape
    if layer.whole("opset", layer.opset) < 13:
        axis = layer.own_axis(1)
        rows = reshaped(x, (prod(shape[:axis]), prod(shape[axis:])))
        return reshaped(Converted(LookupSoftmax(), (rows,), quant=_quant(layer, 3)), shape)
    axis, last = layer.own_axis(-1), layer.rank - 1
    if axis == last:
        return Converted(LookupSoftmax(), (x,))
    perm = list(range(layer.rank))
    perm[axis], perm[last] = last, axis
    return transposed(Converted(LookupSoftmax(), (transposed(x, perm),), quant=_quant(layer, 3)), perm)


def _function(function: Callable[[OnnxLayer, Real], Real]) -> Convert:
    # A function of real numbers, by its results of all numbers.
    def convert(layer: OnnxLayer) -> Converted:
        x, y = _quant(layer, 1), _quant(layer, 3)
        real = real_numbers(x)
        label = layer.node.code.partition("QLinear")[2].lower()
        return Converted(Lookup.of(numbers_of(function(layer, real), y), label), (_operand(layer, 0),))

    return convert


def _sigmoid(layer: OnnxLayer, x: Real) -> Real:
    return (1 / (1 + np.exp(-x))).astype(np.float32)


def _leaky_relu(layer: OnnxLayer, x: Real) -> Real:
    return np.where(x >= 0, x, x * np.float32(layer.real("alpha", 0.01)))


def _concat(layer: OnnxLayer) -> Converted:
    # Each part is quantised as the output first.
    quant, parts = _quant(layer, 0), []
    for place in range(2, len(layer.inputs), 3):
        part, own = _operand(layer, place), _quant(layer, place + 1)
        parts.append(part if own == quant else Converted(_requantising(own, quant), (part,), quant=quant))
    return Converted(Concat(layer.axis(layer.whole("axis"), len(layer.tensor(2).shape))), tuple(parts))


def _requantising(x: Quant, y: Quant) -> Lookup:
    return Lookup.of(numbers_of(real_numbers(x), y), "requantise")


def _where(layer: OnnxLayer) -> Converted:
    # Both choices are quantised as the output first.
    quant, parts = _quant(layer, 7), []
    for place in (1, 4):
        part, own = _operand(layer, place), _quant(layer, place + 1)
        parts.append(part if own == quant else Converted(_requantising(own, quant), (part,), quant=quant))
    return Converted(Select(), (layer.x, *parts), ("chosen", "other"))


def _table(layer: OnnxLayer) -> Converted:
    op = Lookup.of(layer.attribute("table"), layer.text("label", ""))
    return Converted(op, (_operand(layer, 0),))


def _quantize(layer: OnnxLayer) -> Converted:
    output = layer.outputs[0]
    if output is None or output.quant is None or layer.x.dtype is not DType.FLOAT32:
        return quantized(layer)
    return Converted(Quantize(output.dtype or DType.INT8), (layer.x,))


def _dequantize(layer: OnnxLayer) -> Converted:
    if layer.x.quant is not None and layer.x.dtype is DType.INT16:
        return Converted(Dequantize(), (layer.x,))
    if layer.x.quant is None or layer.x.dtype is not DType.INT8:
        return dequantized(layer)
    return Converted(Dequantize(), (_operand(layer, 0),))


def _recoded(layer: OnnxLayer) -> Converted:
    # Between quantised numbers of int8 and those of uint8, which may mean themselves.
    output, half = layer.outputs[0], number(OF_BYTE, DType.UINT8)
    assert output is not None
    assert output.dtype is not None
    if output.quant is None:
        return Converted(BitXor(), (cast(layer.x, DType.UINT8), half), ("half",))
    if layer.x.quant is None:
        return cast(Converted(BitXor(), (layer.x, half), ("half",)), DType.INT8)
    return Converted(Quantize(output.dtype), (layer.x,))


CONVERTERS: Mapping[str, OnnxConverter] = {
    CONV: OnnxConverter(_short_conv, ("conv",), _SHORT),
    DENSE: OnnxConverter(_short_dense, ("gemm", "dense"), _SHORT),
    TURNED: OnnxConverter(_short_turned, ("conv_transpose",), _SHORT),
    DEQUANTIZE: OnnxConverter(_dequantize, ("dequantize",), ANY),
    LOOKUP: OnnxConverter(_table, ("lookup",), _BYTES),
    RECURRENT: OnnxConverter(_recurrent, ("lstm", "gru"), _BYTES | _SHORT, whole=3),
    "QLinearConv": OnnxConverter(_qlinear_conv, ("conv",), _BYTES),
    "QLinearMatMul": OnnxConverter(_qlinear_matmul, ("matmul",), _BYTES),
    TRANSPOSED: OnnxConverter(_turned, ("conv_transpose",), _BYTES),
    QUANTIZE: OnnxConverter(_quantize, ("quantize",), NUMBERS),
    RECODED: OnnxConverter(_recoded, ("recoded",), frozenset({DType.INT8, DType.UINT8})),
    "com.microsoft.QGemm": OnnxConverter(_qgemm, ("gemm", "dense"), _BYTES),
    "com.microsoft.QLinearAdd": OnnxConverter(_pair(Add), ("add",), _BYTES),
    "com.microsoft.QLinearAveragePool": OnnxConverter(_average, ("average_pool",), _BYTES),
    "com.microsoft.QLinearConcat": OnnxConverter(_concat, ("concat",)),
    "com.microsoft.QLinearGlobalAveragePool": OnnxConverter(
        _global_average, ("global_average_pool",), _BYTES
    ),
    "com.microsoft.QLinearLeakyRelu": OnnxConverter(_function(_leaky_relu), ("leaky_relu",), _BYTES),
    "com.microsoft.QLinearMul": OnnxConverter(_pair(Mul), ("mul",), _BYTES),
    "com.microsoft.QLinearSigmoid": OnnxConverter(_function(_sigmoid), ("sigmoid",), _BYTES),
    "com.microsoft.QLinearSoftmax": OnnxConverter(_softmax, ("softmax",), _BYTES),
    "com.microsoft.QLinearWhere": OnnxConverter(_where, ("where",), frozenset({DType.BOOL})),
}
