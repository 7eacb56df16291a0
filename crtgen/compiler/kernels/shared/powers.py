"""Constants of ``e^x`` in float32, for kernels of several extensions."""

__all__ = ["FEWEST", "HIGHEST", "LOWEST", "TERMS"]

FEWEST = 8
"""Elements from which on loading the constants pays."""
LOWEST, HIGHEST = -104.0, 89.0
"""Below the first one a power is 0, above the second one it is infinite."""
TERMS = (0.00139517174, 0.00836959854, 0.0416661873, 0.166665122, 0.5)
"""``(e^r - 1 - r) / r^2`` for r within ln(2) / 2, from the highest power on: those of ``crt_expf``."""
