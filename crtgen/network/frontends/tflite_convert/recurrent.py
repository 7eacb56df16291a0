"""Layers with a memory: SVDF, LSTM and the circular buffer."""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer, same
from crtgen.network.frontends.tflite_file import FileTensor
from crtgen.network.ir import Array, DType, Quant, Value, shape_text
from crtgen.network.ops import Concat, Identity, StridedSlice
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.svdf import Svdf

__all__ = ["CONVERTERS"]

_TANH = 4
_WEIGHTS, _RECURRENT, _BIASES = range(1, 5), range(5, 9), range(12, 16)
_HIDDEN, _CELL = 18, 19
# Slots of a circular buffer that TFLite Micro takes to be ready in each run where the file does not say.
_EVERY_RUN = (5, 13, 25)


def _svdf(layer: TfliteLayer) -> Converted:
    constants = tuple(layer.tensor(i) for i in range(1, 3))
    for position, role in ((1, "filters"), (2, "weights of time")):
        layer.constant(position, role)
    units = layer.y.shape[-1]
    bias: FileTensor | Array | None = layer.inputs[3]
    if bias is None:
        bias = np.zeros(units, np.float32 if layer.x.dtype is DType.FLOAT32 else np.int32)
    else:
        layer.constant(3, "biases")
    state = _state(layer, 4)
    op = Svdf(int(layer.option("Rank")), layer.activation())
    return Converted(
        op, (layer.x, *constants, bias, state), ("feature", "time", "bias", "state"), (state.key,)
    )


def _state(layer: TfliteLayer, position: int) -> FileTensor:
    state = layer.tensor(position)
    if not state.is_variable:
        raise ValueError(f"the state {state.name!r} is not a variable")
    return state


def _lstm(layer: TfliteLayer) -> Converted:
    for positions, what in (
        (range(9, 12), "peepholes"),
        (range(16, 18), "a projection"),
        (range(20, 24), "norms"),
    ):
        if any(i < len(layer.inputs) and layer.inputs[i] is not None for i in positions):
            raise RefusedOperator(f"an LSTM with {what}; supported: without, as in TFLite Micro")
    if layer.option("FusedActivationFunction") != _TANH:
        raise RefusedOperator("an LSTM with another activation; supported: TANH")
    hidden, cell = _state(layer, _HIDDEN), _state(layer, _CELL)
    op = Lstm(bool(layer.option("TimeMajor")), float(layer.option("CellClip")))
    weights = (_gates(layer, _WEIGHTS, "weights"), _gates(layer, _RECURRENT, "recurrent weights"))
    operands = (layer.x, hidden, cell, *weights, _gates(layer, _BIASES, "biases"))
    roles = ("hidden", "cell", "weights", "recurrent_weights", "bias")
    return Converted(op, operands, roles, (hidden.key, cell.key))


def _gates(layer: TfliteLayer, positions: range, role: str) -> Value:
    # One constant for the four gates, each with its own scale.
    arrays = [layer.constant(i, role) for i in positions]
    if len({(a.shape, a.dtype) for a in arrays}) > 1:
        raise ValueError(f"the {role} of its gates have different shapes or types")
    quants = [layer.tensor(i).quant for i in positions]
    quant = None
    if all(q is not None and q.axis is None for q in quants):
        scales = tuple(q.scale for q in quants if q is not None)
        quant = Quant(scales, (0,) * len(scales), 0)
    stacked = np.stack(arrays)
    return Value.constant(role, stacked.astype(stacked.dtype.newbyteorder("=")), quant)


def _circular_buffer(layer: TfliteLayer) -> Converted:
    # Its output is its memory: without the oldest slot, and with the input as the newest.
    shape = layer.y.shape
    if len(shape) != 4 or layer.x.shape != (shape[0], 1, *shape[2:]) or shape[0] != 1:
        raise ValueError(f"the operator puts {shape_text(layer.x.shape)} into {shape_text(shape)}")
    cycles = layer.number("cycles_max")
    if cycles < 1:
        cycles = 1 if shape[1] in _EVERY_RUN else 2
    if cycles > 1:
        raise RefusedOperator(
            f"the option cycles_max is {cycles}: TFLite Micro ends {cycles - 1} of {cycles} runs here without"
            " an output; supported: 1",
            "make two models of one with a CIRCULAR_BUFFER that ends runs, of what is before it and of what"
            " comes after, and run the second one when the first one has run cycles_max times",
        )
    if shape[1] == 1:
        return Converted(Identity(), (layer.x,), (), (layer.y.key,))
    kept = Converted(StridedSlice((0, 1, 0, 0), shape, (1,) * 4), (layer.y,))
    return Converted(Concat(1), (kept, layer.x), ("kept",), (layer.y.key,))


CONVERTERS: Mapping[str, TfliteConverter] = {
    "CUSTOM CIRCULAR_BUFFER": TfliteConverter(_circular_buffer, ("circular_buffer",), types=same(DType.INT8)),
    "SVDF": TfliteConverter(_svdf, ("svdf",), "SVDFOptions", ("Rank", "FusedActivationFunction")),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": TfliteConverter(
        _lstm,
        ("unidirectional_sequence_lstm", "lstm"),
        "UnidirectionalSequenceLSTMOptions",
        ("FusedActivationFunction", "CellClip", "ProjClip", "TimeMajor"),
        same(DType.FLOAT32, DType.INT8, DType.INT16),
    ),
}
