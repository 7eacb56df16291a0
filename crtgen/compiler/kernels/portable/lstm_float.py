"""The float32 LSTM, with the sums of its gates computed by the kernels of fully connected layers."""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.parts import aligned, arguments, assemble
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.lstm import FLOAT_GATES, LstmView, lstm_view
from crtgen.compiler.kernels.portable.recurrent import dense_part
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.lstm import GATES, Lstm

__all__ = ["FloatLstmView"]

_FLOAT = 4  # bytes


@dataclass(frozen=True, slots=True)
class FloatLstmView:
    """An LSTM with parts; ``of`` is the view of the operator.

    ``work`` is the offset of the parts' memory within scratch, 0 if they need none. ``calls`` has the C
    arguments of each part's call.
    """

    of: LstmView
    work: int
    calls: tuple[tuple[str, ...], ...]


@design(Lstm, types=(DType.FLOAT32,), weights=(3, 4, 5))
def lstm_of_layers(op: Lstm, sig: Signature, target: Target) -> Kernel | None:
    """Compute the sums of all gates by two fully connected layers; None if there are no kernels for these."""
    x, hidden, _, w, r, bias = sig.inputs
    view, depth, units = lstm_view(op, sig), x.shape[2], hidden.shape[1]
    rows = len(GATES) * units
    found = [
        dense_part(inputs, weights.array().astype(np.float32).reshape(rows, inputs), start, target)
        for inputs, weights, start in (
            (depth, w, bias.array().astype(np.float32).reshape(rows)),
            (units, r, np.zeros(rows, np.float32)),
        )
    ]
    steps = view.batch * view.times
    parts = [replace(part, calls=steps) for part in found if part is not None]
    if len(parts) < len(found):
        return None
    gates = tuple(
        f"{function}(sums[{gate * units} + unit] + sums[{rows + gate * units} + unit])"
        for gate, function in enumerate(FLOAT_GATES)
    )
    ends = (("x", "sums"), ("hidden", f"sums + {rows}"))
    calls = tuple((*end, *more) for end, more in zip(ends, arguments(parts), strict=True))
    begin = aligned(2 * rows * _FLOAT)
    work = Work().block("batch", view.batch).block("step", steps).block("unit", steps * units)
    return assemble(
        "lstm of layers",
        "lstm_float.c.j2",
        FloatLstmView(
            replace(view, gates=gates), begin if any(part.kernel.scratch for part in parts) else 0, calls
        ),
        parts,
        begin=begin,
        inplace=(InPlace(input=1, output=1), InPlace(input=2, output=2)),
        work=work,
    )
