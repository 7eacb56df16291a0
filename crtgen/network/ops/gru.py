"""The GRU of integers over a sequence: three gates, a hidden state, and the same state in 16 bits.

TFLite has no GRU of integers, so this one is made of what its LSTM has: sums of products become gates of 12
fractional bits, and the gates go through the same tables of 16 bits. In the equations of ONNX with
``linear_before_reset``, which PyTorch and Keras write::

    z = logistic(w_z x + r_z h + b_z)
    r = logistic(w_r x + r_r h + b_r)
    n = tanh(w_n x + b_n + r * (r_n h + c_n))
    h' = z * h + (1 - z) * n

If z is near 1, a step changes h by less than 1/256, so a state of int8 would stand still. Hence the operator
keeps h a second time with 15 fractional bits, as the LSTM keeps its cell state; the products and the output
read it rounded to int8.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, int8s, int16s
from crtgen.network.ops.fixedpoint import (
    Int64,
    multiply_by_quantized_multiplier,
    multiply_wide,
    quantize_multiplier,
    single,
)
from crtgen.network.ops.scheme import INT16, scheme_of
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, logistic16, tanh16

__all__ = ["GRU_GATES", "STATE", "Gru", "GruParams", "cases", "gru_case"]

GRU_GATES = ("update", "reset", "new")
STATE = Quant.tensor(2.0**-15)
"""Quantisation of the state of 16 bits."""

_GATE = Sigmoid16Params(3, 0)  # the argument of a gate has 12 fractional bits
_ONE, _HALF = 1 << 15, 1 << 14


@dataclass(frozen=True, slots=True)
class GruParams:
    """Integers of a GRU: zero points, and factors as multiplier and shift.

    ``of_input`` and ``of_hidden`` have one per gate, from sums to gates of 12 fractional bits; ``output``
    scales the state to the hidden state.
    """

    input_offset: int
    hidden_offset: int
    of_input: tuple[tuple[int, int], ...]
    of_hidden: tuple[tuple[int, int], ...]
    output: tuple[int, int]
    output_offset: int


@dataclass(frozen=True, slots=True)
class Gru(Op):
    """``x, hidden[B,S], state[B,S], w[3,S,I], r[3,S,S], bias[3,S], hidden_bias[3,S] -> y, hidden, state``.

    ``x[B,T,I]`` gives ``y[B,T,S]``, or both have time first. The gates are update, reset and new. The state
    is the hidden state with 15 fractional bits.
    """

    name: ClassVar[str] = "gru"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((1, 1), (2, 2))

    time_major: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 7)
        x, hidden, state, w = inputs[:4]
        require(len(x.shape) == 3, f"an input of {shape_text(x.shape)} instead of three dimensions")
        batch, depth = x.shape[1 if self.time_major else 0], x.shape[2]
        require(w.shape[:1] == (3,) and len(w.shape) == 3, "weights of three gates")
        units = w.shape[1]
        shapes = [(batch, units)] * 2 + [(3, units, depth), (3, units, units)] + [(3, units)] * 2
        for value, shape in zip(inputs[1:], shapes, strict=True):
            text = f"{value.name} is {shape_text(value.shape)}, not {shape_text(shape)}"
            require(value.shape == shape, text)
        scheme = scheme_of(x)
        require(not scheme.is_real, "an input of floats")
        types = (x.dtype, DType.INT16, scheme.weights, scheme.weights, scheme.biases, scheme.biases)
        given = tuple(v.dtype for v in inputs[1:])
        require(given == types, f"types {', '.join(t.value for t in given)} on {x.dtype.value}")
        return (((*x.shape[:2], units), x.dtype), (hidden.shape, x.dtype), (state.shape, DType.INT16))

    def macs(self, sig: Signature) -> int:
        steps = sig.x.shape[0] * sig.x.shape[1]
        return steps * (sig.inputs[3].elements + sig.inputs[4].elements)

    def parameters(self, sig: Signature) -> GruParams:
        """Compute the factors as TFLite Micro does for an LSTM."""
        x, hidden, state = (tensor_quant(v) for v in sig.inputs[:3])
        require(state == STATE, f"the state's scale is {state.scale:g}, not 2^-15")
        scales = []
        for value in sig.inputs[3:5]:
            quant = value.quant
            require(quant is not None and len(quant.scales) == 3, f"{value.name} has not three scales")
            assert quant is not None
            require(not any(quant.zero_points), f"the zero point of {value.name} is not 0")
            scales.append(quant.scales)
        return GruParams(
            input_offset=-x.zero_point,
            hidden_offset=-hidden.zero_point,
            of_input=tuple(quantize_multiplier(single(x.scale * s) * 4096) for s in scales[0]),
            of_hidden=tuple(quantize_multiplier(single(hidden.scale * s) * 4096) for s in scales[1]),
            output=quantize_multiplier(2.0**-15 / hidden.scale, _ONE),
            output_offset=hidden.zero_point,
        )

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, hidden, state = arrays[:3]
        outputs = []
        for given in x if self.time_major else x.swapaxes(0, 1):
            hidden, state = self._step(sig, given, hidden, state, arrays[3:])
            outputs.append(hidden)
        return np.stack(outputs, axis=0 if self.time_major else 1), hidden, state

    def _step(
        self, sig: Signature, x: Array, hidden: Array, state: Array, weights: Sequence[Array]
    ) -> tuple[Array, Array]:
        p, scheme = self.parameters(sig), scheme_of(sig.x)
        scale = multiply_wide if scheme is INT16 else multiply_by_quantized_multiplier
        w, r, bias, hidden_bias = (a.astype(np.int64) for a in weights)
        given, before = x.astype(np.int64) + p.input_offset, hidden.astype(np.int64) + p.hidden_offset
        fresh = [_short(scale(given @ w[g].T + bias[g], *p.of_input[g])) for g in range(3)]
        old = [_short(scale(before @ r[g].T + hidden_bias[g], *p.of_hidden[g])) for g in range(3)]
        update, reset = (logistic16(_GATE, _short(fresh[g] + old[g])).astype(np.int64) for g in range(2))
        kept = (reset * old[2] + _HALF) >> 15
        new = tanh16(_GATE, _short(fresh[2] + kept)).astype(np.int64)
        after = (update * state.astype(np.int64) + (_ONE - update) * new + _HALF) >> 15
        scaled = multiply_by_quantized_multiplier(after, *p.output) + p.output_offset
        return scheme.saturated(scaled), after.astype(np.int16)


def _short(x: Int64) -> Int64:
    clipped: Int64 = np.clip(x, *INT16.limits)
    return clipped


def cases() -> Iterator[Case]:
    yield gru_case("int8", Gru(), int8s("x", (1, 5, 7), 0.03, -9), 6, Quant.tensor(0.0075, 5))
    yield gru_case("int8_batch", Gru(), int8s("x", (3, 2, 4), 0.05), 5)
    yield gru_case("int8_time", Gru(True), int8s("x", (4, 2, 3), 0.02, 11), 4, Quant.tensor(0.004, -20))
    yield gru_case("int16", Gru(), int16s("x", (1, 3, 9), 0.0001), 5)
    yield gru_case("int16_batch", Gru(True), int16s("x", (2, 3, 5), 0.0002), 4)


def gru_case(name: str, op: Gru, x: Value, units: int, hidden: Quant | None = None, seed: int = 1) -> Case:
    rng = np.random.default_rng(seed)
    steps, batch = (x.shape[0], x.shape[1]) if op.time_major else (x.shape[1], x.shape[0])
    scheme, kept = scheme_of(x), hidden or Quant.tensor(2.0**-7 if x.dtype is DType.INT8 else 2.0**-15)
    quant = Quant(tuple(rng.uniform(0.004, 0.012, 3).astype(np.float32).tolist()), (0,) * 3, 0)
    shapes = {"w": (3, units, x.shape[2]), "r": (3, units, units)}
    weights = [Value.constant(n, rng.integers(-127, 128, s, np.int8), quant) for n, s in shapes.items()]
    biases = rng.integers(-3000, 3000, (2, 3, units)).astype(scheme.biases.numpy)
    weights += [Value.constant(n, b) for n, b in zip(("b", "c"), biases, strict=True)]
    states = [Value("h", (batch, units), x.dtype, kept), Value("s", (batch, units), DType.INT16, STATE)]
    after = [replace(v, name=f"{v.name}_next") for v in states]
    shape = (steps, batch, units) if op.time_major else (batch, steps, units)
    y = Value("y", shape, x.dtype, kept)
    return Case(f"gru_{name}_onnx", op, Signature((x, *states, *weights), (y, *after)))
