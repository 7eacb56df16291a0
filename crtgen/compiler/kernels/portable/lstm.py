"""The LSTM and the integer GRU, unit by unit: all gates, then the unit's states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale, accumulator_range
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import scheme_of
from crtgen.network.ops.fixedpoint import Int8, Int64, reduced_multiplier
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.lstm import GATES, Lstm, LstmParams
from crtgen.network.ops.scheme import INT16
from crtgen.network.ops.sigmoid16 import sigmoid_table

__all__ = [
    "FLOAT_GATES",
    "GateProduct",
    "LstmView",
    "activated",
    "gru_gates",
    "gru_view",
    "logistic_table",
    "lstm_view",
    "next_cell",
    "products",
    "shown",
    "update",
    "with_first_states",
]


_Lines = tuple[tuple[str, ...], tuple[str, ...], str]
# Gates, lines of the cell, and the hidden state, in C.

FLOAT_GATES = ("crt_logisticf", "crt_logisticf", "crt_tanhf", "crt_logisticf")
"""The functions of the gates i, f, c and o in float32, in C."""


@dataclass(frozen=True, slots=True)
class LstmView:
    """An LSTM or GRU: sizes, types, and C expressions for conversions.

    ``x_steps`` and ``y_steps`` are the elements from one batch to the next, and from one time step to the
    next. The gates, each called by a letter of ``names``, are ``gates`` of the sums a0.. and r0..;
    ``cell`` and ``hidden`` are the new states of a unit, ``state`` its old cell state.
    """

    x_type: str
    w_type: str
    sum_type: str
    gate_type: str
    cell_type: str
    batch: int
    times: int
    inputs: int
    units: int
    x_steps: tuple[int, int]
    y_steps: tuple[int, int]
    recurrent: bool
    names: str
    gates: tuple[str, ...]
    cell: tuple[str, ...]
    hidden: str


@dataclass(frozen=True, slots=True, eq=False)
class GateProduct:
    """A gate's ``weights[S, K]``, the initial values ``start[S]`` of its sums of raw integers, and their
    conversion.
    """

    weights: Int8
    start: Int64
    rescale: Rescale


def products(op: Lstm | Gru, sig: Signature, gate: int) -> tuple[GateProduct, GateProduct]:
    """Return the products of input and hidden state for an integer gate, with 12 fractional bits."""
    x, hidden, _, w, r, *biases = sig.inputs
    p, units = op.parameters(sig), hidden.shape[1]
    first = [b.array()[gate].astype(np.int64) for b in biases]
    made = []
    for value, weights, offset, (multiplier, shift), start in (
        (x, w, p.input_offset, p.of_input[gate], first[0]),
        (
            hidden,
            r,
            p.hidden_offset,
            p.of_hidden[gate],
            first[-1] if len(first) > 1 else np.zeros(units, np.int64),
        ),
    ):
        scheme, rows = scheme_of(value), weights.array()[gate].astype(np.int8, casting="safe")
        ends = (end + offset for end in scheme.limits)
        low, high = (end + start for end in accumulator_range(rows, *ends))
        multipliers, shifts = (np.full(units, n, np.int64) for n in (multiplier, shift))
        rescale = Rescale(multipliers, shifts, 0, *INT16.limits, low, high, INT16, scheme is INT16)
        made.append(GateProduct(rows, start + offset * rows.sum(axis=1), rescale))
    return made[0], made[1]


@design(Lstm, types=(DType.INT8, DType.INT16, DType.FLOAT32), weights=(3, 4, 5), either=(1, 2))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel:
    return _by_units("lstm", op, sig, lstm_view(op, sig))


@design(Gru, types=(DType.INT8, DType.INT16), weights=(3, 4, 5, 6), either=(1, 2))
def gru(op: Gru, sig: Signature, target: Target) -> Kernel:
    return _by_units("integer gru", op, sig, gru_view(op, sig))


def _by_units(name: str, op: Lstm | Gru, sig: Signature, view: LstmView) -> Kernel:
    x, hidden, _, w, r, *biases = sig.inputs
    scheme = scheme_of(x)

    def pack(weights: Array) -> Array:
        return np.ascontiguousarray(weights.transpose(1, 2, 0)).ravel()

    consts = [
        Const(
            "input_weights", w.dtype.value, (w.elements,), lambda: pack(w.array()), 4, "[unit][input][gate]"
        ),
        Const(
            "hidden_weights", r.dtype.value, (r.elements,), lambda: pack(r.array()), 4, "[unit][unit][gate]"
        ),
    ]
    if scheme.is_real:
        consts += [Const.of("bias", np.ascontiguousarray(biases[0].array().T), 4, "[unit][gate]")]
    else:
        p, folds = op.parameters(sig), []
        for weights, offset in ((w, p.input_offset), (r, p.hidden_offset)):
            folds.append(weights.array().astype(np.int64).sum(axis=2) * offset)
        for fold, bias in zip(folds, biases, strict=False):
            fold += bias.array()
        if max(int(np.abs(f).max()) for f in folds) >= 2**31 and scheme is not INT16:
            raise ValueError("the bias does not fit into 32 bits with the zero point folded in")
        types = scheme.accumulators.numpy
        consts += [
            Const.of(n, np.ascontiguousarray(f.T).astype(types), types.itemsize, "[unit][gate]")
            for n, f in zip(("bias", "hidden_bias"), folds, strict=True)
        ]
        consts += [logistic_table()]
    steps, kind, units = x.shape[0] * x.shape[1], x.dtype.value, hidden.shape[1]
    own = "" if isinstance(op, Lstm) else " gru"
    work = Work().block(f"{kind}{own} product", steps * (w.elements + r.elements))
    work.block(f"{kind}{own} unit", steps * units)
    places = (InPlace(input=1, output=1), InPlace(input=2, output=2))
    return with_first_states(Kernel(name, "lstm.c.j2", view, tuple(consts), inplace=places, work=work), sig)


def with_first_states(kernel: Kernel, sig: Signature) -> Kernel:
    """Give a kernel constant first states, if they are, under the names that inputs have."""
    constant = [value.is_constant for value in sig.inputs[1:3]]
    if not any(constant):
        return kernel
    if not all(constant):
        raise ValueError("one of the first states is constant and the other is not")
    held = [Const.of(f"x{n}", sig.inputs[n].array(), 4, "before the first step") for n in (1, 2)]
    return replace(kernel, consts=(*kernel.consts, *held), inplace=())


def logistic_table() -> Const:
    return Const.of("table", sigmoid_table(), 2, "65536 / (1 + exp(-i / 24))")


def lstm_view(op: Lstm, sig: Signature) -> LstmView:
    lines = _float(op) if scheme_of(sig.x).is_real else _integer(op, sig)
    return _view(op, sig, "ifco", lines)


def gru_view(op: Gru, sig: Signature) -> LstmView:
    p, wide = op.parameters(sig), scheme_of(sig.x) is INT16
    fresh, old = (
        [_short(_scaled(f"{name}{gate}", *factor, wide)) for gate, factor in enumerate(factors)]
        for name, factors in (("a", p.of_input), ("r", p.of_hidden))
    )
    scaled = f"crt_scale(next, {p.output[0]}, {p.output[1]}) {plus(p.output_offset)}"
    cell = ("const int32_t next = (z * state + (32768 - z) * n + 16384) >> 15;",)
    return _view(op, sig, "zrn", (gru_gates(fresh, old), cell, _stored(sig, scaled)))


def gru_gates(fresh: Sequence[str], old: Sequence[str]) -> tuple[str, ...]:
    """Return the gates z, r and n in C, from the products of the input and of the hidden state."""
    gates = [f"crt_logistic16({_short(f'{fresh[g]} + {old[g]}')}, 3, 0, table)" for g in range(2)]
    kept = f"((r * {old[2]} + 16384) >> 15)"
    return *gates, f"crt_tanh16({_short(f'{fresh[2]} + {kept}')}, 3, 0, table)"


def _view(op: Lstm | Gru, sig: Signature, names: str, lines: _Lines) -> LstmView:
    x, hidden, cell, w = sig.inputs[:4]
    batch, units = hidden.shape
    scheme, depth = scheme_of(x), x.shape[2]
    gates, new_cell, new_hidden = lines
    times = x.shape[0] if op.time_major else x.shape[1]
    orders = [(n, batch * n) if op.time_major else (times * n, n) for n in (depth, units)]
    return LstmView(
        x_type=x.dtype.c_name,
        w_type=w.dtype.c_name,
        sum_type=scheme.accumulators.c_name,
        gate_type="float" if scheme.is_real else "int32_t",
        cell_type=cell.dtype.c_name,
        batch=batch,
        times=times,
        inputs=depth,
        units=units,
        x_steps=orders[0],
        y_steps=orders[1],
        recurrent=not scheme.is_real,
        names=names,
        gates=gates,
        cell=new_cell,
        hidden=new_hidden,
    )


def _float(op: Lstm) -> _Lines:
    gates = tuple(f"{function}(a{g} + r{g})" for g, function in enumerate(FLOAT_GATES))
    cell = ["float next = f * state + i * c;"]
    if op.cell_clip > 0:
        clip = c_float(op.cell_clip)
        cell.append(f"next = crt_minf(crt_maxf(next, -{clip}), {clip});")
    return gates, tuple(cell), "o * crt_tanhf(next)"


def _integer(op: Lstm, sig: Signature) -> _Lines:
    p, wide = op.parameters(sig), scheme_of(sig.x) is INT16
    gates = []
    for gate, (given, before) in enumerate(zip(p.of_input, p.of_hidden, strict=True)):
        parts = (_scaled(f"a{gate}", *given, wide), _scaled(f"r{gate}", *before, wide))
        gates.append(activated(gate, _short(parts[0]), _short(parts[1])))
    return tuple(gates), next_cell(p, update(p, "i * c")), shown(op, sig)


def update(p: LstmParams, product: str) -> str:
    """Return what is added to the cell state, in C, given ``product``, that of the gates i and c."""
    return _short(_of_product(product, p.update))


def next_cell(p: LstmParams, added: str) -> tuple[str, ...]:
    """Return C that defines ``next``, the new cell state, given the gate ``f`` and the old ``state``."""
    kept = _short(_of_product("f * state", p.forget))
    clipped = f"next = crt_max(crt_min(next, {p.clip}), -{p.clip});"
    return f"int32_t next = {_short(f'{kept} + {added}')};", *([clipped] if p.clip else [])


def shown(op: Lstm, sig: Signature) -> str:
    """Return the new hidden state, in C, given the gate ``o`` and the cell state ``next``."""
    p = op.parameters(sig)
    tanh = f"crt_tanh16(next, {p.tanh.multiplier}, {p.tanh.shift}, table)"
    scaled = f"crt_scale(o * {tanh}, {p.output[0]}, {p.output[1]}) {plus(p.output_offset)}"
    return _stored(sig, scaled)


def _stored(sig: Signature, scaled: str) -> str:
    scheme = scheme_of(sig.x)
    function = "crt_int16" if scheme is INT16 else "crt_int8"
    return f"{function}({scaled}, {scheme.low}, {scheme.high})"


def activated(gate: int, fresh: str, old: str) -> str:
    """Return the C expression of a gate, given the products of the input and of the hidden state."""
    function = "crt_tanh16" if gate == GATES.index("cell") else "crt_logistic16"
    return f"{function}({_short(f'{fresh} + {old}')}, 3, 0, table)"


def _short(number: str) -> str:
    return f"crt_saturate16({number})"


def _of_product(product: str, factor: tuple[int, int]) -> str:
    # A product of two numbers of 16 bits in another scale, most often by a power of two.
    multiplier, shift = factor
    if multiplier == 1 << 30 and shift < 0:
        return f"crt_scale_half({product}, {-shift})"
    return f"crt_scale({product}, {multiplier}, {shift})"


def _scaled(total: str, multiplier: int, shift: int, wide: bool) -> str:
    if wide:
        return f"crt_scale_wide({total}, {reduced_multiplier(multiplier)}, {15 - shift})"
    return f"crt_scale({total}, {multiplier}, {shift})"
