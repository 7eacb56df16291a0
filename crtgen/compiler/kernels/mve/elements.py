"""Common part of element-wise kernels with Helium, for one or two operands.

A run is the longest stretch of elements in which each operand either advances with the output or is a single
value. Vectors hold four elements as 32 bits (16 as bytes); the tail is predicated. Scalar loops around the
run handle broadcast operands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop, merge, repeated_strides, strides_of
from crtgen.compiler.kernels.mve.epilogue import requantisation, rounded_products
from crtgen.network.ir import Signature

__all__ = [
    "BYTES",
    "MOST_LOOPS",
    "WORDS",
    "ElementSteps",
    "Operands",
    "Reading",
    "StoreForm",
    "elementwise",
    "narrow",
    "requantised",
    "rescaled",
    "run_loops",
    "scaled",
    "spread",
    "unrolling",
    "walk",
]

WORDS, BYTES = 4, 16  # elements in a vector
MOST_LOOPS = 4  # a register each, but for the innermost one
_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """The order in which operands are read. ``order`` are their indices; the first one advances along a run.

    ``loops`` are outermost first, the last one is the run. Their strides are for the operands in this order,
    then for the output.
    """

    order: tuple[int, ...]
    loops: tuple[Loop, ...]

    @property
    def still(self) -> bool:
        """True if the second operand is a single value during a run."""
        return self.loops[-1].strides[1] == 0


@dataclass(frozen=True, slots=True)
class Operands:
    """The function under construction, and its registers: addresses of the operands in reading order.

    ``tables`` are addresses of additional constants.
    """

    f: Function
    inputs: tuple[str, ...]
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ElementSteps:
    """Code of an operator: ``vector`` appends it for one vector and returns the register of the results;
    ``entry`` is appended before each run.
    """

    vector: Callable[[], str]
    entry: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class StoreForm:
    """Stores of results: clamped, several per vector, with an instruction that advances by ``step`` bytes.

    Results are already saturated to ``bits``, in the lowest bits of each lane.
    """

    clamp: tuple[int, int] = (-128, 127)
    lanes: int = WORDS
    store: str = "vstrb.32"
    step: int = WORDS
    bits: int = 8


def walk(sig: Signature) -> Reading:
    strides = [*(repeated_strides(value, sig.y) for value in sig.inputs), strides_of(sig.y.shape)]
    loops = merge([Loop(n, tuple(s)) for n, *s in zip(sig.y.shape, *strides, strict=True)], len(strides))
    order = tuple(sorted(range(len(sig.inputs)), key=lambda i: -loops[-1].strides[i]))
    return Reading(order, tuple(Loop(a.count, tuple(a.strides[i] for i in (*order, -1))) for a in loops))


def elementwise(
    name: str,
    sig: Signature,
    target: Target,
    way: Reading,
    steps: Callable[[Operands], ElementSteps],
    form: StoreForm = StoreForm(),
    consts: Sequence[Const] = (),
) -> Kernel | None:
    """Return the kernel with these steps; None if the operands need more loops than there are registers.

    ``steps`` appends the code before the loops, and returns the code for each run and vector. ``consts`` are
    tables.
    """
    if len(way.loops) > MOST_LOOPS:
        return None
    arrays = [Const.of(f"operand{i}", v.array()) for i, v in enumerate(sig.inputs) if v.is_constant]
    routine = _routine(name, sig, target, way, steps, form, [*arrays, *consts])
    whole = [i for i, v in enumerate(sig.inputs) if not v.is_constant and v.elements == sig.y.elements]
    before = form.lanes * (-(-sig.y.elements // form.lanes) - 1)
    growth = [max(0, sig.y.dtype.itemsize - v.dtype.itemsize) for v in sig.inputs]
    return Kernel(
        design=name,
        template="",
        view=routine,
        consts=(*arrays, *consts),
        inplace=tuple(InPlace(i, lead=growth[i] * before) for i in whole),
        work=Work(routine.runs()),
        routines=(routine,),
    )


def _routine(
    name: str,
    sig: Signature,
    target: Target,
    way: Reading,
    steps: Callable[[Operands], ElementSteps],
    form: StoreForm,
    consts: Sequence[Const],
) -> Routine:
    variable = [i for i, v in enumerate(sig.inputs) if not v.is_constant]
    constant = [i for i, v in enumerate(sig.inputs) if v.is_constant]
    f = Function(
        name.removeprefix("mve ").replace(" ", "_"),
        *(f"const {sig.inputs[i].dtype.c_name} *x{i}" for i in variable),
        f"{sig.y.dtype.c_name} *y",
        *(f"const {'float' if c.dtype == 'float32' else c.dtype + '_t'} *{c.name}" for c in consts),
        no_alias=True,
        purpose=f"{sig.y.elements} elements",
    )
    places = dict(zip([*variable, "y", *constant], f.arguments, strict=False))
    inputs, y = tuple(places[i] for i in way.order), places["y"]
    taken = steps(Operands(f, inputs, f.arguments[len(places) :]))
    clamp = _clamp(f, form.clamp, form.bits)

    def vector() -> None:
        results = taken.vector()
        clamp(results)
        f(form.store, results, f"[{y}], #{form.step}")

    sizes = [sig.inputs[i].dtype.itemsize for i in way.order]
    loops = scaled(way.loops, (*sizes, sig.y.dtype.itemsize))
    run_loops(f, (*inputs, y), loops, (form.lanes, unrolling(target)), vector, taken.entry)
    return f.done()


def _clamp(f: Function, clamp: tuple[int, int], bits: int) -> Callable[[str], None]:
    # Clamps numbers of so many bits; the limits are loaded at once, those of the type need none.
    limits, ends = [], (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    for operation, limit, end in zip(("vmax", "vmin"), clamp, ends, strict=True):
        if limit != end:
            limits.append((f"{operation}.s{bits}", f.vector("a limit")))
            spread(f, limits[-1][1], limit, bits)

    def each(vector: str) -> None:
        for operation, limit in limits:
            f(operation, vector, vector, limit)

    return each


def spread(f: Function, vector: str, value: int, bits: int = 32) -> None:
    number = f.constant("a number", value)
    f(f"vdup.{bits}", vector, number)
    f.free(number)


def unrolling(target: Target) -> int:
    return target.steps(_UNROLL) if target.optimize == "speed" else 1


def scaled(loops: Sequence[Loop], sizes: Sequence[int]) -> tuple[Loop, ...]:
    """Return the loops with strides in bytes, for elements of these sizes."""
    return tuple(
        Loop(loop.count, tuple(stride * size for stride, size in zip(loop.strides, sizes, strict=True)))
        for loop in loops
    )


def run_loops(
    f: Function,
    pointers: Sequence[str],
    loops: Sequence[Loop],
    shape: tuple[int, int],
    vector: Callable[[], None],
    entry: Callable[[], None] = lambda: None,
) -> Sequence[int]:
    """Append the loops, outermost first, with strides in bytes; return how far the pointers have moved.

    ``shape`` is the number of elements in a vector, and the number of unrolled vectors. A run advances
    addresses by whole vectors, which the enclosing loop compensates.
    """
    (loop, *inner), (lanes, unroll) = loops, shape
    if not inner:
        entry()
        _run(f, loop.count, lanes, unroll, vector)
        return [-(-loop.count // lanes) * lanes * stride for stride in loop.strides]
    counter = f.core("rounds left of a loop")
    with f.counted_loop("rows", counter, loop.count):
        moved = run_loops(f, pointers, inner, shape, vector, entry)
        for pointer, stride, done in zip(pointers, loop.strides, moved, strict=True):
            f.advance(pointer, stride - done)
    f.free(counter)
    return [stride * loop.count for stride in loop.strides]


def _run(f: Function, count: int, lanes: int, unroll: int, vector: Callable[[], None]) -> None:
    rounds, rest = divmod(count, lanes * unroll) if unroll > 1 else (0, count)
    if rounds:
        with f.low_overhead_loop(f"by {lanes * unroll}", rounds):
            for _ in range(unroll):
                vector()
    if rest:
        with f.predicated_loop("rest", 128 // lanes, rest):
            vector()


def requantised(
    f: Function,
    scale: tuple[int, int],
    zero_point: int,
    clamp: tuple[int, int],
    span: tuple[int, int],
    start: int,
    exact: float | None = None,
) -> tuple[int, Callable[[str], None]]:
    """Load the constants of a requantisation; return the value to add first, and a function that requantises
    a vector.

    ``span`` are the least and the greatest accumulator, ``start`` must be added anyway, ``exact`` is the
    factor of a float32 product.
    """
    rescale = Rescale.one(scale, exact, (zero_point, *clamp), span)
    requant = requantisation(rescale, np.array([start], np.int64))
    if requant is None or requant.epilogue.shift is None:
        return start, _roundings(f, scale, zero_point) if exact is None else _single(f, exact, zero_point)
    begin, multiplier, constant = (int(c[0]) for c in requant.constants)
    factor = f.vector("multiplier")
    spread(f, factor, multiplier)
    last = f.constant("last constant", constant)

    def each(q: str) -> None:
        f("vmulh.s32", q, q, factor)
        f("vadd.i32", q, q, last)
        f("vqrshrnb.s32", q, q, f"#{requant.epilogue.shift}")
        f("vqmovnb.s16", q, q)

    return begin, each


def _roundings(f: Function, scale: tuple[int, int], zero_point: int) -> Callable[[str], None]:
    spare = f.vector("signs")
    multiplier, zero = f.constant("multiplier", scale[0]), f.constant("zero point", zero_point)

    def each(q: str) -> None:
        rescaled(f, q, spare, multiplier, scale[1])
        f("vadd.i32", q, q, zero)
        narrow(f, q)

    return each


def _single(f: Function, factor: float, zero_point: int) -> Callable[[str], None]:
    factors = f.vector("factor")
    spread(f, factors, int(np.float32(factor).view(np.int32)))
    zero = f.constant("zero point", zero_point)

    def each(q: str) -> None:
        rounded_products(f, (q,), factors)
        f("vadd.i32", q, q, zero)
        narrow(f, q)

    return each


def narrow(f: Function, vector: str) -> None:
    f("vqmovnb.s32", vector, vector)
    f("vqmovnb.s16", vector, vector)


def rescaled(f: Function, vector: str, spare: str, multiplier: str, shift: int) -> None:
    """Append TFLite's rescaling by a register's multiplier and a shift, with ties away from zero; overwrites
    a spare vector.
    """
    if shift > 0:
        f("vshl.i32", vector, vector, f"#{shift}")
    f("vqrdmulh.s32", vector, vector, multiplier)
    if shift < 0:
        f("vshr.s32", spare, vector, "#31")
        f("vadd.i32", vector, vector, spare, note="halves go away from zero")
        f("vrshr.s32", vector, vector, f"#{-shift}")
