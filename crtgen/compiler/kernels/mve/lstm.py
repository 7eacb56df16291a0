"""LSTM and GRU with Helium: each gate's products for all units, then gates and states four units at a time.

Scratch holds the input's products for the gates input, forget, output and cell, or update, reset and new,
then the hidden state's.
"""

from collections.abc import Sequence
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
from crtgen.network.ops.gru import GRU_GATES, Gru, GruParams
from crtgen.network.ops.lstm import GATES, Lstm, LstmParams
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, sigmoid_places

__all__ = ["MveLstmView", "gru", "lstm"]

_ORDER = tuple(GATES.index(gate) for gate in ("input", "forget", "output", "cell"))
_GATE = Sigmoid16Params(3, 0)  # gates have 12 fractional bits
_PLACES = 256


@dataclass(frozen=True, slots=True)
class MveLstmView:
    """Dimensions of an LSTM: ``x_steps`` and ``y_steps`` are the elements from one batch to the next, and
    from one time step to the next.
    """

    batch: int
    times: int
    units: int
    gates: int
    x_steps: tuple[int, int]
    y_steps: tuple[int, int]


@design(Lstm, types=(DType.INT8, DType.INT16), needs="mve", weights=(3, 4, 5), either=(1, 2))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel | None:
    return _of_rows("mve lstm", op, sig, _ORDER, target)


@design(Gru, types=(DType.INT8, DType.INT16), needs="mve", weights=(3, 4, 5, 6), either=(1, 2))
def gru(op: Gru, sig: Signature, target: Target) -> Kernel | None:
    return _of_rows("mve gru", op, sig, range(len(GRU_GATES)), target)


def _of_rows(
    name: str, op: Lstm | Gru, sig: Signature, order: Sequence[int], target: Target
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
    if isinstance(op, Lstm):
        states = _states(units, op.parameters(sig), x.dtype)
    else:
        states = _gru_states(units, op.parameters(sig), x.dtype)
    steps = batch * times
    work = Work(steps * Runs.sum(routine.runs() for routine in (*routines, states)))
    work.block("batch", batch).block("step", steps)
    kernel = Kernel(
        design=name,
        template="mve/lstm.c.j2",
        view=MveLstmView(batch, times, units, len(order), orders[0], orders[1]),
        consts=(*consts, Const.of("tables", tables, 2, note)),
        scratch=2 * len(routines) * units,
        inplace=(InPlace(input=1, output=1), InPlace(input=2, output=2)),
        work=work,
        routines=(*routines, states),
    )
    return with_first_states(kernel, sig)


def _states(units: int, p: LstmParams, dtype: DType) -> Routine:
    # ``states(gates, cell, hidden, tables)``: gates from products, then the new states.
    f = Function(
        "states",
        "int16_t *gates",
        "int16_t *cell",
        "void *hidden",
        "const uint16_t *tables",
        purpose=f"The states of {units} units from the products of their gates.",
    )
    gates, cell, hidden, places = f.arguments
    slopes = f.core("slopes")
    f("add", slopes, places, f"#{2 * _PLACES}")
    fresh, old = f.cores("products of the input; of the hidden state", 2, LOW)
    f("mov", fresh, gates)
    f("mov", old, gates)
    f.advance(old, 8 * units)
    _activated(f, (fresh, old), 3 * units, SigmoidOf(f, _GATE, True, (places, slopes)))
    for pointer in (fresh, old):
        f.advance(pointer, -2 * (-3 * units % 4))  # the last vector went past
    f("add", places, places, f"#{4 * _PLACES}")
    _activated(f, (fresh, old), units, SigmoidOf(f, _GATE, False, (places, slopes)))
    f.free(fresh, old)
    _update(f, units, p, (gates, cell, hidden), (places, slopes), dtype)
    return f.done()


def _activated(f: Function, pointers: tuple[str, str], count: int, sigmoid: SigmoidOf) -> None:
    # The gates of so many products, instead of those of the input.
    x, y = f.vectors("products", 2)
    with f.predicated_loop("gates", 32, count):
        f("vldrh.s32", x, f"[{pointers[0]}]")
        f("vldrh.s32", y, f"[{pointers[1]}], #8")
        f("vadd.i32", x, x, y)
        _short(f, x)
        sigmoid(x)
        f("vstrh.32", x, f"[{pointers[0]}], #8")
    f.free(x, y)
    sigmoid.free()


def _short(f: Function, vector: str) -> None:
    f("vqmovnb.s32", vector, vector)
    f("vmovlb.s16", vector, vector)


def _update(
    f: Function,
    units: int,
    p: LstmParams,
    pointers: tuple[str, str, str],
    tables: tuple[str, str],
    dtype: DType,
) -> None:
    # The new cell state, then the new hidden state.
    entering, cell, hidden = pointers
    kept, shown, new = f.cores("forget, output and cell gates", 3, LOW)
    for number, pointer in enumerate((kept, shown, new), 1):
        f("mov", pointer, entering)
        f.advance(pointer, 2 * units * number)
    tanh = SigmoidOf(f, p.tanh, False, tables)
    x, y = f.vectors("the cell state, then the hidden state; another number", 2)
    scale = f.constant("multiplier of outputs", p.output[0])
    zero = f.constant("zero point", p.output_offset) if p.output_offset else ""
    clip = f.constant("clip", p.clip) if p.clip else ""
    spare, other, _ = tanh.spare
    with f.predicated_loop("units", 32, units):
        f("vldrh.s32", x, f"[{kept}], #8")
        f("vldrh.s32", y, f"[{cell}]")
        f("vmul.i32", x, x, y)
        _halved(f, x, spare, p.forget)
        f("vldrh.s32", y, f"[{entering}], #8")
        f("vldrh.s32", other, f"[{new}], #8")
        f("vmul.i32", y, y, other)
        _halved(f, y, spare, p.update)
        if p.update[1] > p.forget[1]:
            _short(f, y)
        f("vadd.i32", x, x, y)
        _short(f, x)
        if clip:
            _clipped(f, x, y, clip)
        f("vstrh.32", x, f"[{cell}], #8")
        tanh(x)
        f("vldrh.s32", y, f"[{shown}], #8")
        f("vmul.i32", x, x, y)
        rescaled(f, x, spare, scale, p.output[1])
        _stored(f, x, zero, hidden, dtype)


def _stored(f: Function, x: str, zero: str, pointer: str, dtype: DType) -> None:
    # Hidden states of four units, with their zero point if it is not 0.
    if zero:
        f("vadd.i32", x, x, zero)
    if dtype is DType.INT8:
        narrow(f, x)
    else:
        f("vqmovnb.s32", x, x)
    f("vstrb.32" if dtype is DType.INT8 else "vstrh.32", x, f"[{pointer}], #{4 * dtype.itemsize}")


def _gru_states(units: int, p: GruParams, dtype: DType) -> Routine:
    # ``states(gates, state, hidden, tables)``: gates from products, then the new states.
    f = Function(
        "states",
        "int16_t *gates",
        "int16_t *state",
        "void *hidden",
        "const uint16_t *tables",
        purpose=f"The states of {units} units from the products of their gates.",
    )
    update, state, hidden, places = f.arguments
    slopes = f.core("slopes")
    f("add", slopes, places, f"#{2 * _PLACES}")
    fresh, old = f.cores("products of the input; of the hidden state", 2, LOW)
    f("mov", fresh, update)
    f("mov", old, update)
    f.advance(old, 6 * units)
    _activated(f, (fresh, old), 2 * units, SigmoidOf(f, _GATE, True, (places, slopes)))
    for pointer in (fresh, old):
        f.advance(pointer, -2 * (-2 * units % 4))  # the last vector went past
    f("add", places, places, f"#{4 * _PLACES}")
    reset = f.core("reset gate", LOW)
    f("mov", reset, update)
    f.advance(reset, 2 * units)
    tanh = SigmoidOf(f, _GATE, False, (places, slopes))
    x, y = f.vectors("the new state; another number", 2)
    scale = f.constant("multiplier of outputs", p.output[0])
    zero = f.constant("zero point", p.output_offset) if p.output_offset else ""
    spare = tanh.spare[0]
    with f.predicated_loop("units", 32, units):
        f("vldrh.s32", x, f"[{old}], #8")
        f("vldrh.s32", y, f"[{reset}], #8")
        f("vmul.i32", x, x, y)
        f("vrshr.s32", x, x, "#15")
        f("vldrh.s32", y, f"[{fresh}], #8")
        f("vadd.i32", x, x, y)
        _short(f, x)
        tanh(x)
        # z * state + (32768 - z) * new, whose products may wrap while their sum does not
        f("vldrh.s32", y, f"[{state}]")
        f("vsub.i32", y, y, x)
        f("vldrh.s32", spare, f"[{update}], #8")
        f("vmul.i32", y, y, spare)
        f("vshl.i32", x, x, "#15")
        f("vadd.i32", x, x, y)
        f("vrshr.s32", x, x, "#15")
        f("vstrh.32", x, f"[{state}], #8")
        rescaled(f, x, spare, scale, p.output[1])
        _stored(f, x, zero, hidden, dtype)
    return f.done()


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
