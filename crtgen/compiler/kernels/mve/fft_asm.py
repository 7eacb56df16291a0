"""Common part of Fourier transforms with Helium: a vector holds complex values, real and imaginary parts in
turn.

VCADD rotates a value by 90 degrees as it adds it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.shared.transform import stage_function

__all__ = ["QUARTER", "THREE", "ComplexLanes", "stage"]

QUARTER, THREE = "#90", "#270"
_VECTOR = 16  # bytes


class ComplexLanes(ABC):
    """Appends arithmetic on vectors of complex values of one type.

    ``sums`` are additions and subtractions, ``fetch`` and ``store`` move a vector.
    """

    sums: ClassVar[str]
    fetch: ClassVar[str]
    store: ClassVar[str]

    def __init__(self, f: Function) -> None:
        self.f = f

    @abstractmethod
    def load(self, to: str, address: str) -> None:
        """Load values as a stage needs them: in fixed point, divided by its radix."""

    @abstractmethod
    def turned(self, q: Sequence[str], number: int, address: str, by: str) -> None:
        """Load ``q[number]`` from an address and multiply it by a twiddle factor.

        ``number`` is 1, 2 or 3. ``q`` are five registers; those below ``number`` are in use, except for 0.
        """

    def four(self, x: Sequence[str], spare: str) -> tuple[str, ...]:
        """Transform four values; return the registers of the results. The second register of ``x`` is then
        free.
        """
        f, (a, b, c, d) = self.f, x
        add, subtract, turn = (f"{name}.{self.sums}" for name in ("vadd", "vsub", "vcadd"))
        f(add, spare, a, c)
        f(subtract, a, a, c)
        f(add, c, b, d)
        f(subtract, b, b, d)
        f(add, d, spare, c)
        f(subtract, spare, spare, c)
        f(turn, c, a, b, THREE)
        f(turn, a, a, b, QUARTER)
        return d, c, spare, a

    def combined(
        self, q: Sequence[str], places: Sequence[str], turns: Callable[[int], str]
    ) -> tuple[str, ...]:
        """Load values from four addresses, multiply them by their twiddle factors and transform them; return
        the registers of the results.

        ``turns`` returns the register of the twiddle factor for number 1, 2 or 3, and may load it.
        """
        for number in (1, 2, 3):
            self.turned(q, number, places[number], turns(number))
        self.load(q[0], places[0])
        return self.four(q[:4], q[4])


def stage(turns: str, rounds: str, role: str, numbers: type[ComplexLanes]) -> Routine:
    """Write ``stage(x, turns, bytes, groups)``, which combines groups of four transforms of ``bytes`` bytes
    into one each.

    ``turns`` is the type of the twiddle factors' parts; a loop called ``rounds`` iterates over vectors, and
    ``role`` counts them.
    """
    f = stage_function(turns)
    x, start, step, left = f.arguments
    parts = (x, *f.cores("numbers", 3))
    turn, vectors = f.cores(f"turns; {role}", 2)
    at = numbers(f)
    by, q = f.vector("a turn"), f.vectors("numbers", 5)

    def next_turn(number: int) -> str:
        f(at.fetch, by, f"[{turn}], #{_VECTOR}")
        return by

    f("lsr", vectors, step, "#4")
    for before, part in pairwise(parts):
        f("add", part, before, step)
    f("add", step, step, step, "lsl #1")
    with f.loop("groups", "groups") as next_group:
        f("mov", turn, start)
        with f.low_overhead_loop(rounds, rounds, vectors):
            made = at.combined(q, [f"[{part}]" for part in parts], next_turn)
            for register, part in zip(made, parts, strict=True):
                f(at.store, register, f"[{part}], #{_VECTOR}")
        for part in parts:
            f("add", part, part, step)
        f("subs", left, left, "#1")
        f("bne", next_group)
    return f.done()
