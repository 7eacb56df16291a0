"""Recurrent layers: RNN, GRU and LSTM."""

from collections.abc import Iterator, Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, NamedTensor, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import Convert, OnnxConverter, OnnxLayer, Results
from crtgen.network.frontends.onnx_convert.unrolled import lstm_by_computed_weights
from crtgen.network.frontends.refusals import NotConstant
from crtgen.network.ops.recurrent import CURVES, Cell, Curve, Recurrent

__all__ = ["CONVERTERS"]

_ALPHA = {"affine": 1.0, "elu": 1.0, "hardsigmoid": 0.2, "leakyrelu": 0.01, "thresholdedrelu": 1.0}
_BETA = {"affine": 0.0, "hardsigmoid": 0.5}
# Activations whose parameters have no default.
_LISTED = {"scaledtanh"}

_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
_STATES, _PEEPHOLES = (5, 6), 7


def _recurrent(plain: Cell, other: Cell | None = None, switch: str = "") -> Convert:
    # A cell; ``other`` is that with the attribute ``switch``.
    def convert(layer: OnnxLayer) -> Results:
        weights = [layer.tensor(i) for i in range(1, 3 + layer.has(3))]
        if plain is Cell.LSTM and any(tensor.data is None for tensor in weights):
            return lstm_by_computed_weights(layer)
        return _converted(layer, other if other is not None and layer.whole(switch) else plain)

    return convert


def _converted(layer: OnnxLayer, kind: Cell) -> Converted:
    direction = layer.text("direction", "forward")
    if direction not in _DIRECTIONS:
        raise ValueError(f"direction {direction!r}")
    w, r = layer.constant(1, "weights"), layer.constant(2, "weights")
    if w.ndim != 3 or r.ndim != 3 or w.shape[0] != _DIRECTIONS[direction]:
        raise ValueError(f"weights of {w.shape[:1]} directions for {direction}")
    rows = w.shape[1]
    bias = layer.constant(3, "biases") if layer.has(3) else np.zeros((w.shape[0], 2 * rows), np.float32)
    states = [_state(layer, position) for position in _STATES[: 1 + kind.is_lstm]]
    holes = layer.constant(_PEEPHOLES, "peepholes") if kind.is_lstm and layer.has(_PEEPHOLES) else None
    given = (*layer.outputs, None, None, None)
    op = Recurrent(
        kind,
        tuple(_curves(layer, kind)),
        backward=direction == "reverse",
        batch_first=bool(layer.whole("layout")),
        clip=layer.real("clip", 0.0),
        lengths=_lengths(layer),
        has_peepholes=holes is not None,
        starts=(states[0] is not None, kind.is_lstm and states[1] is not None),
        gives=(given[0] is not None, given[1] is not None, given[2] is not None),
    )
    more = [a for a in (holes, *states) if a is not None]
    roles = ("weights", "hidden_weights", "bias", *["peepholes"] * (holes is not None), "hidden", "cell")
    return Converted(op, (layer.x, w, r, bias, *more), roles)


def _state(layer: OnnxLayer, position: int) -> NamedTensor | None:
    # A state before the first step; None for zeros.
    if not layer.has(position):
        return None
    tensor = layer.tensor(position)
    return tensor if tensor.data is None or tensor.data.any() else None


def _lengths(layer: OnnxLayer) -> tuple[int, ...]:
    # Steps of each sequence, unless they are all.
    if not layer.has(4):
        return ()
    if layer.tensor(4).data is None:
        raise NotConstant("lengths of sequences that are computed at run time; supported: constants")
    lengths, steps = tuple(layer.integers(4, "lengths")), layer.x.shape[1 if layer.whole("layout") else 0]
    return () if all(n == steps for n in lengths) else lengths


def _curves(layer: OnnxLayer, kind: Cell) -> Iterator[tuple[Curve, ...]]:
    # The activations of each direction; numbers are given to those that have any, in order.
    count, standard = kind.curves, ("tanh", "tanh") if kind is Cell.RNN else ("sigmoid", "tanh", "tanh")
    directions = _DIRECTIONS[layer.text("direction", "forward")]
    named = layer.attribute("activations")
    names = [_name(n) for n in named] if named else [*standard[:count]] * directions
    if len(names) != count * directions:
        raise ValueError(f"{len(names)} activations instead of {count * directions}")
    alphas, betas = (iter(layer.attribute(f"activation_{name}") or ()) for name in ("alpha", "beta"))
    curves = [Curve(n, _number(n, alphas, _ALPHA, "alpha"), _number(n, betas, _BETA, "beta")) for n in names]
    for first in range(0, len(curves), count):
        yield tuple(curves[first : first + count])


def _name(given: object) -> str:
    name = given.decode(errors="replace") if isinstance(given, bytes) else str(given)
    if name.lower() not in CURVES:
        raise RefusedOperator(f"the activation {name}; supported: {', '.join(sorted(CURVES))}")
    return name.lower()


def _number(name: str, given: Iterator[float], defaults: Mapping[str, float], role: str) -> float:
    if name not in defaults and name not in _LISTED:
        return 0.0
    number = next(given, defaults.get(name))
    if number is None:
        raise RefusedOperator(f"the activation {name} without activation_{role}")
    return float(np.float32(number))


CONVERTERS: Mapping[str, OnnxConverter] = {
    "GRU": OnnxConverter(_recurrent(Cell.GRU, Cell.GRU_AFTER, "linear_before_reset"), ("gru",)),
    "LSTM": OnnxConverter(_recurrent(Cell.LSTM, Cell.LSTM_COUPLED, "input_forget"), ("lstm",)),
    "RNN": OnnxConverter(_recurrent(Cell.RNN), ("rnn",)),
}
