"""Integer LSTM, GRU and SVDF whose matrix products are parts: fully connected layers of one row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Part
from crtgen.compiler.kernels.engine.parts import aligned, arguments, assemble
from crtgen.compiler.kernels.portable.lstm import (
    LstmView,
    activated,
    gru_gates,
    gru_view,
    logistic_table,
    lstm_view,
    with_first_states,
)
from crtgen.compiler.kernels.portable.svdf import SvdfView, svdf_view
from crtgen.network.ir import Signature, Value
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.svdf import Svdf

__all__ = ["recurrent_of_parts", "svdf_of_part"]

_SUM = 4  # bytes


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a part with ``arguments``; ``scaled`` is C code that then turns a unit's sums into
    products.
    """

    arguments: tuple[str, ...]
    scaled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _LstmView:
    """An LSTM or GRU with parts: ``of`` is the view of the operator; offsets in scratch locate sums and the
    parts' own memory, 0 for none.

    ``twice``: hidden states have a separate loop after that of the cell states.
    """

    of: LstmView
    twice: bool
    sums: int
    work: int
    calls: tuple[_Call, ...]


def recurrent_of_parts(
    design: str,
    op: Lstm | Gru,
    sig: Signature,
    parts: Sequence[Part],
    scaled: Sequence[tuple[str, ...]] = (),
    *,
    twice: bool = False,
) -> Kernel:
    """Return the LSTM kernel from the parts for the input, followed by as many for the hidden state.

    Each part computes the products of a gate. With ``scaled`` a single part computes the sums of all gates,
    and its lines of C make ``products`` from ``sums`` for the ``unit``. ``twice`` is for cores with few
    registers: hidden states have a separate loop.
    """
    view = lstm_view(op, sig) if isinstance(op, Lstm) else gru_view(op, sig)
    units, count = sig.inputs[1].shape[1], len(view.gates)
    fresh, old = ([f"products[{(h + g) * units} + unit]" for g in range(count)] for h in (0, count))
    if isinstance(op, Lstm):
        gates = tuple(activated(g, *both) for g, both in enumerate(zip(fresh, old, strict=True)))
    else:
        gates = gru_gates(fresh, old)
    products = 2 * 2 * count * units
    end = products + (_SUM * count * units if scaled else 0)
    steps = view.batch * view.times
    parts = [replace(part, calls=steps) for part in parts]
    calls = []
    for number, more in enumerate(arguments(parts)):
        x = "x" if number < len(parts) // 2 else "hidden"
        y = "sums" if scaled else f"products + {number * units}"
        calls.append(_Call((x, y, *more), scaled[number] if scaled else ()))
    begin = aligned(end) if any(part.kernel.scratch for part in parts) else 0
    whole = _LstmView(replace(view, gates=gates), twice, products if scaled else 0, begin, tuple(calls))
    work = Work().block("batch", view.batch).block("step", steps)
    work.block(f"{view.x_type}{'' if isinstance(op, Lstm) else ' gru'} unit", steps * units)
    if scaled:
        work.block("product", steps * units * sum(len(lines) for lines in scaled))
    places = (InPlace(input=1, output=1), InPlace(input=2, output=2))
    kernel = assemble(design, "lstm_parts.c.j2", whole, parts, begin=begin or end, inplace=places, work=work)
    return with_first_states(replace(kernel, consts=(*kernel.consts, logistic_table())), sig)


@dataclass(frozen=True, slots=True)
class _SvdfView:
    """An SVDF with a part: the view ``of`` the operator, if the part returns ``sums``, and the offset of its
    scratch, or 0.
    """

    of: SvdfView
    sums: bool
    work: int
    arguments: tuple[str, ...]


def svdf_of_part(design: str, op: Svdf, sig: Signature, newest: Value, kernel: Kernel) -> Kernel:
    """Return the kernel with a part that computes the ``newest`` elements of memories, or their 32-bit
    sums.
    """
    x, feature, time, bias, state = sig.inputs
    filters, batch, sums = time.shape[0], x.shape[0], newest.dtype is not state.dtype
    row = replace(x, shape=(1, x.shape[1]))
    part = Part("fully_connected", Signature((row, feature, bias), (newest,)), kernel, batch)
    view = svdf_view(op, sig)
    kind = state.dtype.value
    work = Work().words("unit", batch * view.units, view.result)
    work.block(f"{kind} filter", batch * filters).block(f"{kind} time", batch * time.elements)
    if sums:
        work.block(f"{kind} sum", batch * filters)
    begin = aligned(newest.nbytes) if kernel.scratch else 0
    whole = _SvdfView(view, sums, begin, arguments([part])[0])
    made = assemble(
        design,
        "svdf_parts.c.j2",
        whole,
        [part],
        begin=begin or newest.nbytes,
        inplace=(InPlace(input=4, output=1),),
        work=work,
    )
    consts = Const.of("time", time.array()), Const.of("bias", bias.array())
    return replace(made, consts=(*made.consts, *consts))
