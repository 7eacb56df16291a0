"""Integer LSTM, GRU and SVDF whose matrix products are parts: fully connected layers of one row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from crtgen.compiler.kernels.asm import Routine, Runs
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
    next_cell,
    shown,
    update,
    with_first_states,
)
from crtgen.compiler.kernels.portable.svdf import SvdfView, svdf_view
from crtgen.network.ir import Signature, Value
from crtgen.network.ops.gru import Gru
from crtgen.network.ops.lstm import GATES, Lstm
from crtgen.network.ops.svdf import Svdf

__all__ = ["LstmStates", "recurrent_of_parts", "svdf_of_part"]

_SUM = 4  # bytes
_PRODUCTS = ("fresh[unit]", "old[unit]")


@dataclass(frozen=True, slots=True, eq=False)
class LstmStates:
    """Routines for cell gates, what enters the cells, next cells, tanh, and hidden states; and the tables
    ``logistic`` and ``tanh``.
    """

    routines: tuple[Routine, ...]
    tables: tuple[Const, ...]


# The routines of each stage, with their arguments.
_STATES = (
    ((0, "kept, tanh"),),
    ((1, "kept, logistic"),),
    ((2, "kept, cell, logistic"), (3, "cell, kept, tanh")),
    ((4, "kept, hidden, logistic"),),
)


@dataclass(frozen=True, slots=True)
class _Call:
    # A call of the part with index ``number``; ``scaled`` is C code that then turns a unit's sums into
    # products.

    number: int
    arguments: tuple[str, ...]
    scaled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stage:
    # A gate: products of the input, ``fresh``, and of the hidden state, ``old``; then C for each unit, or
    # calls of routines, by their numbers and arguments.

    calls: tuple[_Call, ...]
    lines: tuple[str, ...]
    routines: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _LstmView:
    # An LSTM or GRU with parts: ``of`` is the view of the operator. Scratch has a row of units, ``kept``, and
    # two of ``products``, ``fresh`` and ``old``; then, if parts return sums, those of a part; then, at
    # ``work``, the parts' own memory. Offsets are 0 where there is none.

    of: LstmView
    products: int
    sums: int
    work: int
    stages: tuple[_Stage, ...]


def recurrent_of_parts(
    design: str,
    op: Lstm | Gru,
    sig: Signature,
    parts: Sequence[Part],
    scaled: Sequence[str] = (),
    states: LstmStates | None = None,
) -> Kernel:
    """Return the LSTM or GRU kernel from the parts for the input, one for each gate or one for all, followed
    by as many for the hidden state.

    A part computes the products of its gates. With ``scaled`` it computes sums, and the C expressions, one
    for each gate of the input and then of the hidden state, make a product from ``sums[unit]``. With
    ``states``, an LSTM computes gates and states by routines.
    """
    view = lstm_view(op, sig) if isinstance(op, Lstm) else gru_view(op, sig)
    units, count = sig.inputs[1].shape[1], len(view.gates)
    row = 2 * count // len(parts) * units
    places = [gate * units % row for gate in range(count)]
    products = -(-2 * (units + 2 * row) // _SUM) * _SUM
    end = products + (_SUM * row if scaled else 0)
    steps = view.batch * view.times
    parts = [replace(part, calls=steps) for part in parts]
    half, calls = len(parts) // 2, []
    for number, more in enumerate(arguments(parts)):
        x, y = ("x", "fresh") if number < half else ("hidden", "old")
        own = range(number * row // units, (number + 1) * row // units)
        made = [_at(f"{y}[unit] = (int16_t){scaled[gate]};", places[gate % count]) for gate in own if scaled]
        calls.append(_Call(number, (x, "sums" if scaled else y, *more), tuple(made)))
    gates = list(_lstm_stages(op, sig) if isinstance(op, Lstm) else _gru_stages(view))
    at_once = {gates[0][0]: calls}  # all products before the first gate
    of_gate = at_once if half == 1 else {gate: calls[gate::half] for gate in range(half)}
    stages = [
        _Stage(tuple(of_gate.get(gate, ())), tuple(_at(line, places[gate]) for line in lines))
        for gate, lines in gates
    ]
    if states is not None:
        stages = [replace(s, lines=(), routines=r) for s, r in zip(stages, _STATES, strict=True)]
    begin = aligned(end) if any(part.kernel.scratch for part in parts) else 0
    whole = _LstmView(view, row, products if scaled else 0, begin, tuple(stages))
    routines, tables = (states.routines, states.tables) if states is not None else ((), (logistic_table(),))
    work = Work(steps * Runs.sum(routine.runs() for routine in routines))
    work.block("batch", view.batch).block("step", steps)
    if states is None:
        work.block(f"{view.x_type}{'' if isinstance(op, Lstm) else ' gru'} unit", steps * units)
    if scaled:
        work.block("product", steps * units * 2 * count)
    inplace = (InPlace(input=1, output=1), InPlace(input=2, output=2))
    kernel = assemble(design, "lstm_parts.c.j2", whole, parts, begin=begin or end, inplace=inplace, work=work)
    return with_first_states(replace(kernel, consts=(*kernel.consts, *tables), routines=routines), sig)


def _at(line: str, place: int) -> str:
    # The line for the gate whose products begin at a place of their rows.
    if place:
        for row in ("fresh", "old", "sums"):
            line = line.replace(f"{row}[unit]", f"{row}[{place} + unit]")
    return line


def _lstm_stages(op: Lstm, sig: Signature) -> Iterator[tuple[int, tuple[str, ...]]]:
    # Gates in an order in which one row of units is kept from each to the next.
    p = op.parameters(sig)
    gate = {name: (number, activated(number, *_PRODUCTS)) for number, name in enumerate(GATES)}
    number, c = gate["cell"]
    yield number, (f"kept[unit] = {c};",)
    number, i = gate["input"]
    yield number, (f"kept[unit] = (int16_t){update(p, f'{i} * kept[unit]')};",)
    number, f = gate["forget"]
    cell = (f"const int32_t f = {f};", "const int32_t state = cell[unit];", *next_cell(p, "kept[unit]"))
    yield number, (*cell, "cell[unit] = (int16_t)next;")
    number, o = gate["output"]
    names = (f"const int32_t o = {o};", "const int32_t next = cell[unit];")
    yield number, (*names, f"hidden[unit] = {shown(op, sig)};")


def _gru_stages(view: LstmView) -> Iterator[tuple[int, tuple[str, ...]]]:
    # The reset gate, the new state, and the update gate.
    z, r, n = gru_gates([_PRODUCTS[0]] * 3, [_PRODUCTS[1]] * 3)
    yield 1, (f"kept[unit] = {r};",)
    yield 2, ("const int32_t r = kept[unit];", f"kept[unit] = {n};")
    names = (f"const int32_t z = {z};", "const int32_t n = kept[unit];", "const int32_t state = cell[unit];")
    yield 0, (*names, *view.cell, "cell[unit] = (int16_t)next;", f"hidden[unit] = {view.hidden};")


@dataclass(frozen=True, slots=True)
class _SvdfView:
    # An SVDF with a part: the view ``of`` the operator, if the part returns ``sums``, and the offset of its
    # scratch, or 0.

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
