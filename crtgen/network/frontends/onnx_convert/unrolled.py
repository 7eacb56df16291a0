"""LSTM with weights that are computed at run time: matrix products, step by step."""

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import OnnxLayer, Operand, reshaped
from crtgen.network.ir import shape_text
from crtgen.network.ops import Activation, Add, Concat, Logistic, Mul, StridedSlice, Tanh
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["lstm_by_computed_weights"]

_MOST_STEPS = 64
# Attributes that it does not know.
_PLAIN = ("activations", "activation_alpha", "activation_beta", "clip", "input_forget", "layout")


def lstm_by_computed_weights(layer: OnnxLayer) -> tuple[Converted, ...]:
    """Convert to ``Y``, ``Y_h`` and ``Y_c`` for ``X[steps, N, inputs]``, in one direction."""
    _require_plain(layer)
    steps, batch, _ = layer.x.shape
    hidden = layer.tensor(2).shape[-1]
    weights = [reshaped(layer.tensor(i), layer.tensor(i).shape[1:]) for i in (1, 2)]
    bias = _bias(layer, hidden)
    state = [reshaped(layer.tensor(i), (batch, hidden)) if layer.has(i) else None for i in (5, 6)]
    backward = layer.text("direction", "forward") == "reverse"
    seen: list[Converted] = []
    for step in reversed(range(steps)) if backward else range(steps):
        state = list(_step(_at(layer.x, step, layer.x.shape), weights, bias, state, (batch, hidden)))
        assert state[0] is not None
        seen.append(reshaped(state[0], (1, 1, batch, hidden)))
    whole = Converted(Concat(0), tuple(reversed(seen) if backward else seen)) if steps > 1 else seen[0]
    ends = [reshaped(end, (1, batch, hidden)) for end in state if end is not None]
    return (whole, *ends)[: len(layer.outputs)]


def _require_plain(layer: OnnxLayer) -> None:
    if len(layer.x.shape) != 3:
        raise ValueError(f"an input of {shape_text(layer.x.shape)}")
    named = next((name for name in _PLAIN if layer.attribute(name)), None)
    if named is not None or layer.text("direction", "forward") == "bidirectional":
        raise RefusedOperator(f"weights that are computed at run time with {named or 'two directions'}")
    if layer.has(4) or layer.has(7):
        what = "peepholes" if layer.has(7) else "lengths of sequences"
        raise RefusedOperator(f"weights that are computed at run time with {what}")
    if layer.x.shape[0] > _MOST_STEPS:
        raise RefusedOperator(
            f"weights that are computed at run time, {layer.x.shape[0]} steps; supported: {_MOST_STEPS}"
        )
    inputs, hidden = layer.x.shape[2], layer.tensor(2).shape[-1]
    for position, depth in ((1, inputs), (2, hidden)):
        shape = layer.tensor(position).shape
        if shape != (1, 4 * hidden, depth):
            raise ValueError(f"weights of {shape_text(shape)} for {inputs} inputs and {hidden} states")


def _bias(layer: OnnxLayer, hidden: int) -> Converted | None:
    # Those of the input and of the state, added up.
    if not layer.has(3):
        return None
    rows = reshaped(layer.tensor(3), (2, 4 * hidden))
    parts = [_at(rows, i, (2, 4 * hidden)) for i in range(2)]
    return Converted(Add(Activation.NONE), (parts[0], parts[1]))


def _at(x: Operand, index: int, shape: tuple[int, ...]) -> Converted:
    # Element at an index of the first axis.
    begin, end = (index, *(0 for _ in shape[1:])), (index + 1, *shape[1:])
    return Converted(StridedSlice(begin, end, (1,) * len(shape), (0,)), (x,))


def _step(
    x: Converted,
    weights: list[Converted],
    bias: Converted | None,
    state: list[Converted | None],
    shape: tuple[int, int],
) -> tuple[Converted, Converted]:
    # The state and the cell after a step; the gates are those of input, output, forgetting, and the cell.
    (batch, hidden), (before, cell) = shape, state
    gates = Converted(BatchMatMul(adj_y=True), (x, weights[0]), ("weights",))
    if before is not None:
        kept = Converted(BatchMatMul(adj_y=True), (before, weights[1]), ("weights",))
        gates = Converted(Add(Activation.NONE), (gates, kept))
    if bias is not None:
        gates = Converted(Add(Activation.NONE), (gates, bias), ("bias",))

    def gate(number: int) -> Converted:
        begin, end = (0, number * hidden), (batch, (number + 1) * hidden)
        cut = Converted(StridedSlice(begin, end, (1, 1)), (gates,))
        return Converted(Tanh() if number == 3 else Logistic(), (cut,))

    made = Converted(Mul(Activation.NONE), (gate(0), gate(3)))
    if cell is not None:
        made = Converted(Add(Activation.NONE), (Converted(Mul(Activation.NONE), (gate(2), cell)), made))
    return Converted(Mul(Activation.NONE), (gate(1), Converted(Tanh(), (made,)))), made
