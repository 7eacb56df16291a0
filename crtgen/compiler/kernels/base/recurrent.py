"""LSTM, GRU and SVDF without the DSP extension: fully connected layers compute their sums."""

from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.base.dense import row_of_sums
from crtgen.compiler.kernels.engine.kernel import Kernel, Part, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.compiler.kernels.portable.lstm import products
from crtgen.compiler.kernels.portable.recurrent_parts import recurrent_of_parts, svdf_of_part
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.scheme import INT16
from crtgen.network.ops.svdf import Svdf

__all__ = ["gru", "lstm", "svdf"]


@design(Lstm, types=(DType.INT8,), needs="base", weights=(3, 4, 5), either=(1, 2))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel:
    return _of_sums("base lstm", op, sig, target)


@design(Gru, types=(DType.INT8,), needs="base", weights=(3, 4, 5, 6), either=(1, 2))
def gru(op: Gru, sig: Signature, target: Target) -> Kernel:
    return _of_sums("base gru", op, sig, target)


def _of_sums(name: str, op: Lstm | Gru, sig: Signature, target: Target) -> Kernel:
    x, hidden, _, w, r, bias = sig.inputs[:6]
    p, units, gates = op.parameters(sig), hidden.shape[1], w.shape[0]
    both = [products(op, sig, gate) for gate in range(gates)]
    y = Value("y", (1, gates * units), DType.INT32)
    parts, scaled = [], []
    for role, (value, weights, factors) in enumerate(((x, w, p.of_input), (hidden, r, p.of_hidden))):
        rows = np.concatenate([pair[role].weights for pair in both])
        start = np.concatenate([pair[role].start for pair in both])
        row = replace(value, shape=(1, weights.shape[2]), data=None)
        kernel = row_of_sums(rows, start, target).priced(target)
        parts.append(Part("fully_connected", Signature((row, weights, bias), (y,)), kernel))
        scaled.append(
            tuple(_product(role * gates + gate, gate, units, *factors[gate]) for gate in range(gates))
        )
    return recurrent_of_parts(name, op, sig, parts, scaled, twice=target.core.narrow)


def _product(place: int, gate: int, units: int, multiplier: int, shift: int) -> str:
    # C expression of a gate, from the unit's sum.
    product = f"crt_scale(sums[{gate * units} + unit], {multiplier}, {shift})"
    return f"products[{place * units} + unit] = (int16_t)crt_int16({product}, {INT16.low}, {INT16.high});"


@design(Svdf, types=(DType.INT8,), needs="base", weights=(1, 2, 3))
def svdf(op: Svdf, sig: Signature, target: Target) -> Kernel | None:
    p, weights = op.parameters(sig), by_output(sig.inputs[1])
    if p.state_zero_point:
        return None
    kernel = row_of_sums(weights, p.input_offset * weights.sum(axis=1), target)
    newest = Value("newest", (1, len(weights)), DType.INT32)
    return svdf_of_part("base svdf", op, sig, newest, kernel.priced(target))
