"""LSTM, GRU and SVDF without the DSP extension: fully connected layers compute their sums."""

from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.base.dense import row_of_sums
from crtgen.compiler.kernels.engine.kernel import Kernel, Part, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.compiler.kernels.portable.lstm import products
from crtgen.compiler.kernels.portable.recurrent_parts import recurrent_of_parts, svdf_of_part
from crtgen.compiler.level import find_level
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.svdf import Svdf

__all__ = ["gru", "lstm", "svdf"]

_MUCH = 1.03


@design(Lstm, types=(DType.INT8,), needs="base", weights=(3, 4, 5), either=(1, 2))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel:
    return _of_sums("base lstm", op, sig, target)


@design(Gru, types=(DType.INT8,), needs="base", weights=(3, 4, 5, 6), either=(1, 2))
def gru(op: Gru, sig: Signature, target: Target) -> Kernel:
    return _of_sums("base gru", op, sig, target)


def _of_sums(name: str, op: Lstm | Gru, sig: Signature, target: Target) -> Kernel:
    # With a part for each gate, or with one for all where that saves much time.
    by_gate = _of_parts(name, op, sig, target, 1)
    if find_level(target.optimize).streams:
        return by_gate
    at_once = _of_parts(name, op, sig, target, sig.inputs[3].shape[0])
    times = (kernel.priced(target).cost.time for kernel in (by_gate, at_once))
    return at_once if next(times) > _MUCH * next(times) else by_gate


def _of_parts(name: str, op: Lstm | Gru, sig: Signature, target: Target, together: int) -> Kernel:
    x, hidden, _, w, r, bias = sig.inputs[:6]
    p, units, gates = op.parameters(sig), hidden.shape[1], w.shape[0]
    both = [products(op, sig, gate) for gate in range(gates)]
    y = Value("y", (1, together * units), DType.INT32)
    parts, scaled = [], []
    for role, (value, weights, factors) in enumerate(((x, w, p.of_input), (hidden, r, p.of_hidden))):
        row = replace(value, shape=(1, weights.shape[2]), data=None)
        for first in range(0, gates, together):
            some = [pair[role] for pair in both[first : first + together]]
            rows, starts = (
                np.concatenate(n) for n in zip(*((g.weights, g.start) for g in some), strict=True)
            )
            kernel = row_of_sums(rows, starts, target).priced(target)
            parts.append(Part("fully_connected", Signature((row, weights, bias), (y,)), kernel))
        for multiplier, shift in factors:
            scaled.append(f"crt_saturate16(crt_scale(sums[unit], {multiplier}, {shift}))")
    return recurrent_of_parts(name, op, sig, parts, scaled)


@design(Svdf, types=(DType.INT8,), needs="base", weights=(1, 2, 3))
def svdf(op: Svdf, sig: Signature, target: Target) -> Kernel | None:
    p, weights = op.parameters(sig), by_output(sig.inputs[1])
    if p.state_zero_point:
        return None
    kernel = row_of_sums(weights, p.input_offset * weights.sum(axis=1), target)
    newest = Value("newest", (1, len(weights)), DType.INT32)
    return svdf_of_part("base svdf", op, sig, newest, kernel.priced(target))
