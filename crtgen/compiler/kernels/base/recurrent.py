"""LSTM and SVDF without the DSP extension: their sums are computed by fully connected layers of one row."""

from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.base.dense import row_of_sums
from crtgen.compiler.kernels.engine.kernel import Kernel, Part, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.compiler.kernels.portable.lstm import products
from crtgen.compiler.kernels.portable.recurrent_parts import lstm_of_parts, svdf_of_part
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops.lstm import GATES, Lstm
from crtgen.network.ops.scheme import INT16
from crtgen.network.ops.svdf import Svdf

__all__ = ["lstm", "svdf"]


@design(Lstm, types=(DType.INT8,), needs="base", weights=(3, 4, 5))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel:
    x, hidden, _, w, r, bias = sig.inputs
    p, units = op.parameters(sig), hidden.shape[1]
    both = [products(op, sig, gate) for gate in range(len(GATES))]
    y = Value("y", (1, len(GATES) * units), DType.INT32)
    parts, scaled = [], []
    for role, (value, weights, factors) in enumerate(((x, w, p.of_input), (hidden, r, p.of_hidden))):
        rows = np.concatenate([pair[role].weights for pair in both])
        start = np.concatenate([pair[role].start for pair in both])
        row = replace(value, shape=(1, weights.shape[2]))
        kernel = row_of_sums(rows, start, target).priced(target)
        parts.append(Part("fully_connected", Signature((row, weights, bias), (y,)), kernel))
        scaled.append(tuple(_product(role, gate, units, *factors[gate]) for gate in range(len(GATES))))
    return lstm_of_parts("base lstm", op, sig, parts, scaled, twice=target.core.narrow)


def _product(role: int, gate: int, units: int, multiplier: int, shift: int) -> str:
    # C expression of a gate, from the unit's sum.
    product = f"crt_scale(sums[{gate * units} + unit], {multiplier}, {shift})"
    place = (role * len(GATES) + gate) * units
    return f"products[{place} + unit] = (int16_t)crt_int16({product}, {INT16.low}, {INT16.high});"


@design(Svdf, types=(DType.INT8,), needs="base", weights=(1, 2, 3))
def svdf(op: Svdf, sig: Signature, target: Target) -> Kernel | None:
    """SVDF; None if the states have a zero point."""
    p, weights = op.parameters(sig), by_output(sig.inputs[1])
    if p.state_zero_point:
        return None
    kernel = row_of_sums(weights, p.input_offset * weights.sum(axis=1), target)
    newest = Value("newest", (1, len(weights)), DType.INT32)
    return svdf_of_part("base svdf", op, sig, newest, kernel.priced(target))
