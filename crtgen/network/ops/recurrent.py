"""Float32 recurrent layers over a sequence, as in ONNX: RNN, GRU, LSTM in one or two directions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require
from crtgen.network.ops.case import Case, floats
from crtgen.network.ops.traits import Real

__all__ = ["CURVES", "Cell", "Curve", "Recurrent", "cases", "recurrent_case"]


class Cell(Enum):
    """One step of a cell, from the sums of its gates to its states.

    ``GRU_AFTER`` applies the reset gate to the product with the hidden state instead of to the state itself.
    In ``LSTM_COUPLED`` the forget gate is one minus the input gate.
    """

    RNN = "rnn"
    GRU = "gru"
    GRU_AFTER = "gru_after"
    LSTM = "lstm"
    LSTM_COUPLED = "lstm_coupled"

    @property
    def gates(self) -> int:
        """Return the number of sums per unit, in ONNX's order: z, r, h for a GRU; i, o, f, c for an LSTM."""
        return 1 if self is Cell.RNN else 4 if self.is_lstm else 3

    @property
    def curves(self) -> int:
        """Return the default activation functions, which ONNX calls f, g and h."""
        return 1 if self is Cell.RNN else 3 if self.is_lstm else 2

    @property
    def is_lstm(self) -> bool:
        return self in (Cell.LSTM, Cell.LSTM_COUPLED)


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Real) -> Real:
        with np.errstate(over="ignore"):
            return CURVES[self.name](x, self.alpha, self.beta)

    def __str__(self) -> str:
        return self.name


_Function = Callable[[Real, float, float], Real]

CURVES: Mapping[str, _Function] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
}


@dataclass(frozen=True, slots=True)
class Recurrent(Op):
    """``x[T,B,I], w[D,G*S,I], r[D,G*S,S], bias[D,2*G*S], ... -> y[T,D,B,S], hidden[D,B,S], cell[D,B,S]``.

    There are D directions of S units, each with the G gates of ``kind``. The bias is that of ``w``, followed
    by that of ``r``. Optional inputs follow: ``peepholes[D,3*S]`` of the gates i, o and f if
    ``has_peepholes``, then initial ``hidden`` and ``cell`` if ``starts``, which otherwise are zeros.
    ``gives`` tells which outputs exist. With ``batch_first`` the axis B is the first one of all these.

    ``curves`` are the activations of each direction. With ``backward`` the first direction runs from the end;
    the second always does. ``clip`` limits the sums of the gates; 0 means no limit. ``lengths`` are the steps
    of each sequence of the batch, by default all; beyond its length a sequence gives zeros.
    """

    name: ClassVar[str] = "recurrent"

    kind: Cell
    curves: tuple[tuple[Curve, ...], ...]
    backward: bool = False
    batch_first: bool = False
    clip: float = 0.0
    lengths: tuple[int, ...] = ()
    has_peepholes: bool = False
    starts: tuple[bool, bool] = (False, False)
    gives: tuple[bool, bool, bool] = (True, True, False)

    @property
    def directions(self) -> int:
        return len(self.curves)

    def sizes(self, x: Value, r: Value) -> tuple[int, int, int, int]:
        """Return the numbers of steps, sequences in the batch, values of an input, and units."""
        first, second, depth = x.shape
        steps, batch = (second, first) if self.batch_first else (first, second)
        return steps, batch, depth, r.shape[2]

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        more = self.has_peepholes + sum(self.starts)
        require(len(inputs) == 4 + more, f"it has {len(inputs)} inputs instead of {4 + more}")
        x, w, r = inputs[:3]
        for value in inputs:
            require(value.dtype is DType.FLOAT32, f"{value.name} is {value.dtype.value}, not float32")
        require(len(x.shape) == 3, f"an input of {shape_text(x.shape)} instead of three dimensions")
        require(len(w.shape) == len(r.shape) == 3, "weights without three dimensions")
        steps, batch, depth, units = self.sizes(x, r)
        d, rows = self.directions, self.kind.gates * units
        state = (batch, d, units) if self.batch_first else (d, batch, units)
        peepholes = [(d, 3 * units)] * self.has_peepholes
        shapes = [(d, rows, depth), (d, rows, units), (d, 2 * rows), *peepholes, *[state] * sum(self.starts)]
        for value, shape in zip(inputs[1:], shapes, strict=True):
            text = f"{value.name} is {shape_text(value.shape)}, not {shape_text(shape)}"
            require(value.shape == shape, text)
        fits = not self.lengths or (len(self.lengths) == batch and min(self.lengths) >= 0)
        require(fits and max(self.lengths, default=0) <= steps, f"lengths {self.lengths} of {steps} steps")
        y = (batch, steps, d, units) if self.batch_first else (steps, d, batch, units)
        given = zip(self.gives, (y, state, state), strict=True)
        return tuple((shape, DType.FLOAT32) for wanted, shape in given if wanted)

    def steps_of(self, steps: int, batch: int) -> tuple[int, ...]:
        return self.lengths or (steps,) * batch

    def goes_back(self, direction: int) -> bool:
        return self.backward or direction == 1

    def macs(self, sig: Signature) -> int:
        steps, batch, _, _ = self.sizes(sig.x, sig.inputs[2])
        return sum(self.steps_of(steps, batch)) * (sig.inputs[1].elements + sig.inputs[2].elements)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        steps, batch, _, units = self.sizes(sig.x, sig.inputs[2])
        x = self._turned(arrays[0].astype(np.float64))
        w, r, bias = (a.astype(np.float64) for a in arrays[1:4])
        holes = arrays[4] if self.has_peepholes else np.zeros((self.directions, 3 * units))
        first = self._first(arrays[4 + self.has_peepholes :], (self.directions, batch, units))
        y = np.zeros((steps, self.directions, batch, units))
        last = np.zeros((2, self.directions, batch, units))
        for d in range(self.directions):
            weights = w[d], r[d], bias[d].reshape(2, -1), holes[d].astype(np.float64).reshape(3, -1)
            for b, length in enumerate(self.steps_of(steps, batch)):
                h, c = first[:, d, b]
                for time in range(length)[:: -1 if self.goes_back(d) else 1]:
                    h, c = self._step(x[time, b], h, c, weights, self.curves[d])
                    y[time, d, b] = h
                last[:, d, b] = h, c
        outputs = y.transpose(2, 0, 1, 3) if self.batch_first else y, *map(self._turned, last)
        kept = zip(self.gives, outputs, strict=True)
        return tuple(np.ascontiguousarray(a, np.float32) for wanted, a in kept if wanted)

    def _turned(self, array: Real) -> Real:
        # From the order of the operator to time, or direction, first; or back.
        return array.swapaxes(0, 1) if self.batch_first else array

    def _first(self, given: Sequence[Array], shape: tuple[int, ...]) -> Real:
        # The hidden and the cell state before the first step.
        rest = iter(given)
        both = [self._turned(next(rest).astype(np.float64)) if g else np.zeros(shape) for g in self.starts]
        return np.stack(both)

    def _step(
        self, x: Real, h: Real, c: Real, weights: tuple[Real, Real, Real, Real], curves: tuple[Curve, ...]
    ) -> tuple[Real, Real]:
        w, r, bias, holes = weights
        gates = self.kind.gates
        fresh, old = (w @ x + bias[0]).reshape(gates, -1), (r @ h + bias[1]).reshape(gates, -1)
        if self.kind is Cell.RNN:
            return curves[0](self._clipped(fresh[0] + old[0])), c
        if self.kind.is_lstm:
            return self._lstm(fresh + old, c, holes, curves)
        f, g = curves
        z, reset = (f(self._clipped(fresh[n] + old[n])) for n in range(2))
        if self.kind is Cell.GRU_AFTER:
            new = fresh[2] + reset * old[2]
        else:
            units = len(h)
            new = fresh[2] + r[2 * units :] @ (reset * h) + bias[1][2 * units :]
        return (1 - z) * g(self._clipped(new)) + z * h, c

    def _lstm(self, sums: Real, c: Real, holes: Real, curves: tuple[Curve, ...]) -> tuple[Real, Real]:
        f, g, shown = curves
        entering = f(self._clipped(sums[0] + holes[0] * c))
        coupled = self.kind is Cell.LSTM_COUPLED
        kept = 1 - entering if coupled else f(self._clipped(sums[2] + holes[2] * c))
        c = kept * c + entering * g(self._clipped(sums[3]))
        return f(self._clipped(sums[1] + holes[1] * c)) * shown(c), c

    def _clipped(self, sums: Real) -> Real:
        return np.clip(sums, -self.clip, self.clip) if self.clip > 0 else sums


_RNN = (Curve("tanh"),)
_GRU = (Curve("sigmoid"), Curve("tanh"))
_LSTM = (Curve("sigmoid"), Curve("tanh"), Curve("tanh"))


def cases() -> Iterator[Case]:
    both = (True, True, False)
    yield recurrent_case("rnn", Recurrent(Cell.RNN, (_RNN,)), (5, 1, 3), 4)
    yield recurrent_case("rnn_back", Recurrent(Cell.RNN, (_RNN,), True, clip=0.5), (4, 2, 3), 3)
    yield recurrent_case("gru", Recurrent(Cell.GRU, (_GRU,)), (5, 1, 6), 7)
    last = Recurrent(Cell.GRU_AFTER, (_GRU,), starts=(True, False), gives=(False, True, False))
    yield recurrent_case("gru_last", last, (6, 2, 5), 9)
    two = Recurrent(Cell.GRU_AFTER, (_GRU, _GRU), lengths=(3, 0, 5), gives=both)
    yield recurrent_case("gru_two", two, (5, 3, 4), 3)
    yield recurrent_case("lstm", Recurrent(Cell.LSTM, (_LSTM,), gives=(True, True, True)), (4, 1, 9), 8)
    full = Recurrent(
        Cell.LSTM, (_LSTM, _LSTM), False, True, 3.0, (2, 4), True, (True, True), (True, True, True)
    )
    yield recurrent_case("lstm_full", full, (2, 4, 3), 5)
    coupled = Recurrent(Cell.LSTM_COUPLED, (_LSTM,), True, True, gives=(True, False, False))
    yield recurrent_case("lstm_coupled", coupled, (1, 3, 2), 1)
    for name in CURVES:
        curve = Curve(name, 0.5, 0.25)
        yield recurrent_case(name, Recurrent(Cell.RNN, ((curve,),)), (3, 1, 4), 6)


def recurrent_case(name: str, op: Recurrent, shape: tuple[int, int, int], units: int, seed: int = 1) -> Case:
    """Return a layer with random weights, whose initial states are computed at run time."""
    rng = np.random.default_rng(seed)
    rows, d = op.kind.gates * units, op.directions
    batch = shape[0] if op.batch_first else shape[1]
    state = (batch, d, units) if op.batch_first else (d, batch, units)
    shapes = [(d, rows, shape[2]), (d, rows, units), (d, 2 * rows), *[(d, 3 * units)] * op.has_peepholes]
    constants = [
        Value.constant(f"w{i}", rng.uniform(-0.5, 0.5, s).astype(np.float32)) for i, s in enumerate(shapes)
    ]
    given = zip("hc", op.starts, strict=True)
    inputs = (floats("x", shape), *constants, *(floats(n, state) for n, there in given if there))
    outputs = (Value(f"y{i}", s, t) for i, (s, t) in enumerate(op.infer(inputs)))
    return Case(f"recurrent_{name}_onnx", op, Signature(inputs, tuple(outputs)))
