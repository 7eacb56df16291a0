"""What element-wise kernels with Helium have in common, of one operand or two.

A run is as many elements as can be walked through in one go, each operand either advancing with the output or
staying at one value. Four elements at a time in 32 bits (16 as bytes), what is left under a mask. Around the
run are loops of scalar instructions, for operands that are repeated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.loops import Loop, merge, repeated_strides, strides_of
from crtgen.kernels.mve.finish import requantisation
from crtgen.kernels.requant import Rescale

__all__ = [
    "BYTES",
    "MOST_LOOPS",
    "NARROW",
    "WORDS",
    "Around",
    "Body",
    "ElementsView",
    "Walk",
    "around",
    "elementwise",
    "requantised",
    "rescaled",
    "scaled",
    "unrolling",
    "walk",
    "word",
]

WORDS, BYTES = 4, 16  # elements in a vector
NARROW = ("vqmovnb.s32 q0, q0", "vqmovnb.s16 q0, q0")  # saturates to int8
_UNROLL = 4
_LOW, _HIGH = "q3", "q4"
_COUNTERS = ("r9", "r10", "r11")  # of the loops around a run, innermost first
MOST_LOOPS = len(_COUNTERS) + 1


@dataclass(frozen=True, slots=True)
class Walk:
    """How operands are read: ``order`` are their numbers, the first of which advances along a run.

    ``loops`` are outermost first, the last one is the run; their strides are those of the operands in this
    order, and of the output.
    """

    order: tuple[int, ...]
    loops: tuple[Loop, ...]

    @property
    def still(self) -> bool:
        """Whether the second operand stays at one value in a run."""
        return self.loops[-1].strides[1] == 0


@dataclass(frozen=True, slots=True)
class Body:
    """What is done with each element, in instructions.

    ``setup`` once, ``entry`` before each run, ``body`` for ``lanes`` elements at a time. Operands are at r0
    and r1; a result before clamping is in q0, by ``store`` at r2. int8 is in the lowest byte of each lane.
    """

    setup: tuple[str, ...]
    body: tuple[str, ...]
    entry: tuple[str, ...] = ()
    clamp: tuple[int, int] = (-128, 127)
    lanes: int = WORDS
    store: str = "vstrb.32 q0, [r2], #4"


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around a run, or around another one: ``count`` rounds, each of which ends with ``advance``."""

    count: tuple[str, ...]
    rounds: int
    register: str
    advance: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ElementsView:
    """A ``Body`` with its clamp and store, for runs of ``run`` elements.

    ``parameters`` are those of the C function, ``arguments`` brings them into the body's registers.
    ``around`` are the loops around a run, outermost first. ``vectors``: there are vectors to keep for the
    caller.
    """

    run: int
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]
    setup: tuple[str, ...]
    entry: tuple[str, ...]
    body: tuple[str, ...]
    around: tuple[Around, ...]
    lanes: int
    unroll: int
    vectors: bool

    @property
    def rounds(self) -> int:
        """Of the unrolled loop."""
        return self.run // (self.lanes * self.unroll) if self.unroll > 1 else 0

    @property
    def rest(self) -> int:
        return self.run - self.rounds * self.lanes * self.unroll

    @property
    def bits(self) -> int:
        """Of a lane."""
        return 128 // self.lanes

    @property
    def unrolled(self) -> tuple[str, ...]:
        return self.body * self.unroll

    @property
    def stack(self) -> int:
        """Bytes."""
        return 24 + 12 * (len(self.around) > 0) + 16 * self.vectors

    @property
    def start_rounds(self) -> tuple[str, ...]:
        return tuple(word("lr", self.rounds))

    @property
    def start_rest(self) -> tuple[str, ...]:
        return tuple(word("lr", self.rest))

    @property
    def cost(self) -> float:
        each = len(self.entry) + self.rounds * (len(self.unrolled) + 1) + 2 * (self.rounds > 0)
        each += -(-self.rest // self.lanes) * (len(self.body) + 1) + 2 * (self.rest > 0)
        for loop in reversed(self.around):
            each = loop.rounds * (each + len(loop.advance) + 2) + 1
        return len(self.arguments) + len(self.setup) + 2 + 2 * self.vectors + each


def walk(sig: Signature) -> Walk:
    """The inputs of ``sig``, repeated along the axes where they have length 1."""
    strides = [*(repeated_strides(value, sig.y) for value in sig.inputs), strides_of(sig.y.shape)]
    loops = merge([Loop(n, tuple(s)) for n, *s in zip(sig.y.shape, *strides, strict=True)], len(strides))
    order = tuple(sorted(range(len(sig.inputs)), key=lambda i: -loops[-1].strides[i]))
    return Walk(order, tuple(Loop(a.count, tuple(a.strides[i] for i in (*order, -1))) for a in loops))


def elementwise(
    name: str, sig: Signature, target: Target, way: Walk, body: Body, consts: Sequence[Const] = ()
) -> Kernel | None:
    """The kernel of a body; None if the operands need more loops than there are registers.

    ``consts`` are tables that the body finds behind the operands, at r1.
    """
    if len(way.loops) > MOST_LOOPS:
        return None
    arrays = [Const.of(f"operand{i}", v.array()) for i, v in enumerate(sig.inputs) if v.is_constant]
    view = _view(sig, target, way, body, [*arrays, *consts])
    whole = [i for i, v in enumerate(sig.inputs) if not v.is_constant and v.elements == sig.y.elements]
    growth = max(0, sig.y.dtype.itemsize - sig.x.dtype.itemsize)
    lead = growth * body.lanes * (-(-sig.y.elements // body.lanes) - 1)
    return Kernel(
        design=name,
        template="mve/elements.c.j2",
        view=view,
        consts=(*arrays, *consts),
        inplace=tuple(InPlace(i, lead=lead) for i in whole),
        cost=view.cost,
    )


def _view(sig: Signature, target: Target, way: Walk, body: Body, consts: Sequence[Const]) -> ElementsView:
    limits = [
        (limit, operation, register)
        for limit, operation, register, end in zip(
            body.clamp, ("vmax.s8", "vmin.s8"), (_LOW, _HIGH), (-128, 127), strict=True
        )
        if limit != end
    ]
    loads = [text for n, _, q in limits for text in (f"mov lr, #{n}", f"vdup.8 {q}, lr")]
    clamps = [f"{operation} q0, q0, {q}" for _, operation, q in limits]
    variable = [i for i, v in enumerate(sig.inputs) if not v.is_constant]
    constant = [i for i, v in enumerate(sig.inputs) if v.is_constant]
    places = {number: f"r{n}" for n, number in enumerate(way.order)}
    targets = [*(places[i] for i in variable), "r2", *(places[i] for i in constant)]
    targets += [f"r{len(way.order) + n}" for n in range(len(consts) - len(constant))]
    return ElementsView(
        run=way.loops[-1].count,
        parameters=(
            *(f"const {sig.inputs[i].dtype.c_name} *x{i}" for i in variable),
            f"{sig.y.dtype.c_name} *y",
            *(f"const {DType(c.dtype).c_name} *{c.name}" for c in consts),
        ),
        arguments=_permutation(targets),
        setup=(*body.setup, *loads),
        entry=body.entry,
        body=(*body.body, *clamps, body.store),
        around=around(scaled(way.loops, sig.y.dtype.itemsize), body.lanes),
        lanes=body.lanes,
        unroll=unrolling(target),
        vectors=any(q == _HIGH for _, _, q in limits),
    )


def unrolling(target: Target) -> int:
    """How often a loop's body is repeated."""
    return _UNROLL if target.optimize == "speed" else 1


def _permutation(targets: Sequence[str]) -> tuple[str, ...]:
    """Moves of r0, r1, ... to these registers, by way of others."""
    moved = [(f"r{n}", f"r{n + 3}", to) for n, to in enumerate(targets) if to != f"r{n}"]
    return (*(f"mov {by}, {of}" for of, by, _ in moved), *(f"mov {to}, {by}" for _, by, to in moved))


def scaled(loops: Sequence[Loop], size: int) -> tuple[Loop, ...]:
    """With strides in bytes, for elements of this size."""
    return tuple(Loop(loop.count, tuple(stride * size for stride in loop.strides)) for loop in loops)


def around(loops: Sequence[Loop], lanes: int) -> tuple[Around, ...]:
    """Outermost first, of strides in bytes.

    A run moves addresses on by whole vectors, which the loop around it makes up for.
    """
    run, found = loops[-1], list[Around]()
    moved = [-(-run.count // lanes) * lanes * stride for stride in run.strides]
    for register, loop in zip(_COUNTERS, reversed(loops[:-1]), strict=False):
        steps = [stride - done for stride, done in zip(loop.strides, moved, strict=True)]
        registers = ("r0", "r1", "r2") if len(steps) == 3 else ("r0", "r2")
        advance = [text for r, n in zip(registers, steps, strict=True) for text in _add(r, n)]
        found.append(Around(tuple(word(register, loop.count)), loop.count, register, tuple(advance)))
        moved = [stride * loop.count for stride in loop.strides]
    return tuple(reversed(found))


def _add(register: str, number: int) -> Iterator[str]:
    """``register += number``."""
    if abs(number) > 4095:
        yield from word("lr", number)
        yield f"add {register}, {register}, lr"
    elif number:
        yield f"{'add' if number > 0 else 'sub'}w {register}, {register}, #{abs(number)}"


def word(register: str, number: int) -> Iterator[str]:
    """A number in a register."""
    bits = number & 0xFFFFFFFF
    yield f"movw {register}, #{bits & 0xFFFF}"
    if bits >> 16:
        yield f"movt {register}, #{bits >> 16}"


def requantised(
    scale: tuple[int, int], zero_point: int, clamp: tuple[int, int], span: tuple[int, int], start: int
) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """What to add first, instructions that load the constants, and those that requantise q0.

    ``span`` are the least and the greatest accumulator, ``start`` what has to be added anyway. Takes r3 and
    q2, or r3, r7 and q1.
    """
    numbers = [np.array([n], np.int64) for n in (*scale, *span, start)]
    rescale = Rescale(numbers[0], numbers[1], zero_point, *clamp, numbers[2], numbers[3])
    requant = requantisation(rescale, numbers[4])
    if requant.finish.shift is None:
        return start, (*word("r3", scale[0]), f"mov r7, #{zero_point}"), _roundings(scale[1])
    begin, multiplier, constant = (int(c[0]) for c in requant.constants)
    setup = (*word("r3", multiplier), "vdup.32 q2, r3", *word("r3", constant))
    shift = f"vqrshrnb.s32 q0, q0, #{requant.finish.shift}"
    return begin, setup, ("vmulh.s32 q0, q0, q2", "vadd.i32 q0, q0, r3", shift, "vqmovnb.s16 q0, q0")


def _roundings(shift: int) -> tuple[str, ...]:
    return (*rescaled("q0", "q1", "r3", shift), "vadd.i32 q0, q0, r7", *NARROW)


def rescaled(vector: str, spare: str, multiplier: str, shift: int) -> tuple[str, ...]:
    """TFLite's rescaling by a register's multiplier and a shift, halves away from zero; spoils a vector."""
    left = (f"vshl.i32 {vector}, {vector}, #{shift}",) if shift > 0 else ()
    away = (
        f"vshr.s32 {spare}, {vector}, #31",
        f"vadd.i32 {vector}, {vector}, {spare}",
        f"vrshr.s32 {vector}, {vector}, #{-shift}",
    )
    return (*left, f"vqrdmulh.s32 {vector}, {vector}, {multiplier}", *(away if shift < 0 else ()))
