"""Common part of Fourier transforms in assembly: stages, tables and prologues.

A transform of real values is computed as one of half as many complex values, in three functions: ``first`` is
the first stage and reorders the values, ``stage`` is each later stage and combines four transforms into one,
``apart`` converts the result to that of real values. The modules of the extensions write the instructions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel
from crtgen.network.ir import Signature
from crtgen.network.ops.fft import digit_order, radices

__all__ = [
    "StageWalk",
    "Stages",
    "TransformView",
    "apart_function",
    "first_function",
    "inputs_there",
    "next_group",
    "stage_function",
    "transform_kernel",
]


@dataclass(frozen=True, slots=True)
class TransformView:
    """``rows`` of ``inputs`` values, transformed as ``count`` complex ones.

    ``stages`` are the calls of the function ``stage``: bytes of the transforms that it combines, the number
    of groups of four of these, and the offset of their twiddle factors.
    """

    rows: int
    inputs: int
    count: int
    stages: tuple[tuple[int, int, int], ...]
    inverse: bool = False

    @classmethod
    def of(cls, sig: Signature, count: int, stages: Sequence[tuple[int, int, int]]) -> "TransformView":
        inputs = sig.x.shape[-1]
        return cls(sig.x.elements // inputs, inputs, count, tuple(stages))


@dataclass(frozen=True, slots=True)
class StageWalk:
    """The function ``stage``, the name of its inner loop, and the bytes of each transform that an iteration
    reads.
    """

    routine: Routine
    rounds: str
    step: int

    def runs(self, size: int, groups: int) -> Runs:
        return self.routine.runs(groups=groups, **{self.rounds: size // self.step})


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages of a transform of ``count`` complex values.

    The first one has the radix ``first``. The others have radix 4, and combine transforms of ``sizes``
    values.
    """

    count: int
    first: int
    sizes: tuple[int, ...]
    eight: bool

    @classmethod
    def of(cls, count: int, eight: bool = False) -> "Stages | None":
        """Return the stages, with ``eight`` as in ``radices``; None if a stage after the first one has a
        radix other than 4.
        """
        first, *others = reversed(radices(count, eight))
        if any(radix != 4 for radix in others):
            return None
        return cls(count, first, tuple(first * 4**n for n in range(len(others))), eight)

    def calls(self, item: int, parts: int = 2) -> tuple[tuple[int, int, int], ...]:
        """Return three numbers for each stage after the first one.

        They are the bytes of one transform of the previous stage, the number of groups of four of these, and
        the offset of the stage's twiddle factors in their table. A complex value has ``item`` bytes, a
        twiddle factor ``parts`` elements.
        """
        starts = np.cumsum([0, *(3 * parts * size for size in self.sizes)]).tolist()
        return tuple(
            (item * size, self.count // (4 * size), start)
            for size, start in zip(self.sizes, starts, strict=False)
        )

    def places(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return ``[count / first]``: the position to which each transform of the first stage is written, in
        the input's order.
        """
        places = np.empty(self.count // self.first, np.int64)
        places[digit_order(self.count, self.eight)[:: self.first]] = np.arange(self.count // self.first)
        return places

    def order(self, item: int, note: str, every: int = 1) -> Const:
        """Return the table of byte offsets to which each ``every``-th transform of the first stage is
        written.

        ``item`` is the size of a complex value in bytes; ``note`` is the table's comment.
        """
        places = self.places()[::every]
        return Const.of("order", (item * self.first * places).astype(np.uint16), 2, note)

    def turns(self, lanes: int = 1) -> list[int]:
        """Return the indices of the twiddle factors that later stages read, in that order.

        For each ``lanes`` values: their first factors, their second ones, their third ones.
        """
        return [
            turn * number * self.count // (4 * size)
            for size in self.sizes
            for start in range(0, size, lanes)
            for turn in (1, 2, 3)
            for number in range(start, start + lanes)
        ]


def transform_kernel(
    design: str,
    template: str,
    view: TransformView,
    consts: Sequence[Const],
    once: Sequence[Routine],
    stage: StageWalk,
    item: int,
) -> Kernel:
    """Return a kernel of functions in assembly: some run ``once`` for each row, one runs for each stage.

    All complex values, of ``item`` bytes, are in scratch.
    """
    calls = len(view.stages)
    runs = Runs.sum(routine.runs() for routine in once)
    runs += Runs.sum(stage.runs(size, groups) for size, groups, _ in view.stages)
    return Kernel(
        design=design,
        template=template,
        view=view,
        consts=tuple(consts),
        scratch=item * view.count,
        inplace=(InPlace(),) if view.rows == 1 else (),
        work=Work(view.rows * runs).block("row", view.rows).block("stage", view.rows * calls, calls),
        routines=(*once, stage.routine) if calls else tuple(once),
    )


def first_function(
    radix: int, count: int, at_once: str = "", keep: Sequence[int] = (), local: int = 0
) -> Function:
    """Begin ``first(to, x, order)``: transforms of ``radix`` values that are ``count / radix`` apart."""
    return Function(
        "first",
        "void *to",
        "const void *x",
        "const uint16_t *order",
        purpose=f"{count // radix} transforms of {radix} numbers{at_once}.",
        keep=keep,
        local=local,
    )


def inputs_there(radix: int, count: int, inputs: int, at_once: int = 1) -> list[tuple[int, int]]:
    """Return the iterations of the first stage, ``at_once`` transforms each, with the number of their nonzero
    inputs.

    Inputs from index ``inputs`` on are zero.
    """
    apart = count // radix
    whole, rest = divmod(inputs, apart)
    rounds = (rest // at_once, whole + 1), ((apart - rest) // at_once, whole)
    return [(times, there) for times, there in rounds if times]


def stage_function(turns: str, keep: Sequence[int] = (), local: int = 0) -> Function:
    """Begin ``stage(x, turns, bytes, groups)``, which combines groups of four transforms of ``bytes`` bytes.

    ``turns`` is the type of the twiddle factors.
    """
    return Function(
        "stage",
        "void *x",
        f"const {turns} *turns",
        "uint32_t bytes",
        "uint32_t groups",
        purpose="A stage: four transforms of so many bytes become one, group by group.",
        keep=keep,
        local=local,
    )


def next_group(f: Function, left: str, label: str) -> None:
    """Append the end of the loop over groups of ``stage``, whose counter is kept with ``groups``."""
    f("ldr", left, f.kept[3])
    f("subs", left, left, "#1")
    f("str", left, f.kept[3])
    f("bne", label)


def apart_function(turns: str, name: str = "apart", by: str = "twos", local: int = 0) -> Function:
    """Begin ``apart(x, y, halves)``, which converts a complex transform to a real one, except for both ends.

    ``turns`` is the type of the parts of ``halves``.
    """
    return Function(
        name,
        "const void *x",
        "void *y",
        f"const {turns} *halves",
        purpose=f"Numbers of a transform by {by}, from both ends.",
        local=local,
    )
