"""Constants of ``e^x`` in float32, and the end of a sum of powers, for kernels of several extensions."""

from collections.abc import Sequence

from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.words import bits_of

__all__ = ["FEWEST", "HIGHEST", "LOWEST", "TERMS", "reciprocal_of_sum"]

FEWEST = 8
"""Elements from which on loading the constants pays."""
LOWEST, HIGHEST = -104.0, 89.0
"""Below the first one a power is 0, above the second one it is infinite."""
TERMS = (0.00139517174, 0.00836959854, 0.0416661873, 0.166665122, 0.5)
"""``(e^r - 1 - r) / r^2`` for r within ln(2) / 2, from the highest power on: those of ``crt_expf``."""


def reciprocal_of_sum(f: Function, parts: Sequence[str], spare: str) -> None:
    """Append the reciprocal of the sum of four floats, in the register of the first; the others, and the
    general register ``spare``, change.
    """
    first, second, third, fourth = parts
    f("vadd.f32", first, first, second)
    f("vadd.f32", third, third, fourth)
    f("vadd.f32", first, first, third)
    f.number(spare, bits_of(1.0))
    f("vmov", second, spare)
    f("vdiv.f32", first, second, first)
