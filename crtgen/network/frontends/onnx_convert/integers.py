"""Integer products: ConvInteger, MatMulInteger, and layers whose weights need nine bits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from crtgen.network.frontends.builder import Converted, NamedTensor, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    cast,
    number,
    reshaped,
)
from crtgen.network.frontends.onnx_convert.products import multiplied
from crtgen.network.frontends.onnx_convert.weights import convolved
from crtgen.network.frontends.onnx_convert.window import ConvStorage, lines_of
from crtgen.network.frontends.onnx_edges import OF_BYTE
from crtgen.network.frontends.wide import wide_sums
from crtgen.network.ir import Array, DType, Op, Quant
from crtgen.network.ops import Add, Conv2d, DepthwiseConv2d, FullyConnected, Mul, Reshape, Sub
from crtgen.network.ops.accumulate import Accumulate
from crtgen.network.ops.affine import QuantizeBy
from crtgen.network.ops.bits import BitXor
from crtgen.network.ops.compare import Maximum
from crtgen.network.ops.fixedpoint import Int64
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.spread import PadWith

__all__ = ["CONVERTERS", "conv_sums", "dense_sums", "in_steps"]

_EIGHT = frozenset({DType.INT8, DType.UINT8})


class _IntegerSums(ConvStorage):
    def layer(self, op: Conv2d | DepthwiseConv2d) -> Op:
        return Accumulate(op)


def conv_sums(layer: OnnxLayer, x: Operand, weights: Int64, bias: Array) -> Converted:
    """Return the sums of a convolution of int8 ``x`` with nine-bit ``weights[O, C/groups, ...]``."""
    return wide_sums(
        lambda part, start: convolved(layer, x, part, start, _IntegerSums()),
        weights,
        bias,
        layer.whole("group", 1) == 1,
    )


def dense_sums(x: Operand, weights: Int64, bias: Array) -> Converted:
    """Return the products of rows with ``weights[O, K]``."""
    op, roles = Accumulate(FullyConnected(keep_dims=True)), ("weights", "bias")
    return wide_sums(lambda part, start: Converted(op, (x, part, start), roles), weights, bias, True)


def in_steps(sums: Converted, factors: Array, quant: Quant, cut: bool) -> Converted:
    """Quantise sums as ``rint(f32(sum) * factor) + zero``; with ``cut``, negative results become the zero
    point.

    ``factors`` are broadcast to the sums.
    """
    made = Converted(Mul(), (cast(sums, DType.FLOAT32), factors.astype(np.float32)), ("factor",))
    if cut:
        made = Converted(Maximum(), (made, number(0)), ("zero",))
    return Converted(QuantizeBy(), (made, number(1), number(quant.zero_point, DType.INT8)), ("one", "zero"))


@dataclass(frozen=True, slots=True)
class _Factor:
    """An 8-bit operand: a tensor and its zero point, if any; ``zero`` is the value, if known.

    Values are stored as int8, which is ``offset`` less than in the file.
    """

    tensor: NamedTensor
    given: NamedTensor | None
    zero: int | None
    offset: int

    @classmethod
    def of(cls, layer: OnnxLayer, place: int, zero_place: int) -> "_Factor":
        tensor, zero = layer.tensor(place), layer.tensor(zero_place) if layer.has(zero_place) else None
        bytes_ = DType.UINT8 in (tensor.dtype, zero.dtype if zero is not None else None)
        if tensor.quant is not None and (zero is None or zero.data is None):
            raise RefusedOperator(f"{tensor.name!r} is quantised, and its zero point here is not known")
        known = 0 if zero is None else None
        if zero is not None and zero.data is not None and zero.data.size == 1:
            known = int(zero.data.item())
        return cls(tensor, zero, known, OF_BYTE if bytes_ else 0)

    def bytes(self) -> Operand:
        # Its numbers as int8; with its zero point, if that is known.
        numbers = _signed(self.tensor)
        if self.zero is None:
            return numbers
        quant = Quant.tensor(1.0, self.zero - self.offset)
        return Converted(Reshape(self.tensor.shape), (numbers,), quant=quant)

    def zero_byte(self) -> Operand:
        # The zero point, of which there is one, as int8.
        assert self.given is not None
        return _signed(self.given)

    def ahead(self, rank: int) -> Operand:
        """Return ``stored value - (value - zero point)`` as int32."""
        zero = cast(self._column(rank), DType.INT32)
        return Converted(Sub(), (number(self.offset, DType.INT32), zero), ("zero",))

    def distances(self, rank: int) -> Operand:
        numbers = cast(self.tensor, DType.INT16)
        if self.given is None:
            return numbers
        return Converted(Sub(), (numbers, cast(self._column(rank), DType.INT16)), ("zero",))

    def _column(self, rank: int) -> Operand:
        # The zero points of rows, if there are several, so that they are broadcast.
        assert self.given is not None
        if self.given.shape in ((), (1,)):
            return reshaped(self.given, ())
        last = rank == len(self.tensor.shape) and len(self.given.shape) == 1
        return reshaped(self.given, (*self.given.shape, 1)) if last else self.given


def _signed(tensor: NamedTensor) -> Operand:
    # Numbers of eight bits as int8, half their range less.
    if tensor.dtype is not DType.UINT8:
        return tensor
    return cast(Converted(BitXor(), (tensor, number(OF_BYTE, DType.UINT8)), ("half",)), DType.INT8)


def _weights(layer: OnnxLayer, place: int, zero_place: int, axis: int) -> Int64:
    # Constant weights less their zero points, of which there is one or one per output on ``axis``.
    data = layer.constant(place, "weights").astype(np.int64)
    if not layer.has(zero_place):
        return data
    zero = layer.constant(zero_place, "zero points of weights").astype(np.int64).reshape(-1)
    if zero.size not in (1, data.shape[axis]):
        raise ValueError(f"{zero.size} zero points of {data.shape[axis]} outputs")
    return data - zero.reshape([-1 if a == axis else 1 for a in range(data.ndim)])


def _conv_integer(layer: OnnxLayer) -> Converted:
    # Padding stands for zero: around what has a zero point that is computed, that is put first.
    weights, x = _weights(layer, 1, 3, 0), _Factor.of(layer, 0, 2)
    bias = np.zeros(len(weights), np.int32)
    if x.zero is not None:
        return conv_sums(layer, x.bytes(), weights, bias)
    columns = weights.reshape(len(weights), -1).sum(axis=1).reshape(-1, *(1,) * (layer.rank - 2))
    lines = lines_of(layer, weights.shape[2:])
    before, after = ((0, 0, *(getattr(line, end) for line in lines)) for end in ("before", "after"))
    numbers = x.bytes()
    if any((*before, *after)):
        numbers = Converted(PadWith(before, after), (numbers, x.zero_byte()), ("zero",))
        layer = _within(layer, before, after)
    return _moved(conv_sums(layer, numbers, weights, bias), x.ahead(0), columns)


def _within(layer: OnnxLayer, before: tuple[int, ...], after: tuple[int, ...]) -> OnnxLayer:
    # The layer on an input that has its padding already.
    shape = tuple(b + d + a for b, d, a in zip(before, layer.x.shape, after, strict=True))
    attributes = {**layer.node.attributes, "auto_pad": "VALID", "pads": []}
    inputs = (replace(layer.x, shape=shape), *layer.inputs[1:])
    return replace(layer, node=replace(layer.node, attributes=attributes), inputs=inputs)


def _moved(sums: Converted, ahead: Operand, columns: Int64) -> Converted:
    # Sums of inputs that are ``ahead`` of what they should be; ``columns`` are sums of weights.
    missing = Converted(Mul(), (ahead, columns.astype(np.int32)), ("columns",))
    return Converted(Add(), (sums, missing), ("missing",))


def _matmul_integer(layer: OnnxLayer) -> Converted:
    # With constant weights this is a fully connected layer.
    a, b = _Factor.of(layer, 0, 2), _Factor.of(layer, 1, 3)
    shapes = a.tensor.shape, b.tensor.shape
    if b.tensor.data is None or len(shapes[1]) != 2 or len(shapes[0]) < 2:
        known = None not in (a.zero, b.zero)
        pair = (a.bytes(), b.bytes()) if known else (a.distances(len(shapes[0])), b.distances(0))
        return multiplied(*pair, *shapes, Accumulate(BatchMatMul()))
    weights = _weights(layer, 1, 3, 1).T
    made = dense_sums(a.bytes(), weights, np.zeros(len(weights), np.int32))
    return made if a.zero is not None else _moved(made, a.ahead(len(shapes[0])), weights.sum(axis=1))


CONVERTERS: Mapping[str, OnnxConverter] = {
    "ConvInteger": OnnxConverter(_conv_integer, ("conv",), _EIGHT),
    "MatMulInteger": OnnxConverter(_matmul_integer, ("matmul",), _EIGHT),
}
