"""LSTM and GRU with Helium, gate by gate: the products of all units, then the gate of four units at a time.

Scratch has three rows of units: what is kept from gate to gate, and a gate's products of the input and of the
hidden state. Each routine of an LSTM ends with what the next one needs: the cell gate, what enters the cell,
tanh of the next cell state, the hidden state. A GRU's are the reset gate, the new state, the hidden state.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.asm import LOW, Function, Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.dense import row_of_sums
from crtgen.compiler.kernels.mve.elements import narrow, rescaled
from crtgen.compiler.kernels.mve.sigmoids import SigmoidOf
from crtgen.compiler.kernels.portable.lstm import products, with_first_states
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.gru import Gru, GruParams
from crtgen.network.ops.lstm import GATES, Lstm, LstmParams
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, sigmoid_places

__all__ = ["MveLstmView", "gru", "lstm"]

_ORDER = tuple(GATES.index(gate) for gate in ("cell", "input", "forget", "output"))
_GRU_ORDER = (1, 2, 0)
_GATE = Sigmoid16Params(3, 0)  # gates have 12 fractional bits
_PLACES = 256


@dataclass(frozen=True, slots=True)
class MveLstmView:
    """Dimensions of an LSTM: ``x_steps`` and ``y_steps`` are the elements from one batch to the next, and
    from one time step to the next. The states' routines are called with ``given``, in C.
    """

    x_type: str
    batch: int
    times: int
    units: int
    gates: int
    x_steps: tuple[int, int]
    y_steps: tuple[int, int]
    given: tuple[str, ...]


@design(Lstm, types=(DType.INT8, DType.INT16), needs="mve", weights=(3, 4, 5), either=(1, 2))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel | None:
    units, p = sig.inputs[1].shape[1], op.parameters(sig)
    states = _cell_gates(units), _entering(units, p), _next_cells(units, p), _shown(units, p, sig.x.dtype)
    return _of_rows("mve lstm", op, sig, _ORDER, states, target)


@design(Gru, types=(DType.INT8, DType.INT16), needs="mve", weights=(3, 4, 5, 6), either=(1, 2))
def gru(op: Gru, sig: Signature, target: Target) -> Kernel | None:
    units = sig.inputs[1].shape[1]
    states = _reset(units), _new(units), _mixed(units, op.parameters(sig), sig.x.dtype)
    return _of_rows("mve gru", op, sig, _GRU_ORDER, states, target)


def _of_rows(
    name: str,
    op: Lstm | Gru,
    sig: Signature,
    order: Sequence[int],
    states: Sequence[tuple[Routine, str]],
    target: Target,
) -> Kernel | None:
    x, hidden, *_ = sig.inputs
    batch, units = hidden.shape
    routines, consts = [], []
    for number, gate in enumerate(order):
        for role, product in zip(("input", "hidden"), products(op, sig, gate), strict=True):
            made = row_of_sums(product.weights, product.start, product.rescale, x.dtype.itemsize, target)
            if made is None:
                return None
            routines.append(made[0])
            consts.append(made[1].named(f"{role}_weights{number}"))
    times, depth = x.shape[0 if op.time_major else 1], x.shape[2]
    orders = [(n, batch * n) if op.time_major else (times * n, n) for n in (depth, units)]
    logistic, slopes = sigmoid_places(True)
    tables = np.concatenate([logistic, slopes, sigmoid_places(False)[0]])
    note = "65536 / (1 + exp(-i / 24)), slopes, the same for tanh: the ends differ"
    routines += [routine for routine, _ in states]
    steps = batch * times
    work = Work(steps * Runs.sum(routine.runs() for routine in routines))
    work.block("batch", batch).block("step", steps)
    kernel = Kernel(
        design=name,
        template="mve/lstm.c.j2",
        view=MveLstmView(
            x.dtype.c_name,
            batch,
            times,
            units,
            len(order),
            orders[0],
            orders[1],
            tuple(given for _, given in states),
        ),
        consts=(*consts, Const.of("tables", tables, 2, note)),
        scratch=2 * 3 * units,
        inplace=(InPlace(input=1, output=1), InPlace(input=2, output=2)),
        work=work,
        routines=tuple(routines),
    )
    return with_first_states(kernel, sig)


class _GateLoop:
    # A routine of gates: pointers to the rows of units, and the sigmoid of a sum of two products.

    def __init__(self, units: int, name: str, purpose: str, *others: str, logistic: bool = True) -> None:
        declared = ("int16_t *kept", *others, "const uint16_t *tables")
        self.f = f = Function(name, *declared, purpose=f"{purpose} of {units} units.")
        self.units, self.logistic = units, logistic
        self.kept, *self.others, self.places = f.arguments
        self.slopes = f.core("slopes")
        f("add", self.slopes, self.places, f"#{2 * _PLACES}")
        if not logistic:
            f("add", self.places, self.places, f"#{4 * _PLACES}")
        self.fresh, self.old = f.cores("products of the input; of the hidden state", 2, LOW)
        f.add(self.fresh, self.kept, 2 * units)
        f.add(self.old, self.kept, 4 * units)
        self.x, self.y = f.vectors("gates; other numbers", 2)
        self.sigmoid = SigmoidOf(f, _GATE, logistic, (self.places, self.slopes))

    @contextmanager
    def each(self) -> Iterator[None]:
        # A loop with the gates of four units in ``x``.
        f = self.f
        with f.predicated_loop("units", 32, self.units):
            f("vldrh.s32", self.x, f"[{self.fresh}], #8")
            f("vldrh.s32", self.y, f"[{self.old}], #8")
            f("vadd.i32", self.x, self.x, self.y)
            _short(f, self.x)
            self.sigmoid(self.x)
            yield

    def times(self, pointer: str, step: bool = False) -> None:
        # Multiplies the gates by numbers of 16 bits.
        self.f("vldrh.s32", self.y, f"[{pointer}], #8" if step else f"[{pointer}]")
        self.f("vmul.i32", self.x, self.x, self.y)

    def store(self, pointer: str) -> None:
        self.f("vstrh.32", self.x, f"[{pointer}], #8")


def _cell_gates(units: int) -> tuple[Routine, str]:
    g = _GateLoop(units, "cell_gates", "The cell gates", logistic=False)
    with g.each():
        g.store(g.kept)
    return g.f.done(), "kept, tables"


def _entering(units: int, p: LstmParams) -> tuple[Routine, str]:
    g = _GateLoop(units, "entering", "What enters the cells")
    with g.each():
        g.times(g.kept)
        _halved(g.f, g.x, g.sigmoid.spare[0], p.update)
        if p.update[1] > p.forget[1]:
            _short(g.f, g.x)
        g.store(g.kept)
    return g.f.done(), "kept, tables"


def _next_cells(units: int, p: LstmParams) -> tuple[Routine, str]:
    g = _GateLoop(units, "next_cells", "The next cell states, and their tanh,", "int16_t *cell")
    f, x, y, (cell,) = g.f, g.x, g.y, g.others
    clip = f.constant("clip", p.clip) if p.clip else ""
    with g.each():
        g.times(cell)
        _halved(f, x, g.sigmoid.spare[0], p.forget)
        f("vldrh.s32", y, f"[{g.kept}], #8")
        f("vadd.i32", x, x, y)
        _short(f, x)
        if clip:
            _clipped(f, x, y, clip)
        g.store(cell)
    g.sigmoid.free()
    for pointer in (cell, g.kept):
        f.advance(pointer, -8 * -(-units // 4))  # the last vector went past
    f("add", g.places, g.places, f"#{4 * _PLACES}")
    tanh = SigmoidOf(f, p.tanh, False, (g.places, g.slopes))
    with f.predicated_loop("cells", 32, units):
        f("vldrh.s32", x, f"[{cell}], #8")
        tanh(x)
        g.store(g.kept)
    return f.done(), "kept, cell, tables"


def _shown(units: int, p: LstmParams, dtype: DType) -> tuple[Routine, str]:
    g = _GateLoop(units, "shown", "The hidden states", "void *hidden")
    scale = g.f.constant("multiplier of outputs", p.output[0])
    zero = g.f.constant("zero point", p.output_offset) if p.output_offset else ""
    with g.each():
        g.times(g.kept, step=True)
        rescaled(g.f, g.x, g.sigmoid.spare[0], scale, p.output[1])
        _stored(g.f, g.x, zero, g.others[0], dtype)
    return g.f.done(), "kept, hidden, tables"


def _reset(units: int) -> tuple[Routine, str]:
    g = _GateLoop(units, "reset", "The reset gates")
    with g.each():
        g.store(g.kept)
    return g.f.done(), "kept, tables"


def _new(units: int) -> tuple[Routine, str]:
    g = _GateLoop(units, "new", "The new states", logistic=False)
    f, x, y = g.f, g.x, g.y
    with f.predicated_loop("units", 32, units):
        f("vldrh.s32", x, f"[{g.old}], #8")
        f("vldrh.s32", y, f"[{g.kept}]")
        f("vmul.i32", x, x, y)
        f("vrshr.s32", x, x, "#15")
        f("vldrh.s32", y, f"[{g.fresh}], #8")
        f("vadd.i32", x, x, y)
        _short(f, x)
        g.sigmoid(x)
        g.store(g.kept)
    return f.done(), "kept, tables"


def _mixed(units: int, p: GruParams, dtype: DType) -> tuple[Routine, str]:
    g = _GateLoop(units, "mixed", "The hidden states", "int16_t *state", "void *hidden")
    f, x, y, (state, hidden), spare = g.f, g.x, g.y, g.others, g.sigmoid.spare[0]
    scale = f.constant("multiplier of outputs", p.output[0])
    zero = f.constant("zero point", p.output_offset) if p.output_offset else ""
    with g.each():
        # z * state + (32768 - z) * new, whose products may wrap while their sum does not
        f("vldrh.s32", spare, f"[{g.kept}], #8")
        f("vldrh.s32", y, f"[{state}]")
        f("vsub.i32", y, y, spare)
        f("vmul.i32", x, x, y)
        f("vshl.i32", spare, spare, "#15")
        f("vadd.i32", x, x, spare)
        f("vrshr.s32", x, x, "#15")
        g.store(state)
        rescaled(f, x, spare, scale, p.output[1])
        _stored(f, x, zero, hidden, dtype)
    return f.done(), "kept, cell, hidden, tables"


def _short(f: Function, vector: str) -> None:
    f("vqmovnb.s32", vector, vector)
    f("vmovlb.s16", vector, vector)


def _stored(f: Function, x: str, zero: str, pointer: str, dtype: DType) -> None:
    # Hidden states of four units, with their zero point if it is not 0.
    if zero:
        f("vadd.i32", x, x, zero)
    if dtype is DType.INT8:
        narrow(f, x)
    else:
        f("vqmovnb.s32", x, x)
    f("vstrb.32" if dtype is DType.INT8 else "vstrh.32", x, f"[{pointer}], #{4 * dtype.itemsize}")


def _halved(f: Function, vector: str, spare: str, factor: tuple[int, int]) -> None:
    # TFLite's rescaling by a power of two, which is below a half: its first rounding is that of a half.
    shift = -factor[1]
    f("vrshr.s32", vector, vector, "#1")
    f("vshr.s32", spare, vector, "#31")
    f("vadd.i32", vector, vector, spare, note="halves go away from zero")
    f("vrshr.s32", vector, vector, f"#{shift}")


def _clipped(f: Function, x: str, y: str, clip: str) -> None:
    f("vdup.32", y, clip)
    f("vmin.s32", x, x, y)
    f("vneg.s32", y, y)
    f("vmax.s32", x, x, y)
