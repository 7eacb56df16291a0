"""Float32 recurrent layers: sums of all gates by fully connected layers of one row, then unit by unit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Part, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.parts import aligned, arguments, assemble, find_part
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Array, DType, Signature, Value
from crtgen.network.ops import FullyConnected
from crtgen.network.ops.recurrent import Cell, Curve, Recurrent

__all__ = ["PartProduct", "RecurrentView", "UnitStage", "dense_part"]

_FLOAT = 4  # bytes


@dataclass(frozen=True, slots=True)
class PartProduct:
    """A call of the part with index ``number`` from ``x`` to ``y``, in C, with its other arguments."""

    number: int
    x: str
    y: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnitStage:
    products: tuple[PartProduct, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Direction:
    # A direction: its stages, and in ``first`` the initial hidden and cell states as C, empty for zeros.

    stages: tuple[UnitStage, ...]
    back: bool
    first: tuple[str, ...]
    y: str
    last: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecurrentView:
    """Scratch has a row of ``units`` for each of ``states``, then sums of input and hidden state, then
    ``work``.

    ``length`` is C for the number of steps of a sequence; ``x_steps`` and ``y_steps`` are the elements from
    one sequence to the next, and from one time step to the next.
    """

    units: int
    batch: int
    times: int
    length: str
    rows: int
    x_steps: tuple[int, int]
    y_steps: tuple[int, int]
    states: tuple[str, ...]
    work: int
    directions: tuple[_Direction, ...]


@design(Recurrent, types=(DType.FLOAT32,), weights=None)
def recurrent(op: Recurrent, sig: Signature, target: Target) -> Kernel | None:
    """Use the fastest available matrix product; None for weights computed at run time, and for some with
    infinities or NaN.
    """
    fixed = 4 + op.has_peepholes
    if not all(v.is_constant for v in sig.inputs[1:fixed]):
        return None
    steps, batch, depth, units = op.sizes(sig.x, sig.inputs[2])
    found = [list(_parts(op, sig, d, target)) for d in range(op.directions)]
    lists = [[part for part in each if part is not None] for each in found]
    if lists != found:
        return None
    runs = sum(op.steps_of(steps, batch))
    parts = [replace(part, calls=runs) for each in lists for part in each]
    states, rows = ("h", "c")[: 1 + op.kind.is_lstm], op.kind.gates * units
    begin = aligned((len(states) * units + 2 * rows) * _FLOAT)
    count = len(lists[0])
    given = arguments(parts)
    names, consts = _others(op, sig)
    directions = tuple(
        _direction(op, d, names, given[d * count : (d + 1) * count], d * count, (batch, units))
        for d in range(op.directions)
    )
    d, order = op.directions, op.batch_first
    view = RecurrentView(
        units=units,
        batch=batch,
        times=steps,
        length="lengths[batch]" if op.lengths else str(steps),
        rows=rows,
        x_steps=(steps * depth, depth) if order else (depth, batch * depth),
        y_steps=(steps * d * units, d * units) if order else (units, d * batch * units),
        states=states,
        work=begin if any(part.kernel.scratch for part in parts) else 0,
        directions=directions,
    )
    work = _work(op, view, runs)
    kernel = assemble(op.kind.value, "recurrent.c.j2", view, parts, begin=begin, inplace=(), work=work)
    return replace(kernel, consts=(*kernel.consts, *consts))


def _parts(op: Recurrent, sig: Signature, direction: int, target: Target) -> Iterator[Part | None]:
    # Sums of the input, then of the hidden state; of a GRU, those of the state that is reset come last.
    _, _, depth, units = op.sizes(sig.x, sig.inputs[2])
    w, r, bias = (v.array()[direction].astype(np.float32) for v in sig.inputs[1:4])
    of_input, of_hidden = bias.reshape(2, -1)
    yield dense_part(depth, w, of_input, target)
    split = 2 * units if op.kind is Cell.GRU else len(r)
    yield dense_part(units, r[:split], of_hidden[:split], target)
    if op.kind is Cell.GRU:
        yield dense_part(units, r[split:], of_hidden[split:], target)


def dense_part(depth: int, weights: Array, bias: Array, target: Target) -> Part | None:
    """Return the fastest fully connected layer for one row of float32; None if there is none."""
    outputs = len(bias)
    inputs = (
        Value("row", (1, depth), DType.FLOAT32),
        Value.constant("weights", weights),
        Value.constant("bias", bias),
    )
    sig = Signature(inputs, (Value("sums", (1, outputs), DType.FLOAT32),))
    return find_part(FullyConnected(), sig, target)


def _others(op: Recurrent, sig: Signature) -> tuple[list[str], tuple[Const, ...]]:
    # C names of the initial states, hidden and cell, and the constants beside those of the parts.
    names, consts = operands(sig)
    first = 4 + op.has_peepholes
    kept = [const for const in consts if int(const.name.removeprefix("operand")) >= 4]
    if op.lengths:
        kept.append(Const.of("lengths", np.array(op.lengths, np.int32), 4, "steps of each sequence"))
    found, rest = [], iter(names[first:])
    for there in op.starts:
        found.append(next(rest) if there else "")
    return found, tuple(kept)


def _direction(
    op: Recurrent,
    number: int,
    names: Sequence[str],
    given: Sequence[tuple[str, ...]],
    part: int,
    sizes: tuple[int, int],
) -> _Direction:
    batch, units = sizes
    at = f"(batch * {op.directions} + {number})" if op.batch_first else f"({number * batch} + batch)"
    outputs = iter(f"y{i}" for i in range(sum(op.gives)))
    y, *last = (next(outputs) if wanted else "" for wanted in op.gives)
    shift = number * units * (1 if op.batch_first else batch)
    return _Direction(
        stages=tuple(_stages(op, number, given, part, units)),
        back=op.goes_back(number),
        first=tuple(name and f"{name} + {at} * {units}" for name in names),
        y=y and f"{y} + {shift}",
        last=tuple(name and f"{name} + {at} * {units}" for name in last),
    )


def _stages(
    op: Recurrent, direction: int, given: Sequence[tuple[str, ...]], part: int, units: int
) -> Iterator[UnitStage]:
    products = (PartProduct(part, "x", "fresh", given[0]), PartProduct(part + 1, "h", "old", given[1]))
    curves = op.curves[direction]
    if op.kind is Cell.GRU:
        before = (
            f"fresh[unit] = {_gate(op, curves[0], _sum(units, 0))};",
            f"old[{units} + unit] = {_gate(op, curves[0], _sum(units, 1))} * h[unit];",
        )
        yield UnitStage(products, before)
        new = _gate(op, curves[1], f"fresh[{2 * units} + unit] + old[unit]")
        after = (f"h[unit] = (1.0f - fresh[unit]) * {new} + fresh[unit] * h[unit];",)
        yield UnitStage((PartProduct(part + 2, f"old + {units}", "old", given[2]),), after)
    elif op.kind is Cell.GRU_AFTER:
        new = f"fresh[{2 * units} + unit] + r * old[{2 * units} + unit]"
        lines = (
            f"const float z = {_gate(op, curves[0], _sum(units, 0))};",
            f"const float r = {_gate(op, curves[0], _sum(units, 1))};",
            f"const float n = {_gate(op, curves[1], new)};",
            "h[unit] = (1.0f - z) * n + z * h[unit];",
        )
        yield UnitStage(products, lines)
    elif op.kind is Cell.RNN:
        yield UnitStage(products, (f"h[unit] = {_gate(op, curves[0], _sum(units, 0))};",))
    else:
        yield UnitStage(products, tuple(_lstm_lines(op, direction, units)))


def _sum(units: int, gate: int) -> str:
    at = f"{gate * units} + unit" if gate else "unit"
    return f"fresh[{at}] + old[{at}]"


def _lstm_lines(op: Recurrent, direction: int, units: int) -> Iterator[str]:
    f, g, shown = op.curves[direction]
    first = 3 * units * direction

    def gate(number: int, hole: int) -> str:
        peep = f" + operand4[{first + hole * units} + unit] * c[unit]" if op.has_peepholes else ""
        return _gate(op, f, _sum(units, number) + peep)

    yield f"const float i = {gate(0, 0)};"
    yield f"const float f = {'1.0f - i' if op.kind is Cell.LSTM_COUPLED else gate(2, 2)};"
    yield f"c[unit] = f * c[unit] + i * {_gate(op, g, _sum(units, 3))};"
    yield f"const float o = {gate(1, 1)};"
    yield f"h[unit] = o * {_curve(shown, 'c[unit]')};"


def _gate(op: Recurrent, curve: Curve, total: str) -> str:
    # C for the activation of a sum.
    if op.clip > 0:
        bound = c_float(op.clip)
        total = f"crt_minf(crt_maxf({total}, -{bound}), {bound})"
    return _curve(curve, total)


def _curve(curve: Curve, x: str) -> str:
    # C for an activation; ``x`` is C that may be written once or twice.
    a, b = c_float(curve.alpha), c_float(curve.beta)
    forms = {
        "affine": f"({a} * ({x}) + {b})",
        "elu": f"(crt_maxf({x}, 0.0f) + {a} * crt_expm1f(crt_minf({x}, 0.0f)))",
        "hardsigmoid": f"crt_minf(crt_maxf({a} * ({x}) + {b}, 0.0f), 1.0f)",
        "leakyrelu": f"(crt_maxf({x}, 0.0f) + {a} * crt_minf({x}, 0.0f))",
        "relu": f"crt_maxf({x}, 0.0f)",
        "scaledtanh": f"({a} * crt_tanhf({b} * ({x})))",
        "sigmoid": f"crt_logisticf({x})",
        "softplus": f"(crt_maxf({x}, 0.0f) + crt_logf(1.0f + crt_expf(-__builtin_fabsf({x}))))",
        "softsign": f"(({x}) / (1.0f + __builtin_fabsf({x})))",
        "tanh": f"crt_tanhf({x})",
        "thresholdedrelu": f"((({x}) > {a}) ? ({x}) : 0.0f)",
    }
    return forms[curve.name]


def _work(op: Recurrent, view: RecurrentView, steps: int) -> Work:
    # ``steps`` are those of all sequences of a batch together.
    work = Work().block("sequence", view.batch * op.directions, op.directions)
    work.block("step", steps * op.directions)
    for direction in view.directions:
        for stage in direction.stages:
            work.words("unit", steps * view.units, *stage.lines)
            work.block("product", steps * len(stage.products), len(stage.products))
    if op.gives[0]:
        work.copy(view.units * _FLOAT, steps * op.directions, op.directions)
    return work
