"""The LSTM over a sequence: four gates from input and hidden state, a cell state, a hidden state."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, floats, int8s, int16s
from crtgen.network.ops.fixedpoint import (
    Int64,
    multiply_by_quantized_multiplier,
    multiply_wide,
    quantize_multiplier,
    single,
)
from crtgen.network.ops.scheme import INT16, scheme_of
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, logistic16, tanh16
from crtgen.network.ops.traits import Real

__all__ = ["GATES", "Lstm", "LstmParams", "cases", "lstm_case"]

GATES = ("input", "forget", "cell", "output")
_GATE = Sigmoid16Params(3, 0)  # the argument of a gate has 12 fractional bits
_NEAR = 1e-3

Factor = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LstmParams:
    """Integers of a quantised LSTM: zero points, and factors as multiplier and shift.

    ``of_input`` and ``of_hidden`` have one factor per gate, from sums to gates with 12 fractional bits.
    ``forget`` scales gate times cell state, ``update`` gate times gate, both to the cell state's scale;
    ``output`` scales gate times gate to the hidden state's. ``clip`` limits the cell state; 0 means no limit.
    """

    input_offset: int
    hidden_offset: int
    of_input: tuple[Factor, ...]
    of_hidden: tuple[Factor, ...]
    forget: Factor
    update: Factor
    output: Factor
    output_offset: int
    tanh: Sigmoid16Params
    clip: int


@dataclass(frozen=True, slots=True)
class Lstm(Op):
    """``x, hidden[B,S], cell[B,S], w[4,S,I], r[4,S,S], bias[4,S] -> y, hidden, cell``.

    ``x[B,T,I]`` gives ``y[B,T,S]``, or both have the time axis first. The gates are input, forget, cell and
    output: ``cell = forget * cell + input * tanh(gate)``, ``hidden = output * tanh(cell)``; each gate has
    weights for the input and for the hidden state. In quantised layers, cell states and gates are int16.
    """

    name: ClassVar[str] = "lstm"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((1, 1), (2, 2))

    time_major: bool = False
    cell_clip: float = 0.0

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 6)
        x, hidden, cell, w, _r, _bias = inputs
        require(len(x.shape) == 3, f"an input of {shape_text(x.shape)} instead of three dimensions")
        batch, depth = x.shape[1 if self.time_major else 0], x.shape[2]
        require(w.shape[:1] == (4,) and len(w.shape) == 3, "weights of four gates")
        units = w.shape[1]
        shapes = ((batch, units), (batch, units), (4, units, depth), (4, units, units), (4, units))
        for value, shape in zip(inputs[1:], shapes, strict=True):
            text = f"{value.name} is {shape_text(value.shape)}, not {shape_text(shape)}"
            require(value.shape == shape, text)
        scheme = scheme_of(x)
        cells = DType.FLOAT32 if scheme.is_real else DType.INT16
        types = (x.dtype, cells, scheme.weights, scheme.weights, scheme.biases)
        given = tuple(v.dtype for v in inputs[1:])
        require(given == types, f"types {', '.join(t.value for t in given)} on {x.dtype.value}")
        return (((*x.shape[:2], units), x.dtype), (hidden.shape, x.dtype), (cell.shape, cells))

    def macs(self, sig: Signature) -> int:
        steps = sig.x.shape[0] * sig.x.shape[1]
        return steps * (sig.inputs[3].elements + sig.inputs[4].elements)

    def parameters(self, sig: Signature) -> LstmParams:
        """Compute the factors as TFLite Micro does: for gates from scales multiplied in float32, for others
        in double.
        """
        x, hidden, cell = (tensor_quant(v) for v in sig.inputs[:3])
        w, r = (_gate_scales(v) for v in sig.inputs[3:5])
        power = round(math.log2(cell.scale))
        near = abs(math.log2(cell.scale) - power) < _NEAR
        require(near and cell.zero_point == 0, f"the cell state's scale {cell.scale:g} is no power of two")
        shift = 12 + power
        clip = self.cell_clip / cell.scale
        return LstmParams(
            input_offset=-x.zero_point,
            hidden_offset=-hidden.zero_point,
            of_input=tuple(quantize_multiplier(single(x.scale * s) * 4096) for s in w),
            of_hidden=tuple(quantize_multiplier(single(hidden.scale * s) * 4096) for s in r),
            forget=quantize_multiplier(2.0**-15),
            update=quantize_multiplier(2.0**-30 / cell.scale),
            output=quantize_multiplier(2.0**-30 / hidden.scale),
            output_offset=hidden.zero_point,
            tanh=Sigmoid16Params(3 << shift, 0) if shift >= 0 else Sigmoid16Params(3, -shift),
            clip=int(min(clip, INT16.high)) if self.cell_clip > 0 else 0,
        )

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, hidden, cell = arrays[:3]
        steps = x if self.time_major else x.swapaxes(0, 1)
        step = self._float_step if scheme_of(sig.x).is_real else self._integer_step
        outputs = []
        for given in steps:
            hidden, cell = step(sig, given, hidden, cell, arrays[3:])
            outputs.append(hidden)
        y = np.stack(outputs, axis=0 if self.time_major else 1)
        return y, hidden, cell

    def _float_step(
        self, sig: Signature, x: Array, hidden: Array, cell: Array, weights: Sequence[Array]
    ) -> tuple[Array, Array]:
        w, r, bias = (a.astype(np.float64) for a in weights)
        gates = np.einsum("bi,gsi->gbs", x.astype(np.float64), w) + bias[:, None]
        gates += np.einsum("bi,gsi->gbs", hidden.astype(np.float64), r)
        entering, kept, new, shown = gates
        cell = _logistic(kept) * cell.astype(np.float64) + _logistic(entering) * np.tanh(new)
        if self.cell_clip > 0:
            cell = np.clip(cell, -self.cell_clip, self.cell_clip)
        hidden = _logistic(shown) * np.tanh(cell)
        return hidden.astype(np.float32), cell.astype(np.float32)

    def _integer_step(
        self, sig: Signature, x: Array, hidden: Array, cell: Array, weights: Sequence[Array]
    ) -> tuple[Array, Array]:
        p, scale = self.parameters(sig), _scaling(sig)
        w, r, bias = (a.astype(np.int64) for a in weights)
        given, before = x.astype(np.int64) + p.input_offset, hidden.astype(np.int64) + p.hidden_offset
        gates = []
        for gate in range(4):
            fresh = _short(scale(given @ w[gate].T + bias[gate], *p.of_input[gate]))
            old = _short(scale(before @ r[gate].T, *p.of_hidden[gate]))
            total = _short(fresh + old)
            gates.append((tanh16 if gate == 2 else logistic16)(_GATE, total).astype(np.int64))
        entering, kept, new, shown = gates
        kept = _short(multiply_by_quantized_multiplier(kept * cell.astype(np.int64), *p.forget))
        state = _short(kept + _short(multiply_by_quantized_multiplier(entering * new, *p.update)))
        if p.clip:
            state = np.clip(state, -p.clip, p.clip)
        product = tanh16(p.tanh, state).astype(np.int64) * shown
        scaled = multiply_by_quantized_multiplier(product, *p.output) + p.output_offset
        return scheme_of(sig.x).saturated(scaled), state.astype(np.int16)


def _logistic(x: Real) -> Real:
    small = np.exp(-np.abs(x))  # never overflows
    value: Real = np.where(x < 0, small, 1.0) / (1 + small)
    return value


def _short(x: Int64) -> Int64:
    clipped: Int64 = np.clip(x, *INT16.limits)
    return clipped


def _scaling(sig: Signature) -> Callable[[Int64, int, int], Int64]:
    # Scaling of sums to gates; int16 has 64-bit sums.
    return multiply_wide if scheme_of(sig.x) is INT16 else multiply_by_quantized_multiplier


def _gate_scales(weights: Value) -> tuple[float, ...]:
    # One scale per gate; ``ValueError`` unless the weights are symmetric.
    quant = weights.quant
    if quant is None or len(quant.scales) != 4:
        raise ValueError(f"{weights.name} has not one scale for each gate")
    require(not any(quant.zero_points), f"the zero point of {weights.name} is not 0")
    return quant.scales


def cases() -> Iterator[Case]:
    short = Quant.tensor(0.0075, 5)
    yield lstm_case("int8", Lstm(), int8s("x", (1, 5, 7), 0.03, -9), 6, hidden=short)
    yield lstm_case("int8_batch", Lstm(cell_clip=1.5), int8s("x", (3, 2, 4), 0.05), 5, -9, short)
    yield lstm_case("int8_time", Lstm(time_major=True), int8s("x", (4, 2, 3), 0.02, 11), 4, -13, short)
    yield lstm_case("int16", Lstm(), int16s("x", (1, 3, 9), 0.0001), 5)
    yield lstm_case("int16_batch", Lstm(time_major=True), int16s("x", (2, 3, 5), 0.0002), 4, -12)
    yield lstm_case("f32", Lstm(), floats("x", (1, 4, 6)), 7)
    yield lstm_case("f32_batch", Lstm(True, 0.25), floats("x", (3, 2, 4)), 3)


def lstm_case(
    name: str,
    op: Lstm,
    x: Value,
    units: int,
    cell_power: int = -11,
    hidden: Quant | None = None,
    seed: int = 1,
) -> Case:
    """Return a layer with random weights; ``cell_power`` is the binary exponent of the cell state's scale."""
    rng = np.random.default_rng(seed)
    steps, batch = (x.shape[0], x.shape[1]) if op.time_major else (x.shape[1], x.shape[0])
    shapes = ((4, units, x.shape[2]), (4, units, units), (4, units))
    scheme, kept = scheme_of(x), hidden or Quant.tensor(2.0**-7 if x.dtype is DType.INT8 else 2.0**-15)
    if scheme.is_real:
        weights = [
            Value.constant(n, rng.uniform(-1, 1, s).astype(np.float32))
            for n, s in zip("wrb", shapes, strict=True)
        ]
        states = [floats(n, (batch, units)) for n in ("h", "c")]
    else:
        scales = tuple(rng.uniform(0.004, 0.012, 4).astype(np.float32).tolist())
        quant = Quant(scales, (0,) * 4, 0)
        weights = [
            Value.constant(n, rng.integers(-127, 128, s, np.int8), quant)
            for n, s in zip("wr", shapes, strict=False)
        ]
        weights += [Value.constant("b", rng.integers(-3000, 3000, shapes[2]).astype(scheme.biases.numpy))]
        states = [
            Value("h", (batch, units), x.dtype, kept),
            Value("c", (batch, units), DType.INT16, Quant.tensor(2.0**cell_power)),
        ]
    after = [replace(v, name=f"{v.name}_next") for v in states]
    shape = (steps, batch, units) if op.time_major else (batch, steps, units)
    y = Value("y", shape, x.dtype, states[0].quant)
    return Case(f"lstm_{name}", op, Signature((x, *states, *weights), (y, *after)))
