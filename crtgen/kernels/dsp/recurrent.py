"""LSTM and SVDF with the DSP extension: their products of matrices are parts, fully connected layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crtgen.ir import DType, Quant, Signature, Value
from crtgen.kernels.cost import Work
from crtgen.kernels.dsp.dense import row_of_sums
from crtgen.kernels.kernel import Const, InPlace, Kernel, Part, Target
from crtgen.kernels.lstm import LstmView, activated, logistic_table, lstm_view, products
from crtgen.kernels.parts import aligned, arguments, assemble
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale, accumulator_range
from crtgen.kernels.svdf import SvdfView, svdf_view
from crtgen.kernels.words import by_output
from crtgen.ops import scheme_of
from crtgen.ops.lstm import GATES, Lstm
from crtgen.ops.svdf import Svdf

__all__ = ["PartsView", "lstm", "svdf"]


@dataclass(frozen=True, slots=True)
class PartsView:
    """The view ``of`` the operator; the parts' scratch is at the offset ``work``.

    ``arguments`` is what each part is given behind its images.
    """

    of: LstmView | SvdfView
    work: int
    arguments: tuple[tuple[str, ...], ...]


@design(Lstm, types=(DType.INT8, DType.INT16), needs="dsp", weights=(3, 4, 5))
def lstm(op: Lstm, sig: Signature, target: Target) -> Kernel | None:
    """None if inexact, or for less than four units."""
    parts = [replace(part, calls=sig.x.elements // sig.x.shape[-1]) for part in _gate_parts(op, sig, target)]
    if len(parts) < 2 * len(GATES):
        return None
    view, units = lstm_view(op, sig), sig.inputs[1].shape[1]
    numbers = range(len(GATES))
    gates = tuple(activated(g, *(f"products[{(h + g) * units} + unit]" for h in (0, 4))) for g in numbers)
    steps = view.batch * view.times
    work = Work().block("batch", view.batch).block("step", steps).block(f"{view.x_type} unit", steps * units)
    return _assembled(
        "dsp lstm",
        "dsp/lstm.c.j2",
        replace(view, gates=gates),
        parts,
        (logistic_table(),),
        scratch=2 * len(parts) * units,
        inplace=(InPlace(input=1, output=1), InPlace(input=2, output=2)),
        work=work,
    )


def _gate_parts(op: Lstm, sig: Signature, target: Target) -> Iterator[Part]:
    """Those of the input for all gates, then those of the hidden state."""
    x, hidden, _, w, r, bias = sig.inputs
    y = Value("y", (1, hidden.shape[1]), DType.INT16, Quant.tensor(1 / 4096))
    both = [products(op, sig, gate) for gate in range(len(GATES))]
    for role, (value, weights) in enumerate(((x, w), (hidden, r))):
        row = replace(value, shape=(1, weights.shape[2]))
        for product in (pair[role] for pair in both):
            size = value.dtype.itemsize
            kernel = row_of_sums(product.weights, product.start, product.rescale, size, target)
            if kernel is not None:
                yield Part("fully_connected", Signature((row, weights, bias), (y,)), kernel.priced(target))


@design(Svdf, types=(DType.INT8,), needs="dsp", weights=(1, 2, 3))
def svdf(op: Svdf, sig: Signature, target: Target) -> Kernel | None:
    """For states without zero point; None for others, if inexact, or for less than four filters."""
    x, feature, time, bias, state = sig.inputs
    p, scheme, filters = op.parameters(sig), scheme_of(state), time.shape[0]
    weights = by_output(feature)
    low, high = accumulator_range(weights, *(end + p.input_offset for end in scheme_of(x).limits))
    multipliers, shifts = (np.full(filters, n, np.int64) for n in p.feature)
    rescale = Rescale(multipliers, shifts, 0, *scheme.limits, low, high, scheme)
    kernel = row_of_sums(weights, p.input_offset * weights.sum(axis=1), rescale, 1, target)
    if kernel is None or p.state_zero_point:
        return None
    row = replace(x, shape=(1, x.shape[1]))
    newest = Value("newest", (1, filters), state.dtype, state.quant)
    part = Part(
        "fully_connected", Signature((row, feature, bias), (newest,)), kernel.priced(target), x.shape[0]
    )
    view, batch = svdf_view(op, sig), x.shape[0]
    kind = state.dtype.value
    work = Work().words("unit", batch * view.units, view.result)
    work.block(f"{kind} filter", batch * filters).block(f"{kind} time", batch * time.elements)
    return _assembled(
        "dsp svdf",
        "dsp/svdf.c.j2",
        view,
        [part],
        (Const.of("time", time.array()), Const.of("bias", bias.array())),
        scratch=newest.nbytes,
        inplace=(InPlace(input=4, output=1),),
        work=work,
    )


def _assembled(
    name: str,
    template: str,
    view: LstmView | SvdfView,
    parts: Sequence[Part],
    consts: tuple[Const, ...],
    *,
    scratch: int,
    inplace: tuple[InPlace, ...],
    work: Work,
) -> Kernel:
    """The kernel of parts, with ``consts`` and so many bytes of scratch of its own."""
    begin = aligned(scratch)
    whole = PartsView(view, begin, arguments(parts))
    kernel = assemble(name, template, whole, parts, begin=begin, inplace=inplace, work=work)
    return replace(kernel, consts=(*kernel.consts, *consts))
