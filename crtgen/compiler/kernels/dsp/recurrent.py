"""LSTM, GRU and SVDF with the DSP extension: their matrix products are parts, fully connected layers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale, accumulator_range
from crtgen.compiler.kernels.dsp.dense import row_of_sums
from crtgen.compiler.kernels.dsp.sigmoids import sigmoid_table
from crtgen.compiler.kernels.dsp.states import lstm_states
from crtgen.compiler.kernels.engine.kernel import Kernel, Part, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.compiler.kernels.portable.lstm import products
from crtgen.compiler.kernels.portable.recurrent_parts import LstmStates, recurrent_of_parts, svdf_of_part
from crtgen.network.ir import DType, Quant, Signature, Value
from crtgen.network.ops import scheme_of
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.svdf import Svdf

__all__ = ["gru", "lstm", "svdf"]


@design(Lstm, types=(DType.INT8, DType.INT16), needs="dsp", weights=(3, 4, 5), either=(1, 2))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel | None:
    """LSTM; None for fewer than four units, or without an exact requantisation."""
    return _of_rows("dsp lstm", op, sig, target)


@design(Gru, types=(DType.INT8, DType.INT16), needs="dsp", weights=(3, 4, 5, 6), either=(1, 2))
def gru(op: Gru, sig: Signature, target: Target) -> Kernel | None:
    return _of_rows("dsp gru", op, sig, target)


def _of_rows(name: str, op: Lstm | Gru, sig: Signature, target: Target) -> Kernel | None:
    parts, gates = list(_gate_parts(op, sig, target)), sig.inputs[3].shape[0]
    if len(parts) < 2 * gates:
        return None
    found = None
    if isinstance(op, Lstm) and target.optimize != "size":
        found = lstm_states(sig.inputs[1].shape[1], op.parameters(sig), sig.x.dtype)
    tables = sigmoid_table("logistic", True), sigmoid_table("tanh", False)
    states = None if found is None else LstmStates(found, tables)
    return recurrent_of_parts(name, op, sig, parts, states=states)


def _gate_parts(op: Lstm | Gru, sig: Signature, target: Target) -> Iterator[Part]:
    # Those of the input for all gates, then those of the hidden state.
    x, hidden, _, w, r, bias = sig.inputs[:6]
    y = Value("y", (1, hidden.shape[1]), DType.INT16, Quant.tensor(1 / 4096))
    both = [products(op, sig, gate) for gate in range(w.shape[0])]
    for role, (value, weights) in enumerate(((x, w), (hidden, r))):
        row = replace(value, shape=(1, weights.shape[2]), data=None)
        for product in (pair[role] for pair in both):
            size = value.dtype.itemsize
            kernel = row_of_sums(product.weights, product.start, product.rescale, size, target)
            if kernel is not None:
                yield Part("fully_connected", Signature((row, weights, bias), (y,)), kernel.priced(target))


@design(Svdf, types=(DType.INT8,), needs="dsp", weights=(1, 2, 3))
def svdf(op: Svdf, sig: Signature, target: Target) -> Kernel | None:
    """SVDF; None if the states have a zero point, for fewer than four filters, or without an exact
    requantisation.
    """
    x, feature, time, _, state = sig.inputs
    p, scheme, filters = op.parameters(sig), scheme_of(state), time.shape[0]
    weights = by_output(feature)
    low, high = accumulator_range(weights, *(end + p.input_offset for end in scheme_of(x).limits))
    multipliers, shifts = (np.full(filters, n, np.int64) for n in p.feature)
    rescale = Rescale(multipliers, shifts, 0, *scheme.limits, low, high, scheme)
    kernel = row_of_sums(weights, p.input_offset * weights.sum(axis=1), rescale, 1, target)
    if kernel is None or p.state_zero_point:
        return None
    newest = Value("newest", (1, filters), state.dtype, state.quant)
    return svdf_of_part("dsp svdf", op, sig, newest, kernel.priced(target))
